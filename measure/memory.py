"""Whether the buffers fit, before any is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from topocal.measure.orders import Surveyed
from topocal.topo.errors import InputError
from topocal.topo.units import format_bytes

__all__ = ["refuse_too_much"]

_MOST_OF_FREE: Final = 0.8
"""The rest is for the backend's own buffers, and for whoever else is there."""


def refuse_too_much(
    needs: Mapping[int, int], surveys: Mapping[int, Surveyed], names: Sequence[str]
) -> None:
    """Refuse buffers that do not fit where they are to lie.

    Parameters
    ----------
    needs
        Bytes by rank; ranks of one host share its memory.
    surveys
        What is free at each rank, and what it holds already.

    Raises
    ------
    InputError
        With what is needed, what is free, and where.
    """
    shared: dict[str, list[int]] = {}
    for rank in (r for r, need in needs.items() if need):
        shared.setdefault(surveys[rank].memory, []).append(rank)
    for ranks in shared.values():
        needed = sum(needs[r] for r in ranks)
        held = sum(surveys[r].held_bytes for r in ranks)
        free = min(surveys[r].free_bytes for r in ranks) + held
        if needed > _MOST_OF_FREE * free:
            first = min(ranks)
            who = f"rank {first} ({names[first]})"
            if len(ranks) > 1:
                who += f" and {len(ranks) - 1} more on its host"
            raise InputError(
                f"{who} need {format_bytes(needed)} of buffers, and {format_bytes(free)} are free",
                remedy="plan smaller sizes (topocal plan --sizes), or start fewer ranks there",
            )
