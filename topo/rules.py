"""What links and endpoints load, as arrays: the rules by which flows turn into loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["Rules"]

_ALL_CLASSES = -1
"""A mask with every bit set."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Loads by link, and by the endpoints of a flow (:class:`topocal.topo.resource.Use`).

    Attributes
    ----------
    link_ptr, link_column, link_weight
        Link k loads ``link_column[link_ptr[k]:link_ptr[k + 1]]``, with these weights.
    source_ptr, source_rule
        By node number, the rules that name it as a source.
    destination_ptr, destination_rule
        The same for rules that name destinations and no sources.
    everywhere
        Rules that name neither.
    column, weight
        By rule: what it loads, and how much.
    classes
        By rule: bit c is set where it holds for path class c.
    group
        By rule: which group of destinations it is limited to; -1 where to none.
    ends_ptr, ends
        By group: its endpoints, ascending.
    """

    link_ptr: NDArray[np.int64]
    link_column: NDArray[np.int32]
    link_weight: NDArray[np.float64]
    source_ptr: NDArray[np.int64]
    source_rule: NDArray[np.int32]
    destination_ptr: NDArray[np.int64]
    destination_rule: NDArray[np.int32]
    everywhere: NDArray[np.int32]
    column: NDArray[np.int32]
    weight: NDArray[np.float64]
    classes: NDArray[np.int64]
    group: NDArray[np.int32]
    ends_ptr: NDArray[np.int64]
    ends: NDArray[np.int32]

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All of them, in this order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def most(
        self, source: NDArray[np.int64], destination: NDArray[np.int64], hops: NDArray[np.int64]
    ) -> int:
        """A number of loads that pairs cannot exceed together, given the links of each."""
        by_link = int(np.diff(self.link_ptr).max(initial=0)) * int(hops.sum())
        by_source = np.diff(self.source_ptr)[source].sum()
        by_destination = np.diff(self.destination_ptr)[destination].sum()
        return by_link + int(by_source + by_destination) + len(self.everywhere) * len(source)

    @classmethod
    def of(cls, topology: Topology) -> Rules:
        """The rules of a topology; columns are its resources in order."""
        columns = {name: k for k, name in enumerate(topology.resources)}
        number = topology.router.number
        links = [topology.links[name].uses for name in topology.router.links]
        by_source: list[list[int]] = [[] for _ in number]
        by_destination: list[list[int]] = [[] for _ in number]
        everywhere: list[int] = []
        groups: list[list[int]] = []
        classes: list[int] = []
        group: list[int] = []
        for rule, use in enumerate(topology.uses):
            mask = _ALL_CLASSES
            if use.path_classes is not None:
                mask = sum({1 << int(code) for code in use.path_classes})
            classes.append(mask)
            group.append(-1)
            if use.sources is not None:
                for name in set(use.sources):
                    by_source[number[name]].append(rule)
                if use.destinations is not None:
                    group[-1] = len(groups)
                    groups.append(sorted({number[name] for name in use.destinations}))
            elif use.destinations is not None:
                for name in set(use.destinations):
                    by_destination[number[name]].append(rule)
            else:
                everywhere.append(rule)
        link_ptr, link_column = _joined([[columns[r] for r, _ in uses] for uses in links])
        source_ptr, source_rule = _joined(by_source)
        destination_ptr, destination_rule = _joined(by_destination)
        ends_ptr, ends = _joined(groups)
        return cls(
            link_ptr=link_ptr,
            link_column=link_column,
            link_weight=np.array([w for uses in links for _, w in uses], dtype=np.float64),
            source_ptr=source_ptr,
            source_rule=source_rule,
            destination_ptr=destination_ptr,
            destination_rule=destination_rule,
            everywhere=np.array(everywhere, dtype=np.int32),
            column=np.array([columns[use.resource] for use in topology.uses], dtype=np.int32),
            weight=np.array([use.weight for use in topology.uses], dtype=np.float64),
            classes=np.array(classes, dtype=np.int64),
            group=np.array(group, dtype=np.int32),
            ends_ptr=ends_ptr,
            ends=ends,
        )


def _joined(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each list begins, and all of them in a row."""
    ptr = np.concatenate(([0], np.cumsum([len(one) for one in lists], dtype=np.int64)))
    return ptr, np.array([k for one in lists for k in one], dtype=np.int32)
