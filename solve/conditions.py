"""Under which conditions capacities were measured, and whether a transfer runs under the same.

The same pair of cards may pass 275 GB/s in a group of 8 processes, 54 in one of 16, and
105 over another transport (docs/references.md): capacities hold for the group, the
backend and the settings that they were measured with.  What either side does not say is
unknown and agrees with anything; what was not compared is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topocal.measure.provenance import KEYS, check_provenance, transport_settings
from topocal.measure.samples import Run
from topocal.topo.errors import InputError, one_line

__all__ = ["Conditions", "agreed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How messages were, or are to be, carried.

    Attributes
    ----------
    group_size
        Processes in the group; ``None`` when unknown.
    backend
        nccl, xccl, gloo …; ``None`` when unknown.
    settings
        Variables that steer the transport, such as ``NCCL_P2P_LEVEL``; ``None`` when unknown.
    more
        The other provenance keys that must agree (:data:`topocal.measure.provenance.KEYS`).
    """

    group_size: int | None = None
    backend: str | None = None
    settings: Mapping[str, str] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> Conditions:
        """From a provenance record: the group is as large as it has ranks."""
        own = ("ranks", "backend", "environment")
        return cls(
            group_size=len(provenance["ranks"]) if provenance.get("ranks") else None,
            backend=provenance.get("backend"),
            settings=provenance.get("environment"),
            more={k: v for k, v in provenance.items() if k not in own},
        )

    def completed(self, other: Conditions) -> Conditions:
        """With what ``other`` says where this says nothing.

        Raises
        ------
        InputError
            When they contradict each other.
        """
        contradictions = self._differences(other)
        if contradictions:
            words = [f"{what} {ours} and not {theirs}" for what, ours, theirs in contradictions]
            raise InputError(
                f"the calibration says that it had {' and '.join(words)}",
                remedy="leave out what it says itself",
            )
        settings = {**(other.settings or {}), **(self.settings or {})}
        return Conditions(
            group_size=other.group_size if self.group_size is None else self.group_size,
            backend=other.backend if self.backend is None else self.backend,
            settings=None if self.settings is None and other.settings is None else settings,
            more=self.more,
        )

    def require_same(self, transfer: Conditions, *, allow_stale: bool = False) -> tuple[str, ...]:
        """Check that a transfer runs under these conditions.

        Returns
        -------
        tuple of str
            What could not be compared, and what differs where that is allowed, in sentences.

        Raises
        ------
        InputError
            When they differ, unless ``allow_stale``.
        """
        found = self._differences(transfer)
        differ = ", ".join(
            f"{what} {ours} (the transfer has {theirs})" for what, ours, theirs in found
        )
        if found and not allow_stale:
            raise InputError(
                f"stale caps: they were calibrated with {differ}",
                remedy="calibrate under the transfer's conditions, or allow it (--allow-stale)",
                about=found,
            )
        notes = [f"stale caps, used all the same: they were calibrated with {differ}"] * bool(found)
        unknown = [
            what
            for what, ours, theirs in (
                ("group size", self.group_size, transfer.group_size),
                ("backend", self.backend, transfer.backend),
                ("settings", self.settings, transfer.settings or None),
            )
            if ours is None and theirs is not None
        ]
        if unknown:
            notes.append(
                f"the calibration does not say its {', '.join(unknown)}: not compared with the "
                "transfer's"
            )
        return tuple(notes)

    def _differences(self, other: Conditions) -> list[tuple[str, str, str]]:
        """What differs, with both values; what one side does not say agrees."""
        found = []
        if None not in (self.group_size, other.group_size) and self.group_size != other.group_size:
            found.append(
                ("group size", one_line(self.group_size), one_line(other.group_size)),
            )
        ours, theirs = self.backend, other.backend
        if None not in (ours, theirs) and str(ours).casefold() != str(theirs).casefold():
            found.append(("backend", one_line(ours), one_line(theirs)))
        if self.settings is not None:
            for name, value in sorted((other.settings or {}).items()):
                set_to, wanted = self.settings.get(name), _as_recorded(name, value)
                if set_to != wanted:
                    words = "not set" if set_to is None else one_line(set_to)
                    found.append((f"setting {one_line(name)}", words, one_line(wanted)))
        return found


def _as_recorded(name: str, value: str) -> str:
    """A setting as a calibration keeps it: without directories and addresses."""
    return transport_settings({name: value}).get(name, value)


def agreed(runs: Iterable[Run]) -> dict[str, Any]:
    """The conditions that all runs which state them agree on, in the order of the keys."""
    runs = list(runs)
    found = {}
    for name, key in KEYS.items():
        stated = [run.provenance[name] for run in runs if name in run.provenance]
        if key.must_agree and stated and all(_plain(s) == _plain(stated[0]) for s in stated):
            found[name] = _plain(stated[0])
    check_provenance(found)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
