"""Findings about links: far below what they are built for."""

from __future__ import annotations

from typing import Any, Final

from topocal.solve.evidence import Evidence, Finding, FindingKind, Severity, Shown
from topocal.topo.nominal import pcie_Bps
from topocal.topo.resource import Link, LinkKind, NodeKind
from topocal.topo.units import format_rate

__all__ = ["find_slow_links", "pcie_states"]

FAR_BELOW: Final = 0.6
"""Links in order reach 0.8 to 0.95 of their nominal capacity (published PCIe pairs: 25.3 and
26.3 of 28.8 GB/s; H20 NVLink: 335 of 450); the next lower width or generation is half of it
or less, reached to the same degree: 0.4 to 0.48."""

REACHED: Final = 0.98
"""A trained-down state explains a capacity that is at most what it passes nominally, but for
errors of 2 %."""

ALIKE: Final = 1.02
"""Half the width of one generation passes what the full width of the one before does."""


LEAST_REACHED: Final = 0.8
"""Sound links reach at least so much of what they pass nominally (:data:`FAR_BELOW`)."""

MOST_REACHED: Final = 1.12
"""And at most so much: tools that count raw bytes, or halve a sum of both directions, read up to
9 % more than the payload of small packets allows (published: 1.97 GB/s on one lane of 1.8)."""


def pcie_states(rate_Bps: float) -> list[str]:
    """Generations and widths of PCIe links that pass about a rate, the newest first.

    >>> pcie_states(0.82e9)
    ['generation 3 x1', 'generation 2 x2', 'generation 1 x4']
    """
    found = []
    for generation in (5, 4, 3, 2, 1):
        for width in (1, 2, 4, 8, 16):
            nominal = pcie_Bps(generation, width)
            if nominal and LEAST_REACHED <= rate_Bps / nominal <= MOST_REACHED:
                found.append(f"generation {generation} x{width}")
    return found[:3]


def find_slow_links(evidence: Evidence) -> list[Finding]:
    """Resources whose fitted capacity is far below nominal, and links that say themselves that
    they run below what their ends can do."""
    topology = evidence.topology
    by_resource: dict[str, Link] = {}
    for link in topology.links.values():
        for used, _ in link.uses:
            by_resource.setdefault(used, link)
    data = {key: d for _, _, key, d in topology.graph.edges(keys=True, data=True)}
    found = []
    told: set[frozenset[str]] = set()
    for name, fitted in evidence.fitted_Bps.items():
        resource = topology.resources.get(name)
        if resource is None or resource.nominal_Bps is None:
            continue
        share = fitted / resource.nominal_Bps
        if share >= FAR_BELOW:
            continue
        maybe = by_resource.get(name)
        state = _state(maybe, data[maybe.id], fitted) if maybe is not None else ""
        if maybe is not None:
            told.add(frozenset((maybe.tail, maybe.head)))
        found.append(
            Finding(
                kind=FindingKind.SLOW_LINK,
                severity=Severity.SERIOUS if share <= 0.5 else Severity.WARNING,
                about=(name,),
                text=(
                    f"{resource.name} passes {format_rate(fitted)}, {share:.0%} of its nominal "
                    f"{format_rate(resource.nominal_Bps)}{state}."
                ),
                evidence=(
                    Shown(name=f"{name} fitted", rate_Bps=fitted),
                    Shown(name=f"{name} nominal", rate_Bps=resource.nominal_Bps),
                ),
            )
        )
    return found + _trained_down(evidence, data, told)


def _state(link: Link, data: dict[str, Any], fitted: float) -> str:
    """What the link would have to be to pass so much."""
    if link.kind is LinkKind.PCIE:
        generation, width = data.get("generation"), data.get("width")
        states = [
            (rate, g, w)
            for g in range(1, (generation or 0) + 1)
            for w in (1, 2, 4, 8, 16)
            if width and w <= width and (g, w) != (generation, width)
            if (rate := pcie_Bps(g, w)) is not None and rate >= REACHED * fitted
        ]
        if states:
            least = min(rate for rate, _, _ in states)
            looks = " or ".join(
                f"generation {g} x{w}"
                for rate, g, w in sorted(states, reverse=True)
                if rate <= ALIKE * least
            )
            return (
                f", as one trained down to PCIe {looks} would ({format_rate(least)}; it should be "
                f"generation {generation} x{width})"
            )
    count = data.get("count")
    if count and count > 1 and link.nominal_Bps:
        up = -(-fitted * REACHED * count // link.nominal_Bps)
        if up < count:
            return f", as {int(up)} of its {count} parallel links would"
    return "; it may be trained down, or something behind it is slower"


def _trained_down(
    evidence: Evidence, data: dict[str, dict[str, Any]], told: set[frozenset[str]]
) -> list[Finding]:
    """Links whose source says that both ends could do more, one finding per connection."""
    found = []
    for link in evidence.topology.links.values():
        ends = frozenset((link.tail, link.head))
        if ends in told:
            continue
        attributes = data[link.id]
        lost = [
            (word, attributes[now], attributes[most])
            for word, now, most in (
                ("x", "width", "max_width"),
                ("generation ", "generation", "max_generation"),
            )
            if _below(attributes.get(now), attributes.get(most))
        ]
        if not lost:
            continue
        told.add(ends)
        narrow = any(word == "x" for word, _, _ in lost)
        states = " and ".join(
            f"at {word}{now} though {word}{most} is possible" for word, now, most in lost
        )
        text = f"The link {link.tail}–{link.head} runs {states}."
        is_nic = any(evidence.topology.graph.nodes[e]["kind"] is NodeKind.NIC for e in ends)
        if is_nic and not narrow:
            text += " The slot or its settings allow no more: network cards keep theirs when idle."
        elif not narrow:
            text += " Idle cards lower the generation to save power: look again under load."
        found.append(
            Finding(
                kind=FindingKind.SLOW_LINK,
                severity=Severity.WARNING if narrow or is_nic else Severity.NOTE,
                about=tuple(sorted(ends)),
                text=text,
            )
        )
    return found


def _below(now: Any, most: Any) -> bool:
    return isinstance(now, int) and isinstance(most, int) and now < most
