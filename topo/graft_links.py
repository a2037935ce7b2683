"""Filling in the links of one topology from those of another: speeds, widths, capacities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import networkx as nx

from topocal.topo.nominal import SOURCES
from topocal.topo.path_class import FABRIC
from topocal.topo.readers.pci import parse_speed, parse_width
from topocal.topo.resource import LinkKind, NodeKind, Resource
from topocal.topo.view import View

__all__ = ["LinkPair", "fill_links", "fill_nvlinks", "pair_links", "share_links"]

_OWN: Final = frozenset(("kind", "nominal_Bps", "uses", "reverse", "speed_text", "path_class"))
"""Attributes that are not filled in one by one."""
_TOGETHER: Final = ("generation", "width", "count")
"""Attributes that make a capacity: half of one file and half of another would make a link
that neither describes."""

_RAW: Final = 1.08
"""``nvidia-smi nvlink -s`` prints line rates: 25.78 and 26.56 GB/s of links that pass 25."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPair:
    """One direction of a link in both topologies: tail, head and id in each."""

    here: tuple[str, str, str]
    there: tuple[str, str, str]
    upward: bool


def pair_links(base: View, other: View, pairs: Mapping[str, str]) -> list[LinkPair]:
    """Links above devices that are one thing, between sockets, and between GPUs.

    Parameters
    ----------
    pairs
        Nodes of ``base`` to those of ``other`` that are the same thing.
    """
    found: list[LinkPair] = []
    for ours, theirs in pairs.items():
        here, there = base.above.get(ours), other.above.get(theirs)
        if here is None or there is None or ours not in base.uplink or theirs not in other.uplink:
            continue
        found += _both_ways(base, (here[0], ours, here[1]), other, (there[0], theirs, there[1]))
    for tail, head, key, data in base.graph.edges(keys=True, data=True):
        kind, a, b = data["kind"], pairs.get(tail), pairs.get(head)
        if kind is LinkKind.SMP and a and b:
            links = _of_kind(other.graph, a, b, kind)[:1]
            found += [LinkPair(here=(tail, head, key), there=(a, b, k), upward=True) for k in links]
        elif kind in FABRIC:
            found += _fabric_pairs(base, (tail, head, key), other, pairs)
    return found


def _both_ways(
    base: View, here: tuple[str, str, str], other: View, there: tuple[str, str, str]
) -> Iterator[LinkPair]:
    yield LinkPair(here=here, there=there, upward=False)
    back = base.graph.edges[here].get("reverse")
    back_there = other.graph.edges[there].get("reverse")
    up, up_there = (here[1], here[0], back), (there[1], there[0], back_there)
    if base.graph.has_edge(*up) and other.graph.has_edge(*up_there):
        yield LinkPair(here=up, there=up_there, upward=True)


def _of_kind(graph: nx.MultiDiGraph, tail: str, head: str, kind: LinkKind) -> list[str]:
    links = graph.get_edge_data(tail, head) or {}
    return [key for key, data in links.items() if data["kind"] is kind]


def _fabric_pairs(
    base: View, link: tuple[str, str, str], other: View, pairs: Mapping[str, str]
) -> Iterator[LinkPair]:
    """A GPU link of the same kind between the same GPUs, or between a GPU and its switch."""
    tail, head, _ = link
    kind = base.graph.edges[link]["kind"]
    ends = []
    for node, far in ((tail, head), (head, tail)):
        if node in pairs:
            ends.append([pairs[node]])
        elif base.graph.nodes[node]["kind"] is NodeKind.NVSWITCH and far in pairs:
            near = other.graph.successors(pairs[far])
            ends.append([n for n in near if other.graph.nodes[n]["kind"] is NodeKind.NVSWITCH])
        else:
            return
    if len(ends[0]) != 1 or len(ends[1]) != 1:
        return
    a, b = ends[0][0], ends[1][0]
    mine, theirs = _of_kind(base.graph, tail, head, kind), _of_kind(other.graph, a, b, kind)
    if len(mine) == len(theirs):
        yield LinkPair(here=link, there=(a, b, theirs[mine.index(link[2])]), upward=True)


def fill_links(
    graph: nx.MultiDiGraph,
    resources: MutableMapping[str, Resource],
    other: View,
    links: list[LinkPair],
) -> None:
    """Fill in what the first topology leaves open; nothing that it states is replaced."""
    users = _users(graph)
    for pair in links:
        mine, more = graph.edges[pair.here], other.graph.edges[pair.there]
        whole = mine.get("nominal_Bps") is None and not _at_odds(mine, more)
        for word, value in more.items():
            if word in _OWN or value is None or mine.get(word) is not None:
                continue
            if whole or word not in _TOGETHER:
                mine[word] = value
        if not whole or more.get("nominal_Bps") is None:
            continue
        mine.pop("speed_text", None)
        table = other.topology.resources
        source = next((table[r].source for r, _ in more["uses"] if table[r].source), "")
        _set_nominal(graph, resources, users, pair.here, more["nominal_Bps"], source)


def _set_nominal(
    graph: nx.MultiDiGraph,
    resources: MutableMapping[str, Resource],
    users: Mapping[str, list[tuple[str, str, str]]],
    link: tuple[str, str, str],
    rate: float,
    source: str,
) -> None:
    """Give a link its capacity, and with it its resource and whatever else is that link.

    Two ports of one card are two links on one resource.
    """
    mine = graph.edges[link]
    mine["nominal_Bps"] = rate
    own = mine["uses"][0][0] if mine["uses"] else None
    if own is None or any(graph.edges[user]["uses"][0][0] != own for user in users[own]):
        return
    old = resources[own]
    if old.nominal_Bps is None:
        resources[own] = replace(old, nominal_Bps=rate, source=old.source or source)
    for user in users[own]:
        data = graph.edges[user]
        if data.get("nominal_Bps") is None and data["kind"] is mine["kind"]:
            data["nominal_Bps"] = resources[own].nominal_Bps
            for word in _TOGETHER:
                if data.get(word) is None and mine.get(word) is not None:
                    data[word] = mine[word]
            data.pop("speed_text", None)


def _users(graph: nx.MultiDiGraph) -> dict[str, list[tuple[str, str, str]]]:
    """Links that load each resource."""
    found: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for tail, head, key, uses in graph.edges(keys=True, data="uses"):
        for resource, _ in uses:
            found[resource].append((tail, head, key))
    return found


def _at_odds(mine: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    """Whether two descriptions of a link cannot be joined.

    They differ, or the second repeats figures that the first one's reader had
    reason not to believe (an emulated bridge) and kept as text only.
    """
    for word in _TOGETHER:
        if None not in (mine.get(word), more.get(word)) and mine[word] != more[word]:
            return True
    speed, _, width = str(mine.get("speed_text") or "").rpartition(" x")
    doubted = (parse_speed(speed), parse_width(width))
    return None not in doubted and doubted == (more.get("generation"), more.get("width"))


def share_links(
    graph: nx.MultiDiGraph,
    resources: MutableMapping[str, Resource],
    other: View,
    links: list[LinkPair],
) -> None:
    """Let links load one resource that the other file says are one link: the ports of a card."""
    kept: dict[tuple[str, bool], str] = {}
    for pair in links:
        mine, more = graph.edges[pair.here], other.graph.edges[pair.there]
        lower = pair.here[0] if pair.upward else pair.here[1]
        if mine["kind"] is not LinkKind.PCIE or not graph.nodes[lower]["kind"].is_endpoint:
            continue
        if not mine["uses"] or not more["uses"]:
            continue
        own = mine["uses"][0][0]
        shared = kept.setdefault((more["uses"][0][0], pair.upward), own)
        one, two = resources[shared], resources[own]
        agree = one.sharing is two.sharing and one.nominal_Bps == two.nominal_Bps
        if shared != own and agree:
            mine["uses"] = ((shared, mine["uses"][0][1]), *mine["uses"][1:])
            used = any(own == r for _, _, uses in graph.edges(data="uses") for r, _ in uses)
            if not used and all(use.resource != own for use in graph.graph["uses"]):
                del resources[own]


def fill_nvlinks(graph: nx.MultiDiGraph, resources: MutableMapping[str, Resource]) -> None:
    """Capacity of NVLinks whose number one file tells and whose rate another (``nvlink -s``)."""
    users = _users(graph)
    for tail, head, key, data in list(graph.edges(keys=True, data=True)):
        if data["kind"] is not LinkKind.NVLINK or data.get("nominal_Bps") is not None:
            continue
        rates = {graph.nodes[node].get("nvlink_Bps") for node in (tail, head)} - {None}
        count = data.get("count")
        if len(rates) == 1 and isinstance(count, int) and count > 0:
            rate, source = _payload(rates.pop())
            _set_nominal(graph, resources, users, (tail, head, key), rate * count, source)


def _payload(rate: float) -> tuple[float, str]:
    """What an NVLink of a line rate passes, and which document says so; else the rate itself."""
    constants = [c for key, c in SOURCES.items() if key.startswith("nvlink ")]
    fits = [c for c in constants if c.value / 1.03 <= rate <= c.value * _RAW]
    best = max(fits, key=lambda c: c.value, default=None)
    return (rate, "nvidia-smi nvlink -s") if best is None else (best.value, best.source)
