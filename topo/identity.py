"""Whether two files may be about two machines, where numbers alone say that they are about one.

Every machine numbers its GPUs from 0 and its NUMA nodes from 0.  What files
matched by such numbers say of structure tells machines apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from topocal.topo.agreement import processors_agree, same_value
from topocal.topo.distances import compare_distances
from topocal.topo.match import Match
from topocal.topo.resource import NodeKind, PathClass
from topocal.topo.view import View

__all__ = ["Doubt", "doubt_identity"]

_ENOUGH = 2
"""One thing that differs may be an error, or a job's view of its node; two are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What says that two files are about two machines.

    Attributes
    ----------
    reasons
        What differs, each a clause.
    certain
        Whether that is enough to refuse them.
    """

    reasons: tuple[str, ...]
    certain: bool


def doubt_identity(first: View, second: View, match: Match) -> Doubt | None:
    """What speaks against matched files being about one machine; ``None`` when nothing does.

    Devices that carry the same PCI addresses or names are taken for the same, unless
    most of the addresses are others, or most of the devices.
    """
    how = match.how.get(NodeKind.GPU, match.how.get(NodeKind.NIC, "sockets"))
    sure = how in ("address", "name") and not _mostly_elsewhere(first, second, match)
    if sure and not _are_others(first, second, match):
        return None
    reasons = tuple(
        reason
        for rule in (_addresses, _models, _counts, _processors, _numa_nodes, _classes, _gpu_links)
        for reason in rule(first, second, match)
    )
    if not reasons:
        return None
    return Doubt(reasons=reasons, certain=how == "sockets" or len(reasons) >= _ENOUGH)


def _mostly_elsewhere(first: View, second: View, match: Match) -> bool:
    """Whether each file has devices at addresses of its own, more than they share."""
    for kind in (NodeKind.GPU, NodeKind.NIC):
        here = {key for n in first.of_kind(kind) if (key := first.key(n))}
        there = {key for n in second.of_kind(kind) if (key := second.key(n))}
        if here and there:
            shared = len(here & there)
            return shared < len(here - there) and shared < len(there - here)
    return False


def _addresses(first: View, second: View, match: Match) -> Iterator[str]:
    if _mostly_elsewhere(first, second, match):
        yield "most of their devices are at other PCI addresses"


def _are_others(first: View, second: View, match: Match) -> bool:
    """Whether most of the matched GPUs are of another model, by name or PCI device id."""
    odd = compared = 0
    for a, b in match.endpoints.items():
        if first.graph.nodes[a]["kind"] is not NodeKind.GPU:
            continue
        said = [(w, first.get(a, w), second.get(b, w)) for w in ("model", "device")]
        both = [(word, here, there) for word, here, there in said if here and there]
        compared += bool(both)
        odd += any(not same_value(*each) for each in both)
    return 2 * odd > compared


def _models(first: View, second: View, match: Match) -> Iterator[str]:
    if _are_others(first, second, match):
        yield "most of their GPUs are of other models"


def _counts(first: View, second: View, match: Match) -> Iterator[str]:
    """Files that show how GPUs are connected show all of them; lists may show one."""
    here, there = (len(view.of_kind(NodeKind.GPU)) for view in (first, second))
    listed = first.is_list or second.is_list or bool(match.parts)
    if match.how.get(NodeKind.GPU) in ("number", "order") and here != there and not listed:
        yield f"one has {here} GPUs and the other {there}"


def _processors(first: View, second: View, match: Match) -> Iterator[str]:
    odd = compared = 0
    for a, b in match.places.items():
        here, there = first.get(a, "cpu_list"), second.get(b, "cpu_list")
        if here and there:
            whole = (first.lists_processors(a), second.lists_processors(b))
            compared += 1
            odd += not processors_agree(here, there, whole=whole)
    # Of two machines' first nodes, one often has the processors of the other and more.
    if odd and 2 * odd >= compared:
        yield "their NUMA nodes have other processors"


def _numa_nodes(first: View, second: View, match: Match) -> Iterator[str]:
    odd = compared = 0
    for a, b in match.endpoints.items():
        here, there = first.get(a, "numa"), second.get(b, "numa")
        if here is not None and there is not None:
            compared += 1
            odd += here != there
    if 2 * odd > compared:
        yield "most of their devices are on other NUMA nodes"
    for view, other in ((first, second), (second, first)):
        if view.has_devices or not view.of_kind(NodeKind.CPU):
            continue
        sockets = other.of_kind(NodeKind.SOCKET)
        named = {n for s in sockets if (n := other.get(s, "numa")) is not None}
        known = {view.get(s, "numa") for s in view.of_kind(NodeKind.SOCKET)}
        if missing := sorted(named - known):
            yield f"NUMA node {missing[0]} is not in {view.name}"


def _classes(first: View, second: View, match: Match) -> Iterator[str]:
    """How far apart pairs are, but for those that a socket hop parts in both."""
    found = compare_distances(first, second, match)
    if found is None:
        return
    far = (found.here == PathClass.SYS) & (found.there == PathClass.SYS)
    if 2 * np.count_nonzero(found.odd) > np.count_nonzero(found.told & ~far):
        yield "most of their devices are differently far apart"


def _gpu_links(first: View, second: View, match: Match) -> Iterator[str]:
    odd = compared = 0
    for a, b in match.endpoints.items():
        here, there = first.fabric_count.get(a), second.fabric_count.get(b)
        if here is not None and there is not None:
            compared += 1
            odd += here != there
    if 2 * odd > compared:
        yield "their GPUs have other numbers of GPU links"
