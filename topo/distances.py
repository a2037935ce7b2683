"""How far apart the same pairs of devices are, in one file and in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.match import Match
from topocal.topo.resource import PathClass
from topocal.topo.view import View

__all__ = ["Distances", "compare_distances"]

_MOST_ENDPOINTS: Final = 1_000
"""Pairs are compared up to so many devices: beyond, a table of them is too large."""

_NOT_OF_THE_TREE: Final = (
    PathClass.LOC,
    PathClass.NVL,
    PathClass.NVB,
    PathClass.C2C,
    PathClass.NET,
    PathClass.DIS,
)
"""Classes that say nothing about the PCIe tree, which the other file may show alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """Path classes of the matched devices' pairs.

    Attributes
    ----------
    endpoints
        Names of n devices in the first file.
    here, there
        Shape (n, n), codes in either file; ``DIS`` where it does not tell.
    told
        Shape (n, n), each pair once: whether both files speak of the same thing.
    odd
        Shape (n, n), each pair once: where they do and disagree.
    """

    endpoints: tuple[str, ...]
    here: NDArray[np.int8]
    there: NDArray[np.int8]
    told: NDArray[np.bool_]
    odd: NDArray[np.bool_]


def compare_distances(first: View, second: View, match: Match) -> Distances | None:
    """Compare the classes of all pairs; ``None`` for fewer than two devices, or too many."""
    endpoints = tuple(match.endpoints)
    if not 2 <= len(endpoints) <= _MOST_ENDPOINTS:
        return None
    here = first.path_classes(endpoints)
    there = second.path_classes([match.endpoints[node] for node in endpoints])
    told = np.tri(len(endpoints), k=-1, dtype=bool)
    told &= (here != PathClass.DIS) & (there != PathClass.DIS)
    aside = np.isin(here, _NOT_OF_THE_TREE) | np.isin(there, _NOT_OF_THE_TREE)
    linked = (here == PathClass.NVL) | (there == PathClass.NVL)
    both_show_fabric = bool(first.fabric_links) and bool(second.fabric_links)
    told &= ~aside | (linked & both_show_fabric)
    return Distances(
        endpoints=endpoints,
        here=here,
        there=there,
        told=told,
        odd=told & (_distance(here) != _distance(there)),
    )


def _distance(code: NDArray[np.int8]) -> NDArray[np.int8]:
    """Codes with one for one distance: NCCL knows no NODE and calls it PHB."""
    return np.where(code == PathClass.NODE, np.int8(PathClass.PHB), code)
