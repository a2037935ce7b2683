"""What a topology alone says of why a machine is slow, before anything is measured.

Links that run below what their ends can do (:mod:`topocal.solve.findings_links`), a card that
has lost the fabric which the others have or some of its links, cards that were never joined by
one, and peer access that is off.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.evidence import Evidence, Finding, FindingKind, Severity, listed
from topocal.solve.findings_links import find_slow_links
from topocal.solve.words import pairs_in_words, ranges
from topocal.topo.resource import LinkKind, PathClass
from topocal.topo.routing import Routes
from topocal.topo.topology import Topology

__all__ = [
    "FABRIC",
    "find_fewer_links",
    "find_in_topology",
    "find_no_fabric",
    "joined_by_fabric",
]

FABRIC: Final = frozenset({LinkKind.NVLINK, LinkKind.XGMI, LinkKind.XELINK, LinkKind.FABRIC})
"""Links between accelerators beside PCIe."""

_NAMES: Final = {LinkKind.NVLINK: "NVLink", LinkKind.XGMI: "xGMI", LinkKind.XELINK: "Xe Link"}

HALF: Final = 0.6
"""NCCL counts 12, 24 and 48 GB/s for x16 of PCIe generations 3 to 5, half for half the lanes."""

SOUND: Final = 2 / 3
"""So many of the cards have the number of links that the machine is built with."""

MOST_LOST: Final = 1 / 3
"""More cards than this without the fabric are another kind of card, not a fault."""


def find_in_topology(topology: Topology) -> list[Finding]:
    """All that a topology says without figures."""
    return [
        *find_no_fabric(topology),
        *find_fewer_links(topology),
        *_some_joined(topology),
        *find_slow_links(Evidence(topology=topology, pair_rates_Bps={})),
        *_unlike_to_nccl(topology),
        *_no_peer_access(topology),
    ]


def find_no_fabric(topology: Topology) -> list[Finding]:
    """Cards that reach no other over the fabric that the others have, and lost links of a pair."""
    cards = topology.accelerators
    if len(cards) < 3:
        return []
    routes = topology.routes(cards)
    joined = dict(zip(cards, _joined_by_fabric(topology, routes).sum(axis=1).tolist(), strict=True))
    most = max(joined.values(), default=0)
    lost = [c for c in cards if not joined[c]]
    others = [c for c in cards if joined[c]]
    if not lost or most < 2 or len(lost) > MOST_LOST * len(cards):
        return []
    ways = {
        PathClass(int(routes.path_class.flat[routes.pair_index(c, o)])).name
        for c in lost
        for o in others
    }
    has = "has" if len(lost) == 1 else "have"
    text = (
        f"{ranges(lost)} {has} no fabric link to any other card ({' or '.join(sorted(ways))} "
        f"instead), while {ranges(others)} are joined by one: a collective over all cards falls "
        f"to what PCIe passes to {ranges(lost)}. Look at that card's fabric links and their driver."
    )
    return [
        Finding(kind=FindingKind.NO_FABRIC, severity=Severity.SERIOUS, about=tuple(lost), text=text)
    ]


def _joined_by_fabric(topology: Topology, routes: Routes) -> NDArray[np.bool_]:
    """:func:`joined_by_fabric` of all pairs; not of an endpoint with itself."""
    of_fabric = np.array([topology.links[k].kind in FABRIC for k in routes.links], dtype=bool)
    before = np.concatenate(([0], np.cumsum(of_fabric[routes.indices])))
    on_way = (before[routes.indptr[1:]] > before[routes.indptr[:-1]]).reshape(
        routes.path_class.shape
    )
    found: NDArray[np.bool_] = on_way & (routes.path_class != PathClass.DIS)
    return found


def joined_by_fabric(topology: Topology, routes: Routes, a: str, b: str) -> bool:
    """Whether a fabric's link is on the way from one card to another; not where there is none."""
    if int(routes.path_class.flat[routes.pair_index(a, b)]) == PathClass.DIS:
        return False
    return any(topology.links[k].kind in FABRIC for k in routes.route(a, b))


def find_fewer_links(topology: Topology) -> list[Finding]:
    """Cards with fewer fabric links than the others have; pairs with fewer than other pairs."""
    counts, partners = _fabric_counts(topology)
    if len(counts) < 4:
        return []
    usual, number = Counter(counts.values()).most_common(1)[0]
    fewer = [c for c, n in counts.items() if n < usual]
    if fewer and number >= SOUND * len(counts):
        its, it = (
            ("its", "it sends and receives")
            if len(fewer) == 1
            else (
                "their",
                "they send and receive",
            )
        )
        text = (
            f"{listed([f'{c} has {counts[c]} of {usual} fabric links' for c in fewer])}, where "
            f"{number} cards have all: links are down, and what {it} over the fabric is slower by "
            f"as much. Look at the state of {its} links (such as nvidia-smi nvlink -s) and at the "
            "log of the fabric manager."
        )
        return [_of_fabric(FindingKind.SLOW_LINK, Severity.WARNING, fewer, text)]
    if all(len(others) == 1 for others in partners.values()) and len(set(counts.values())) > 1:
        most = max(counts.values())
        pairs = sorted({tuple(sorted((a, *b))) for a, b in partners.items() if counts[a] < most})
        named = ", ".join(f"{a}–{b} ({counts[a]} of {most})" for a, b in pairs)
        text = f"Some pairs have fewer fabric links than others: {named}. Look at their bridges."
        fewer = [c for c in counts if counts[c] < most]
        return [_of_fabric(FindingKind.SLOW_LINK, Severity.WARNING, fewer, text)]
    return []


def _fabric_counts(topology: Topology) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Parallel fabric links of each card that has any, and what they lead to; none where the
    number of some is unknown."""
    cards = set(topology.accelerators)
    counts: dict[str, int] = defaultdict(int)
    partners: dict[str, set[str]] = defaultdict(set)
    for tail, head, data in topology.graph.edges(data=True):
        if tail not in cards or data["kind"] not in FABRIC:
            continue
        if not isinstance(data.get("count"), int):
            return {}, {}
        counts[tail] += data["count"]
        partners[tail].add(head)
    return dict(counts), dict(partners)


def _some_joined(topology: Topology) -> list[Finding]:
    """Cards without a link where others have bridges: no fault, but half the machine is slower."""
    cards = topology.accelerators
    joined: dict[str, set[str]] = defaultdict(set)
    kinds = set()
    for link in topology.links.values():
        if link.kind in FABRIC and link.tail in cards:
            joined[link.tail].add(link.head)
            kinds.add(link.kind)
    without = [c for c in cards if c not in joined]
    if not without or not joined or max(map(len, joined.values())) > 1 or len(kinds) > 1:
        return []
    name = _NAMES.get(kinds.pop(), "a fabric link")
    pairs = sorted({tuple(sorted((a, *b))) for a, b in joined.items() if b <= set(cards)})
    if not pairs:
        return []
    named = ", ".join(f"{a}–{b}" for a, b in pairs)
    has = "has none: its" if len(without) == 1 else "have none: their"
    between = ", and so do those between the pairs" if len(pairs) > 1 else ""
    text = f"{name} joins {named} only; {ranges(without)} {has} copies go over PCIe{between}."
    return [_of_fabric(FindingKind.NO_FABRIC, Severity.NOTE, without, text)]


def _of_fabric(kind: FindingKind, severity: Severity, about: list[str], text: str) -> Finding:
    return Finding(kind=kind, severity=severity, about=tuple(about), text=text)


def _unlike_to_nccl(topology: Topology) -> list[Finding]:
    """Cards whose PCIe link passes less by NCCL's count than another's."""
    cards = set(topology.accelerators)
    own = {
        tail: float(data["nccl_bw_GBps"])
        for tail, _, data in topology.graph.edges(data=True)
        if tail in cards and data["kind"] is LinkKind.PCIE and data.get("nccl_bw_GBps")
    }
    most = max(own.values(), default=0.0)
    slow = {card: rate for card, rate in own.items() if rate <= HALF * most}
    if not slow or len(slow) > len(own) / 2:
        return []
    each = listed([f"{rate:g} GB/s for the PCIe link of {card}" for card, rate in slow.items()])
    text = (
        f"NCCL counts {each}, and {most:g} GB/s for that of others: fewer lanes or an older "
        "generation. Look at the slot, the riser and the settings of the board."
    )
    return [_of_fabric(FindingKind.SLOW_LINK, Severity.WARNING, list(slow), text)]


def _no_peer_access(topology: Topology) -> list[Finding]:
    if topology.graph.graph.get("peer_access") is not False:
        return _some_without_peer_access(topology)
    return [
        Finding(
            kind=FindingKind.NO_PEER,
            severity=Severity.WARNING,
            about=tuple(topology.accelerators),
            text=(
                "There is no peer access between the cards: copies go through the host's memory, "
                "whatever the letters of the matrix promise, and those behind one switch cross "
                "its uplink up and down."
            ),
        )
    ]


def _some_without_peer_access(topology: Topology) -> list[Finding]:
    pairs = [(a, b) for a, b in topology.graph.graph.get("no_peer_pairs") or ()]
    if not pairs:
        return []
    mutual = [p for a, b in pairs for p in ((a, b), (b, a))]
    text = (
        f"There is no peer access between some pairs: {pairs_in_words(mutual)}. Their copies go "
        "through the host's memory; the other pairs reach each other directly."
    )
    about = list(dict.fromkeys(n for pair in pairs for n in pair))
    return [_of_fabric(FindingKind.NO_PEER, Severity.WARNING, about, text)]
