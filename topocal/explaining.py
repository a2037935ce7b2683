"""Files of any kind as one question: what was measured, on which machine, and what is passed over.

Data flows so: each file is told by its content, and one paste may be both and hold what several
tools printed; topologies are merged, measurements imported table by table.  Then what a tool did
not say is made out where that is safe (a table of sums of both directions, cards that all call
themselves the first), and the tables are put into *parts*: figures of one machine in one
setting, which can be fitted together.  What belongs to another machine, or contradicts the rest
throughout, is a part of its own.  Everything that is made out, left out or put apart is told.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal

from topocal.explaining_tables import (
    Piece,
    as_both_ways,
    common_conditions,
    numbered_by_file,
    preferred,
    put_apart,
)

if TYPE_CHECKING:
    from pathlib import Path

    from topocal.measure.importers.imported import Imported
    from topocal.measure.samples import Measurements, Sample
    from topocal.solve.settings import Setting
    from topocal.topo.topology import Topology

__all__ = ["Inputs", "Part", "sort_inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Figures of one machine in one setting.

    Attributes
    ----------
    title
        The files, and the machine where a table tells several apart.
    files
        The files.
    measurements
        The samples.
    machine
        The topology; ``None`` where none describes what was measured.
    no_peer
        Pairs of which a tool said that they have no peer access.
    """

    title: str
    files: tuple[str, ...]
    measurements: Measurements
    machine: Topology | None
    no_peer: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What there is to explain.

    Attributes
    ----------
    parts
        The figures, those on the topology first, then those with most; none where no figure
        is a pattern's time.
    settings
        All tables of all files, with their conditions.
    machine
        The topology of those files that describe one; ``None`` where none does.
    notes
        What was made out, passed over and put apart, in sentences.
    unsettled
        What else is to be known of a model of these figures; explaining them tells it better.
    """

    parts: tuple[Part, ...]
    settings: tuple[Setting, ...]
    machine: Topology | None
    notes: tuple[str, ...]
    unsettled: tuple[str, ...] = ()

    def whole(self) -> tuple[Part, tuple[str, ...]]:
        """What one model is of, and all notes.

        Where the same files hold several parts it is the first, and the notes say what it
        leaves.

        Raises
        ------
        InputError
            When there is no part, or files are of several machines or settings.
        """
        from topocal.topo.errors import InputError

        if not self.parts:
            reasons = [f"{s.source}: {r.reason}" for s in self.settings for r in s.readings]
            if reasons:
                why = f": {reasons[0]}"
            else:
                why = ", only what says how the machine is wired" if self.machine else ""
            raise InputError(
                f"no figure that a fit can use{why}",
                remedy="give a file with rates of pairs or of patterns",
            )
        first, *others = self.parts
        if any(part.files != first.files for part in others):
            titles = "; ".join(part.title for part in self.parts)
            raise InputError(
                f"the figures are of several machines or settings: {titles}",
                remedy="give the files of one",
            )
        left = [f"{first.title} is used; not {part.title}" for part in others]
        return first, (*self.notes, *self.unsettled, *left)


@dataclass(slots=True, kw_only=True)
class _Table:
    """What one tool printed, on its way: one file may hold several."""

    name: str
    imported: Imported | None
    measurements: Measurements | None
    notes: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)


def sort_inputs(
    files: Sequence[Path], topology: str | None = None, *, known: Topology | None = None
) -> Inputs:
    """Tell measurements from topologies, and make parts of the one and one of the other.

    Parameters
    ----------
    topology
        A further topology file, or a reference machine.
    known
        The machine, whatever the files say of it: a fitted one.

    Raises
    ------
    InputError
        When a file is neither, is damaged, or is given twice.
    """
    from topocal.machine import find_topology
    from topocal.topo.merge import merge

    machines: list[Topology] = [] if topology is None else [find_topology(topology)]
    tables: list[_Table] = []
    passed_over: list[str] = []
    seen: dict[bytes, str] = {}
    for path, name in zip(files, _short(files), strict=True):
        passed_over += _read(path, name, machines, tables, seen)
    machine = known or (
        machines[0] if len(machines) == 1 else merge(machines).topology if machines else None
    )
    notes = [*passed_over, *_as_numbered(tables, machine)]
    notes += numbered_by_file(tables)
    untitled = [(table, table.imported) for table in tables]
    notes += as_both_ways(tables)
    for table, before in untitled:
        table.settings = _settings(table)
        if table.imported is not before:
            table.unsettled = [n for n in table.unsettled if "has no title" not in n]
    parts, more = _parts(tables, machine)
    return Inputs(
        parts=tuple(parts),
        settings=tuple(s for t in tables for s in t.settings),
        machine=machine,
        notes=tuple(dict.fromkeys([*notes, *_of_files(tables, "notes"), *more])),
        unsettled=tuple(_of_files(tables, "unsettled")),
    )


def _as_numbered(tables: Sequence[_Table], machine: Topology | None) -> list[str]:
    """Give each tool's GPUs the topology's numbers, and say where they differ."""
    from topocal.same_gpus import numbered_as_machine

    notes = []
    for table in tables:
        if table.imported is not None and machine is not None:
            table.imported, told = numbered_as_machine(table.imported, machine)
            notes += told
    return notes


def _of_files(tables: Sequence[_Table], kind: Literal["notes", "unsettled"]) -> list[str]:
    """Notes of importers, each once, with the files that it is of where there are several."""
    by_text: dict[str, list[str]] = {}
    for table in tables:
        for note in table.notes if kind == "notes" else table.unsettled:
            by_text.setdefault(note, []).append(table.name)
    if len({t.name for t in tables}) < 2:
        return list(by_text)
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {text}"
        for text, names in by_text.items()
    ]


def _short(files: Sequence[Path]) -> list[str]:
    """File names without their folders where that tells them apart."""
    from topocal.topo.errors import file_words

    names = [file_words(PurePath(f).name) for f in files]
    return names if len(set(names)) == len(names) else [file_words(f) for f in files]


def _read(
    path: Path,
    name: str,
    machines: list[Topology],
    tables: list[_Table],
    seen: dict[bytes, str],
) -> list[str]:
    """One file, to where it belongs (one paste may be both); and what is passed over of it."""
    from topocal.measure.importers.registry import import_all, sniff_or_none
    from topocal.measure.load import parse_measurements
    from topocal.topo.errors import FormatError, InputError, TopologyError, Where, file_words
    from topocal.topo.readers.archive import is_tar
    from topocal.topo.readers.reader import decode_text
    from topocal.topo.readers.registry import is_topology, parse_any, parse_content

    content, file = _unpacked(path), file_words(path)
    if is_tar(content):
        machines.append(parse_content(content, file=file))
        return []
    text = decode_text(content, file=file)
    is_measured = sniff_or_none(text) is not None
    passed_over = []
    try:
        machines.append(parse_any(text, file=file))
        is_only_topology = not is_measured
    except (FormatError, TopologyError) as error:
        # Where it is no measurement either, the loader says what is wrong with it.
        is_only_topology = False
        if is_measured and is_topology(text):
            passed_over.append(f"{name}: no topology could be read in it: {error.what}")
    if is_only_topology:
        return passed_over
    digest = hashlib.sha256(content).digest()
    if digest in seen:
        raise InputError(
            f"is the same as {seen[digest]}; its samples would count twice",
            where=Where(file=file),
            remedy="name it once",
        )
    seen[digest] = file
    if not is_measured:
        measurements = parse_measurements(content, file=file)
        tables.append(_Table(name=name, imported=None, measurements=measurements))
        return passed_over
    for imported in import_all(text, file=file):
        notes = [n for n in imported.notes if not _TOLD_OTHERWISE.search(n)]
        table = _Table(name=name, imported=imported, measurements=None, notes=notes)
        table.unsettled = [n for n in imported.notes if _UNSETTLED.search(n)]
        tables.append(table)
    return passed_over


_UNSETTLED: Final = re.compile(r"has no title|have no (peer )?access|contradicts itself")
"""Notes of importers that explaining tells better: all tables are compared here."""

_TOLD_OTHERWISE: Final = re.compile(
    rf"{_UNSETTLED.pattern}|is used, (with|not)|^with peer access copies between GPUs run at"
)
"""Those, and the choices that are made anew here."""


def _unpacked(path: Path) -> bytes:
    """A file's bytes; gzip is unpacked.

    Raises
    ------
    InputError
        When it cannot be read, or is too large.
    """
    from topocal.topo.errors import file_words
    from topocal.topo.files import read_limited
    from topocal.topo.readers.archive import inflate
    from topocal.topo.readers.reader import MAX_FILE_BYTES

    content = read_limited(path, MAX_FILE_BYTES + 1)
    return inflate(content, file=file_words(path)) if len(content) <= MAX_FILE_BYTES else content


def _settings(table: _Table) -> list[Setting]:
    from topocal.solve.settings import Setting, rates_of, settings_of

    if table.imported is not None:
        return settings_of(table.imported, table.name)
    assert table.measurements is not None
    return [
        Setting(
            source=table.name,
            label="samples",
            conditions={},
            rates=rates_of(table.measurements),
            measurements=table.measurements,
        )
    ]


def _parts(tables: Sequence[_Table], machine: Topology | None) -> tuple[list[Part], list[str]]:
    """The figures that can be fitted together, and what is told of the others."""
    from topocal.measure.merging import merge

    pieces: list[Piece] = []
    notes: list[str] = []
    for table in tables:
        mine = table.settings
        if table.imported is None:
            chosen = [("", s.measurements) for s in mine]
        else:
            chosen = preferred(mine, table.imported)
            if not chosen:
                several = sum(t.name == table.name for t in tables) > 1
                what = f" in {table.imported.title}" if several else ""
                notes.append(
                    f"{table.name}: no figure that a fit can use{what}{table.imported.why_not()}"
                )
        pieces += [
            Piece(
                file=table.name,
                machine=own,
                conditions=common_conditions(mine, measurements),
                measurements=measurements,
            )
            for own, measurements in chosen
        ]
    groups = put_apart(pieces)
    parts = []
    for group in groups:
        files = list(dict.fromkeys(p.file for p in group))
        own = ", ".join(dict.fromkeys(p.machine for p in group if p.machine))
        no_peer = frozenset(
            p for t in tables if t.name in files for s in t.settings for p in s.no_peer
        )
        split, more = _on_machine(merge([p.measurements for p in group]), machine)
        notes += more
        for what, measurements, shown in split:
            words = ", ".join(word for word in (own, what) if word)
            parts.append(
                Part(
                    title=f"{', '.join(files)} ({words})" if words else ", ".join(files),
                    files=tuple(files),
                    measurements=measurements,
                    machine=shown,
                    no_peer=no_peer,
                )
            )
    parts.sort(
        key=lambda part: (
            machine is not None and part.machine is None,
            -len({frozenset(s.pattern.pairs) for s in part.measurements.samples}),
        )
    )
    if len({p.file for p in pieces}) > 1 and len(groups) > 1:
        notes.append(
            "the files do not agree on what they both hold, or are of several machines: "
            f"{len(groups)} parts are explained one by one"
        )
    return parts, notes


def _on_machine(
    measurements: Measurements, machine: Topology | None
) -> tuple[list[tuple[str, Measurements, Topology | None]], list[str]]:
    """What can be fitted on the topology, and apart from it what leads to host memory that the
    topology does not show: each with a word where it is not all there is, and its topology.
    """
    from topocal.solve.words import is_host, ranges

    known = set(machine.endpoints) if machine is not None else set(measurements.endpoints)
    absent = {n for n in measurements.endpoints if n not in known and is_host(n)}
    if not absent:
        return [("", measurements, machine)], []

    def with_host(samples: Sequence[Sample], *, wanted: bool) -> tuple[Sample, ...]:
        return tuple(
            s
            for s in samples
            if any(n in absent for pair in s.pattern.pairs for n in pair) == wanted
        )

    def part(*, wanted: bool) -> Measurements:
        samples = with_host(measurements.samples, wanted=wanted)
        return replace(
            measurements,
            samples=samples,
            set_aside=with_host(measurements.set_aside, wanted=wanted),
        )

    inside, outside = part(wanted=False), part(wanted=True)
    count = len(outside.samples)
    names = ranges(absent)
    if not inside.samples:
        told = f"the topology does not show {names}, to which all figures lead: it is not used"
        return [("", measurements, None)], [told]
    return (
        [("", inside, machine), (f"with {names}", outside, None)],
        [
            f"the topology does not show {names}: {count} figure{'s' * (count != 1)} to and from "
            "there stand apart"
        ],
    )
