"""Filling in the links of one topology from those of another: speeds, widths, capacities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

import networkx as nx

from topocal.topo.nominal import SOURCES
from topocal.topo.readers.pci import parse_speed, parse_width
from topocal.topo.resource import LinkKind, Resource
from topocal.topo.view import View

__all__ = [
    "LinkPair",
    "fill_links",
    "fill_nvlinks",
    "level_ports",
    "pair_links",
    "share_links",
]

_OWN: Final = frozenset(("kind", "nominal_Bps", "uses", "reverse", "speed_text", "path_class"))
"""Attributes that are not filled in one by one."""
_TOGETHER: Final = ("generation", "width", "count")
"""Attributes that make a capacity: half of one file and half of another would make a link
that neither describes."""

_RAW: Final = 1.08
"""``nvidia-smi nvlink -s`` prints line rates: 25.78 and 26.56 GB/s of links that pass 25."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPair:
    """One direction of a link in both topologies.

    Attributes
    ----------
    here, there
        Tail, head and id in each.
    lower
        The end in the first that hangs off the other; empty where neither does.
    """

    here: tuple[str, str, str]
    there: tuple[str, str, str]
    lower: str = ""

    @property
    def upward(self) -> bool:
        """Whether it leads up from the lower end."""
        return self.here[0] == self.lower


def pair_links(base: View, other: View, pairs: Mapping[str, str]) -> list[LinkPair]:
    """Links that are one: of one kind, and between nodes that are one thing, or above one.

    Parameters
    ----------
    pairs
        Nodes of ``base`` to those of ``other`` that are the same thing.
    """
    found: dict[str, LinkPair] = {}
    for tail, head, key, data in base.graph.edges(keys=True, data=True):
        a, b = pairs.get(tail), pairs.get(head)
        if a is None or b is None:
            continue
        parallel = _of_kind(base.graph, tail, head, data["kind"])
        others = _of_kind(other.graph, a, b, data["kind"])
        if len(parallel) == len(others):
            there = (a, b, others[parallel.index(key)])
            lower = next((n for n, up in ((head, tail), (tail, head)) if _hangs(base, n, up)), "")
            found[key] = LinkPair(here=(tail, head, key), there=there, lower=lower)
    for ours, theirs in pairs.items():
        up, up_there = base.above.get(ours), other.above.get(theirs)
        if not up or not up_there or ours not in base.uplink or theirs not in other.uplink:
            continue
        down = (up[0], ours, up[1])
        for pair in _both_ways(base, down, other, (up_there[0], theirs, up_there[1])):
            found.setdefault(pair.here[2], pair)
    return list(found.values())


def _hangs(view: View, node: str, upper: str) -> bool:
    return view.above.get(node, ("", ""))[0] == upper


def _both_ways(
    base: View, here: tuple[str, str, str], other: View, there: tuple[str, str, str]
) -> Iterator[LinkPair]:
    yield LinkPair(here=here, there=there, lower=here[1])
    back = base.graph.edges[here].get("reverse")
    back_there = other.graph.edges[there].get("reverse")
    up, up_there = (here[1], here[0], back), (there[1], there[0], back_there)
    if base.graph.has_edge(*up) and other.graph.has_edge(*up_there):
        yield LinkPair(here=up, there=up_there, lower=here[1])


def _of_kind(graph: nx.MultiDiGraph, tail: str, head: str, kind: LinkKind) -> list[str]:
    links = graph.get_edge_data(tail, head) or {}
    return [key for key, data in links.items() if data["kind"] is kind]


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
    """Give a link its capacity, and its resource with it where that is nothing else."""
    mine = graph.edges[link]
    mine["nominal_Bps"] = rate
    own = mine["uses"][0][0] if mine["uses"] else None
    if own is None or any(graph.edges[user]["uses"][0][0] != own for user in users[own]):
        return
    old = resources[own]
    if old.nominal_Bps is None:
        resources[own] = replace(old, nominal_Bps=rate, source=old.source or source)


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
        of_card = pair.lower and graph.nodes[pair.lower]["kind"].is_endpoint
        if mine["kind"] is not LinkKind.PCIE or not of_card or not mine["uses"] or not more["uses"]:
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


def level_ports(graph: nx.MultiDiGraph, resources: Mapping[str, Resource]) -> None:
    """What is known of one port of a card holds for the others: one link is above them all."""
    for own, links in _users(graph).items():
        of_card = [graph.edges[link] for link in links if graph.edges[link]["uses"][0][0] == own]
        known = [data for data in of_card if data.get("nominal_Bps") is not None]
        if len(of_card) < len(links) or not known or known[0]["kind"] is not LinkKind.PCIE:
            continue
        for data in of_card:
            if data.get("nominal_Bps") is None and data["kind"] is LinkKind.PCIE:
                data["nominal_Bps"] = resources[own].nominal_Bps
                for word in _TOGETHER:
                    if data.get(word) is None and known[0].get(word) is not None:
                        data[word] = known[0][word]
                data.pop("speed_text", None)


def fill_nvlinks(graph: nx.MultiDiGraph, resources: MutableMapping[str, Resource]) -> None:
    """Capacity of NVLinks whose number one file tells and whose rate another (``nvlink -s``)."""
    users = _users(graph)
    for tail, head, key, data in list(graph.edges(keys=True, data=True)):
        if data["kind"] is not LinkKind.NVLINK or data.get("nominal_Bps") is not None:
            continue
        said = [graph.nodes[node].get("nvlink_Bps") for node in (tail, head)]
        rates = {rate for rate in said if isinstance(rate, float) and rate > 0}
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
