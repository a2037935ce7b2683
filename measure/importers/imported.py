"""What a measuring tool's output holds: samples by condition, and what is no sample.

Tools print several tables under different conditions: with and without peer access,
by copy engines and by kernels, one flow at a time and several.  A fit must not mix them,
so each table becomes a :class:`Group` with its conditions, and :meth:`Imported.best` is
what a fit uses unless told otherwise.  Figures that no pattern's time can be made from
are kept as :class:`Reading` with the reason.

Conditions in use
-----------------
==============  ============================================================
``run``         number of the run, where one text holds several
``p2p``         ``on`` or ``off``: whether peer access was enabled
``engine``      ``copy engine`` or ``kernel``: what moved the bytes
``operation``   ``write`` or ``read``: which side of a pair moved them
``direction``   ``one way``, ``both ways`` or ``several at once``
``statistic``   ``mean``, ``peak`` and so on, where the tool says which
``memory``      ``pinned`` or ``pageable`` host memory
==============  ============================================================

Importers may add others (a column of a table becomes a condition under its own name).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from topocal.measure.patterns import notation
from topocal.measure.samples import Measurements, Run, Sample
from topocal.topo.errors import FormatError, InputError, Where, one_line
from topocal.topo.flow import Pattern

__all__ = ["Draft", "Group", "Imported", "Latency", "LinkCost", "Reading"]

_HOST_MEMORY: Final = re.compile(r"(?:.*/)?(?:cpu|mem|host)[0-9]*")
"""What importers call the host's memory, which every GPU of a machine copies to and from."""

MAX_NOTES: Final = 40
"""More than that tells a user nothing; the rest is counted."""

MAX_SAMPLES: Final = 400_000
"""Pairs of 512 devices and some; no tool's output comes near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A figure that is no pattern's time.

    Attributes
    ----------
    what
        What it is a figure of.
    value, unit
        In SI: ``B/s`` or ``s``.
    reason
        Why it is not a sample.
    pattern
        Flows that ran, where they are known.
    where
        The line it stands in.
    """

    what: str
    value: float
    unit: str
    reason: str
    pattern: Pattern | None = None
    where: Where | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds that the smallest transfer of a pair takes (alpha)."""

    source: str
    destination: str
    seconds: float
    where: Where | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCost:
    """Hockney cost of a class of links: ``alpha_s + bytes * beta_s_per_byte``.

    Attributes
    ----------
    links
        Which links.
    alpha_s
        Seconds per transfer.
    beta_s_per_byte
        Seconds per byte.
    """

    links: str
    alpha_s: float
    beta_s_per_byte: float
    where: Where | None = None

    @property
    def capacity_Bps(self) -> float:
        """Bytes per second of a long transfer."""
        return 1.0 / self.beta_s_per_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Figures that were taken under the same conditions.

    Attributes
    ----------
    label
        For people, unique in its file: ``P2P enabled, unidirectional``.
    conditions
        By the names in the module's table.
    measurements
        The samples.
    latencies, costs, readings
        What is no sample.
    default
        Whether a fit uses it unless told otherwise.
    """

    label: str
    conditions: Mapping[str, str]
    measurements: Measurements
    latencies: tuple[Latency, ...] = ()
    costs: tuple[LinkCost, ...] = ()
    readings: tuple[Reading, ...] = ()
    default: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """All that one text holds.

    Attributes
    ----------
    kind
        Name of the importer.
    title
        The tool.
    groups
        In the order of the text.
    notes
        What a user should know: rows that are cut, assumptions, what is not used.
    source
        The file.
    devices
        What the text says of each endpoint: ``model``, ``bus_id``.
    no_peer
        Pairs without peer access: their bytes go through the host.
    provenance
        What the text says of the conditions, by the keys of
        :mod:`topocal.measure.provenance`.
    """

    kind: str
    title: str
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()
    source: str = ""
    devices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    no_peer: tuple[tuple[str, str], ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each group."""
        return tuple(g.label for g in self.groups)

    @property
    def usable(self) -> bool:
        """Whether there is a sample among what a fit uses unless told otherwise."""
        return any(g.measurements.samples for g in self.groups if g.default)

    def why_not(self) -> str:
        """Why a fit can use nothing of it, as the end of a sentence; empty where nothing says."""
        reasons = [r.reason for g in self.groups for r in g.readings]
        if not reasons and any(g.latencies for g in self.groups):
            reasons = ["it has latencies and no rates"]
        return f": {reasons[0]}" if reasons else ""

    def best(self) -> Measurements:
        """What a fit uses unless told otherwise.

        Raises
        ------
        InputError
            When nothing in it is a sample.
        """
        if not self.usable:
            raise InputError(
                f"{self.title} holds no figure that a fit can use{self.why_not()}",
                where=Where(file=self.source),
                remedy="give a file with rates of pairs or of patterns",
            )
        return self._merged([g for g in self.groups if g.default])

    def select(self, label: str | None = None, **conditions: str) -> Measurements:
        """The samples of the groups with a label, and with all the given conditions.

        Raises
        ------
        InputError
            When there is none.
        """
        found = [
            g
            for g in self.groups
            if (label is None or g.label == label)
            and all(g.conditions.get(k) == v for k, v in conditions.items())
        ]
        if not found:
            wanted = [label] if label is not None else []
            wanted += [f"{k}={v}" for k, v in conditions.items()]
            close = difflib.get_close_matches(label or "", self.labels, n=1)
            shown = close or list(self.labels[:8])
            raise InputError(
                f"no group {one_line(', '.join(wanted))!r} in {self.title}",
                where=Where(file=self.source),
                remedy="it has " + ("; ".join(shown) or "none"),
            )
        return self._merged(found)

    def renamed(self, names: Mapping[str, str]) -> Imported:
        """The same with other names for some endpoints.

        A tool that numbers nothing but GPUs calls all host memory ``cpu0``; this is how
        two of its outputs, pinned to different sockets, are told apart.
        """
        return replace(
            self,
            groups=tuple(_renamed_group(g, names) for g in self.groups),
            devices={names.get(name, name): known for name, known in self.devices.items()},
            no_peer=tuple((names.get(a, a), names.get(b, b)) for a, b in self.no_peer),
            provenance={
                key: [names.get(one, one) for one in value] if key == "ranks" else value
                for key, value in self.provenance.items()
            },
        )

    def _merged(self, groups: Sequence[Group]) -> Measurements:
        samples = [s for g in groups for m in (g.measurements,) for s in (*m.samples, *m.set_aside)]
        runs = [Run(provenance=self.provenance, source=self.source)] if self.provenance else []
        return Measurements.of(samples, [self.source] if self.source else [], runs)


@dataclass(slots=True, kw_only=True)
class Draft:
    """Collects what an importer finds; :meth:`done` makes the :class:`Imported`."""

    kind: str
    title: str
    file: str
    groups: list[Group] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    devices: dict[str, dict[str, str]] = field(default_factory=dict)
    no_peer: list[tuple[str, str]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    more_notes: int = 0
    samples: int = 0

    def where(self, line: int | None = None) -> Where:
        """A place in the file."""
        return Where(file=self.file, line=line)

    def note(self, text: str) -> None:
        """Tell the user something, once."""
        if text in self.told:
            return
        self.told.add(text)
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)
        else:
            self.more_notes += 1

    def fail(self, what: str, *, line: int | None = None, remedy: str) -> FormatError:
        """The error for a text that cannot be read."""
        return FormatError(what, where=self.where(line), remedy=remedy)

    def add(
        self,
        label: str,
        samples: Iterable[Sample] = (),
        *,
        conditions: Mapping[str, str] | None = None,
        latencies: Iterable[Latency] = (),
        costs: Iterable[LinkCost] = (),
        readings: Iterable[Reading] = (),
        default: bool = True,
    ) -> None:
        """Add a group; one that holds nothing is passed over.

        Raises
        ------
        FormatError
            When there are more samples than any tool prints.
        """
        found = list(samples)
        self.samples += len(found)
        if self.samples > MAX_SAMPLES:
            raise self.fail(
                f"holds more than {MAX_SAMPLES} figures", remedy="give the output of one machine"
            )
        group = Group(
            label=label,
            conditions=dict(conditions or {}),
            measurements=Measurements.of(found, [self.file]),
            latencies=tuple(latencies),
            costs=tuple(costs),
            readings=tuple(readings),
            default=default,
        )
        if found or group.latencies or group.costs or group.readings:
            self.groups.append(group)

    def leave_out(self, unwanted: Callable[[Group], bool]) -> None:
        """Keep some groups from what a fit uses."""
        self.groups = [replace(g, default=g.default and not unwanted(g)) for g in self.groups]

    def prefer_one_run(self) -> None:
        """Where a text holds several runs of the same GPUs, use one.

        It is the one with the most samples, the last of equals; labels of the groups get the
        run's number.  Runs that have no endpoint in common but host memory are parts of one
        measurement and used together.
        """
        runs: dict[str, int] = {}
        endpoints: dict[str, set[str]] = {}
        for g in self.groups:
            run = g.conditions.get("run", "1")
            runs[run] = runs.get(run, 0) + len(g.measurements.samples) * g.default
            endpoints.setdefault(run, set()).update(
                name for name in g.measurements.endpoints if not _HOST_MEMORY.fullmatch(name)
            )
        apart = sum(map(len, endpoints.values())) == len(set().union(*endpoints.values()))
        if len(runs) < 2 or (apart and all(endpoints.values())):
            self.groups = [
                replace(g, conditions={k: v for k, v in g.conditions.items() if k != "run"})
                for g in self.groups
            ]
            return
        best = max(runs, key=lambda run: (runs[run], int(run)))
        self.groups = [
            replace(
                g,
                label=f"run {g.conditions.get('run', '1')}: {g.label}",
                default=g.default and g.conditions.get("run", "1") == best,
            )
            for g in self.groups
        ]
        self.note(f"holds {len(runs)} runs: run {best} is used; name another to use that")

    def done(self) -> Imported:
        """The result.

        Raises
        ------
        FormatError
            When nothing was found.
        """
        if not self.groups:
            raise self.fail(
                f"has no figures of {self.title}", remedy="give the whole output of the tool"
            )
        notes = list(self.notes)
        if self.more_notes:
            notes.append(f"and {self.more_notes} more notes of the same kinds")
        return Imported(
            kind=self.kind,
            title=self.title,
            groups=tuple(_with_unique_labels(self.groups)),
            notes=tuple(notes),
            source=self.file,
            devices={name: dict(known) for name, known in self.devices.items()},
            no_peer=tuple(self.no_peer),
            provenance=dict(self.provenance),
        )


def _renamed_group(group: Group, names: Mapping[str, str]) -> Group:
    return replace(
        group,
        measurements=Measurements.of(
            [
                msgspec.structs.replace(s, pattern=_renamed_pattern(s.pattern, names))
                for s in (*group.measurements.samples, *group.measurements.set_aside)
            ],
            group.measurements.sources,
            group.measurements.runs,
        ),
        latencies=tuple(
            replace(
                latency,
                source=names.get(latency.source, latency.source),
                destination=names.get(latency.destination, latency.destination),
            )
            for latency in group.latencies
        ),
        readings=tuple(
            r if r.pattern is None else replace(r, pattern=_renamed_pattern(r.pattern, names))
            for r in group.readings
        ),
    )


def _renamed_pattern(pattern: Pattern, names: Mapping[str, str]) -> Pattern:
    flows = tuple(
        replace(
            f,
            source=names.get(f.source, f.source),
            destination=names.get(f.destination, f.destination),
        )
        for f in pattern.flows
    )
    return Pattern(flows=flows, name=notation((f.source, f.destination) for f in flows))


def _with_unique_labels(groups: Sequence[Group]) -> list[Group]:
    """Groups of the same label get a number."""
    seen: dict[str, int] = {}
    result = []
    for g in groups:
        seen[g.label] = seen.get(g.label, 0) + 1
        n = seen[g.label]
        result.append(g if n == 1 else replace(g, label=f"{g.label} ({n})"))
    return result
