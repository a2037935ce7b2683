"""What a topology alone says of why a machine is slow, before anything is measured.

Links that run below what their ends can do (:mod:`topocal.solve.findings_links`), a card that
has lost the fabric which the others have, and peer access that is off.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from topocal.solve.evidence import Evidence, Finding, FindingKind, Severity
from topocal.solve.findings_links import find_slow_links
from topocal.solve.words import ranges
from topocal.topo.resource import LinkKind, PathClass
from topocal.topo.topology import Topology

__all__ = ["find_in_topology", "find_no_fabric"]

_FABRIC: Final = {LinkKind.NVLINK, LinkKind.XGMI, LinkKind.XELINK}

MOST_LOST: Final = 1 / 3
"""More cards than this without the fabric are another kind of card, not a fault."""


def find_in_topology(topology: Topology) -> list[Finding]:
    """All that a topology says without figures."""
    return [
        *find_no_fabric(topology),
        *find_slow_links(Evidence(topology=topology, pair_rates_Bps={})),
        *_no_peer_access(topology),
    ]


def find_no_fabric(topology: Topology) -> list[Finding]:
    """Cards that reach no other over the fabric that the others have, and lost links of a pair."""
    cards = topology.accelerators
    if len(cards) < 3:
        return []
    routes = topology.routes(cards)
    fabric = {
        (a, b)
        for a in cards
        for b in cards
        if a != b and any(topology.links[k].kind in _FABRIC for k in routes.route(a, b))
    }
    joined = Counter(a for a, _ in fabric)
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


def _no_peer_access(topology: Topology) -> list[Finding]:
    if topology.graph.graph.get("peer_access") is not False:
        return []
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
