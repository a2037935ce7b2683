"""What figures say that are no pattern's time: collectives, means over flows, costs of links.

No fit can use them, yet they are often all that somebody posts, and their ratios answer:
which cards reduce faster together, how the mean falls with the way, what a link costs.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from topocal.measure.importers.imported import LinkCost, Reading
from topocal.solve.evidence import Finding, FindingKind, Severity, Shown, listed, span
from topocal.solve.findings_links import pcie_states
from topocal.solve.findings_sizes import SIZED
from topocal.solve.findings_topology import joined_by_fabric
from topocal.solve.settings import Setting
from topocal.solve.words import ranges, sentence
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.errors import TopocalError
from topocal.topo.incidence import incidence
from topocal.topo.resource import PathClass
from topocal.topo.topology import Topology
from topocal.topo.units import format_bytes, format_rate, format_seconds, parse_bytes

__all__ = ["find_in_readings"]

UNLIKE: Final = math.log(1.15)
"""Collectives over as many cards differ by a few per cent between runs of sound machines."""

AGREE: Final = math.log(1.03)
"""Published costs of one link agree within 1 % once their units do."""

IMPOSSIBLE_BPS: Final = 1e13
"""No port of a card passes 10 TB/s; a table that prints more is of one that moved nothing."""

_SETS: Final = re.compile(r"(?P<metric>.+?) of (?P<members>(?:[\w/:.-]+[ ,]+)+[\w/:.-]+)")
_MEMBER: Final = re.compile(r"[0-9]+|(?:[\w.-]+/)?[A-Za-z]+[0-9]+")
"""A card: its number, or its name with one."""

FABRIC_BPS: Final = 60e9
"""A ring over NVLinks passes more; one over PCIe up to generation 5 x16 less."""

RATE_FROM_BYTES: Final = 2**20
"""Of a collective of less, start-up is most of the time."""

_COLUMN: Final = re.compile(r"(?P<column>\w+) of (?P<row>.+)")
"""A figure of a table, by its column and row."""

_SHIFT: Final = re.compile(r"mean rate of each flow at shift (?P<shift>[0-9]+)")


def find_in_readings(settings: Sequence[Setting], topology: Topology | None) -> list[Finding]:
    """All findings that rest on them alone."""
    return [
        *_collectives_by_members(settings, topology),
        *_collectives_by_size(settings, topology),
        *_times_by_size(settings),
        *_means_by_shift(settings, topology),
        *_costs(settings),
        *_others(settings),
    ]


@dataclass(frozen=True, slots=True)
class _Collective:
    """A collective over some cards."""

    members: tuple[str, ...]
    rate_Bps: float


def _collectives_by_members(
    settings: Sequence[Setting], topology: Topology | None
) -> Iterator[Finding]:
    for s in settings:
        by_metric: dict[str, list[_Collective]] = defaultdict(list)
        for r in s.readings:
            match = _SETS.fullmatch(r.what)
            if match is None or r.unit != "B/s" or r.pattern is not None:
                continue
            named = re.split(r"[ ,]+", match["members"])
            if not all(_MEMBER.fullmatch(m) for m in named):
                continue
            members = tuple(canonical_endpoint(m) for m in named)
            by_metric[match["metric"]].append(_Collective(members, r.value))
        for metric, found in by_metric.items():
            if len(found) > 1:
                yield _by_members(s, metric.removesuffix("_GBps"), found, topology)


def _by_members(
    setting: Setting, metric: str, found: Sequence[_Collective], topology: Topology | None
) -> Finding:
    ordered = sorted(found, key=lambda c: c.rate_Bps)
    shown = [f"{format_rate(c.rate_Bps)} over {ranges(c.members)}" for c in ordered]
    ratio = ordered[0].rate_Bps / ordered[-1].rate_Bps
    apart = -math.log(ratio) > UNLIKE
    text = f"{metric}: {listed(shown)}"
    text += f" ({ratio:.2f} times)." if apart else ": alike."
    if apart:
        text += _near_or_far(setting, ordered[0], ordered[-1], topology)
    return Finding(
        kind=FindingKind.COLLECTIVES,
        severity=Severity.WARNING if apart else Severity.NOTE,
        about=tuple(dict.fromkeys(n for c in ordered for n in c.members)),
        text=text,
        evidence=tuple(Shown(name=ranges(c.members), rate_Bps=c.rate_Bps) for c in ordered[:8]),
    )


def _near_or_far(
    setting: Setting, slow: _Collective, fast: _Collective, topology: Topology | None
) -> str:
    """Whether the slower cards sit nearer together, and what then is likely."""
    off = setting.conditions.get("p2p") == "off"
    staged = (
        " Peer access is off: copies go through the host, and those inside a socket or behind one "
        "switch cross the same way up and down, which those between sockets spread over two."
        if off
        else ""
    )
    if topology is None or any(n not in topology.endpoints for n in (*slow.members, *fast.members)):
        return staged
    spread = [len(_sockets(topology, c.members)) for c in (slow, fast)]
    if spread[0] >= spread[1]:
        return ""
    return (
        f" The slower ones sit on {_number(spread[0], 'socket')}, the faster ones on "
        f"{spread[1]}: near is slower than far, so what they share lies inside a socket.{staged}"
    )


def _number(n: int, noun: str) -> str:
    return f"{'one' if n == 1 else n} {noun}{'s' * (n != 1)}"


def _sockets(topology: Topology, members: Sequence[str]) -> list[set[str]]:
    """The cards by socket: those between which no way crosses sockets."""
    routes = topology.routes(tuple(members))
    groups: list[set[str]] = []
    for name in members:
        for group in groups:
            other = next(iter(group))
            code = int(routes.path_class.flat[routes.pair_index(name, other)])
            if code < PathClass.SYS:
                group.add(name)
                break
        else:
            groups.append({name})
    return groups


def _collectives_by_size(
    settings: Sequence[Setting], topology: Topology | None
) -> Iterator[Finding]:
    """The best that each collective reached, in one finding, with what it would be the rate of."""
    best: dict[str, tuple[float, str, Setting]] = {}
    # A collective over one card moves nothing, whatever its table prints.
    idle = {
        (s.source, s.conditions.get("test"))
        for s in settings
        if any(r.unit == "B/s" and r.value > IMPOSSIBLE_BPS for r in s.readings)
    }
    for s in settings:
        if (s.source, s.conditions.get("test")) in idle:
            continue
        for r in s.readings:
            match = SIZED.fullmatch(r.what)
            if match is None or r.unit != "B/s" or "bandwidth" not in match["metric"]:
                continue
            name = match["metric"]
            if name not in best or r.value > best[name][0]:
                best[name] = (r.value, match["size"], s)
    if not best:
        return
    parts = [f"{name} {format_rate(v)} at {size}" for name, (v, size, _) in best.items()]
    why, slow = _of_a_ring(best, topology)
    yield Finding(
        kind=FindingKind.COLLECTIVES,
        severity=Severity.WARNING if slow else Severity.NOTE,
        about=tuple(best),
        text=f"At best, {listed(parts)}.{why}",
        evidence=tuple(Shown(name=name, rate_Bps=v) for name, (v, _, _) in best.items())[:8],
    )


def _of_a_ring(
    best: Mapping[str, tuple[float, str, Setting]], topology: Topology | None
) -> tuple[str, bool]:
    """What the fastest collective says of the slowest hop, and whether a fabric is not used."""
    bus = {name: found for name, found in best.items() if "bus bandwidth" in name}
    if not bus:
        return "", False
    rate, size, setting = max(bus.values(), key=lambda found: found[0])
    if _bytes_of(size) < RATE_FROM_BYTES:
        return " The messages are small: most of their time is start-up.", False
    hosts = setting.conditions.get("hosts", "")
    if hosts:
        return (
            f" Over {hosts} hosts that is {8 * rate / 1e9:.3g} Gb/s, to compare with what the "
            "network cards of one host pass together.",
            False,
        )
    if rate > FABRIC_BPS:
        return "", False
    states = pcie_states(rate)
    why = f" A ring is as fast as its slowest hop: {format_rate(rate)} is "
    why += f"what PCIe {' or '.join(states)} passes." if states else "no more than PCIe passes."
    if topology is not None and _all_joined(topology):
        return why + (
            " The cards are joined by a fabric, which is not used, or not by all of them: look at "
            "what NCCL says of its channels (NCCL_DEBUG=INFO)."
        ), True
    return why, False


def _bytes_of(size: str) -> float:
    try:
        return parse_bytes(size)
    except TopocalError:  # no size after all
        return 0.0


def _all_joined(topology: Topology) -> bool:
    """Whether a fabric leads from each card to each other."""
    cards = topology.accelerators
    routes = topology.routes(cards)
    return len(cards) > 1 and all(
        joined_by_fabric(topology, routes, a, b) for a in cards for b in cards if a != b
    )


def _times_by_size(settings: Sequence[Setting]) -> Iterator[Finding]:
    """Collectives of which only times are given: what the smallest and the largest take."""
    found: dict[str, dict[float, float]] = defaultdict(dict)
    for s in settings:
        for r in s.readings:
            match = SIZED.fullmatch(r.what)
            if match is not None and r.unit == "s" and r.pattern is None:
                found[match["metric"]].setdefault(_bytes_of(match["size"]), r.value)
    parts = []
    for name, by_size in found.items():
        least, most = min(by_size), max(by_size)
        part = f"{name} takes {format_seconds(by_size[least])} at {format_bytes(least)}"
        if most > least:
            part += f" and {format_seconds(by_size[most])} at {format_bytes(most)}"
        if most >= RATE_FROM_BYTES:
            part += f", {format_rate(most / by_size[most])} of one rank's bytes"
        parts.append(part)
    if parts:
        yield Finding(
            kind=FindingKind.COLLECTIVES,
            severity=Severity.NOTE,
            about=tuple(found)[:8],
            text=f"{sentence('; '.join(parts[:4]))}{'; …' if len(parts) > 4 else '.'}",
        )


def _means_by_shift(settings: Sequence[Setting], topology: Topology | None) -> Iterator[Finding]:
    for s in settings:
        means = {
            int(match["shift"]): r
            for r in s.readings
            if (match := _SHIFT.fullmatch(r.what)) and r.pattern is not None
        }
        if len(means) > 1:
            yield _of_shifts(means, topology)


def _of_shifts(means: dict[int, Reading], topology: Topology | None) -> Finding:
    best = max(means, key=lambda k: means[k].value)
    worst = min(means, key=lambda k: means[k].value)
    pattern = means[best].pattern
    flows = 0 if pattern is None else len(pattern.flows)
    shown = [f"{format_rate(r.value)} at +{k}" for k, r in sorted(means.items())]
    text = (
        f"With all {flows} at once, each to the one N further, a flow gets on average "
        f"{listed(shown, 8)}: {means[worst].value / means[best].value:.2f} times at +{worst} what "
        f"it gets at +{best}."
    )
    mirrored = all(
        abs(math.log(means[k].value / means[flows - k].value)) < AGREE
        for k in means
        if flows - k in means
    )
    if mirrored and len(means) > 2:
        text += " +N and its mirror agree, so the distance counts and not the direction."
    crossing = _crossing(means, topology)
    text += crossing or (
        " Flows that go further share something; the mean hides that those inside finish early."
    )
    return Finding(
        kind=FindingKind.SHARED,
        severity=Severity.WARNING
        if means[best].value > math.exp(UNLIKE) * means[worst].value
        else Severity.NOTE,
        about=tuple(f"+{k}" for k in sorted(means)),
        text=text,
        evidence=tuple(Shown(name=f"+{k}", rate_Bps=r.value) for k, r in sorted(means.items())),
    )


def _crossing(means: dict[int, Reading], topology: Topology | None) -> str:
    """How many flows of each shift the busiest link of the topology carries."""
    if topology is None:
        return ""
    ends = {n for r in means.values() if r.pattern for pair in r.pattern.pairs for n in pair}
    if not ends <= set(topology.endpoints):
        return ""
    busiest: dict[int, tuple[int, str]] = {}
    for k, r in means.items():
        assert r.pattern is not None
        lines = incidence(topology, r.pattern.pairs)
        count = lines.matrix.astype(bool).astype(int).sum(axis=0)
        at = max(range(len(lines.resources)), key=lambda c: count[c])
        busiest[k] = (int(count[at]), topology.resources[lines.resources[at]].name)
    worst = max(busiest, key=lambda k: busiest[k][0])
    if busiest[worst][0] < 2:
        return ""
    numbers = listed([f"{n} at +{k}" for k, (n, _) in sorted(busiest.items())], 8)
    return (
        f" In the topology the busiest link carries {numbers} of the flows (such as "
        f"{busiest[worst][1]}): they share it."
    )


def _costs(settings: Sequence[Setting]) -> Iterator[Finding]:
    """Costs of links, each with its rate, and whether profiles of one machine agree."""
    by_profile: dict[str, list[tuple[Setting, tuple[LinkCost, ...]]]] = defaultdict(list)
    for s in settings:
        if s.costs:
            name = s.conditions.get("profile", s.label)
            name = name.removesuffix(f"_{s.conditions.get('chunk', '')}")
            by_profile[name].append((s, s.costs))
    for name, found in by_profile.items():
        yield _of_costs(name, found)


def _of_costs(name: str, found: Sequence[tuple[Setting, tuple[LinkCost, ...]]]) -> Finding:
    by_links: dict[str, list[LinkCost]] = defaultdict(list)
    for _, costs in found:
        for c in costs:
            by_links[c.links].append(c)
    parts, worst = [], 0.0
    for links, alike in by_links.items():
        rates = [c.capacity_Bps for c in alike]
        worst = max(worst, math.log(max(rates) / min(rates)))
        alpha = format_seconds(median(c.alpha_s for c in alike))
        per_MB = format_seconds(1e6 * median(c.beta_s_per_byte for c in alike))
        parts.append(f"{links} {alpha} + {per_MB} per MB ({span(rates)})")
    chunks = [s.conditions["chunk"] for s, _ in found if "chunk" in s.conditions]
    text = f"{name}: {'; '.join(parts)}."
    if len(found) > 1:
        text += (
            f" Its {len(found)} profiles ({listed(chunks)}) agree once their units do: each gives "
            "the cost of its own chunk."
            if worst <= AGREE
            else f" Its {len(found)} profiles ({listed(chunks)}) differ by "
            f"{math.expm1(worst):.0%}: use the one whose chunk is nearest to yours."
        )
    elif chunks:
        text += _at_chunk(chunks[0], by_links)
    gpus, nics = (
        int(found[0][0].conditions.get(key, "0") or 0) for key in ("gpus per node", "nics per node")
    )
    card = by_links.get("network card")
    if card and nics and gpus > nics:
        rate = median(c.capacity_Bps for c in card)
        verb = "serves" if nics == 1 else "serve"
        text += (
            f" {sentence(_number(nics, 'network card'))} {verb} {gpus} GPUs: "
            f"k flows at once to other nodes share {format_rate(rate)}"
            + (" each card." if nics > 1 else ".")
        )
    return Finding(
        kind=FindingKind.COSTS,
        severity=Severity.NOTE,
        about=tuple(by_links),
        text=text,
        evidence=tuple(
            Shown(name=f"{c.links}, {s.label}", rate_Bps=c.capacity_Bps)
            for s, costs in found
            for c in costs
        )[:8],
    )


def _at_chunk(chunk: str, by_links: dict[str, list[LinkCost]]) -> str:
    """What a chunk of the profile's size costs, and how much of that is start-up."""
    try:
        size = parse_bytes(chunk)
    except TopocalError:  # a chunk that is no size says nothing
        return ""
    parts = []
    for links, costs in by_links.items():
        alpha, beta = costs[0].alpha_s, costs[0].beta_s_per_byte
        total = alpha + size * beta
        parts.append(f"{format_seconds(total)} over {links} ({alpha / total:.0%} start-up)")
    return f" A chunk of {format_bytes(size)} takes {listed(parts)}."


def _others(settings: Sequence[Setting]) -> Iterator[Finding]:
    """Rates of which only the words are known."""
    found = [
        r
        for s in settings
        for r in s.readings
        if r.unit == "B/s"
        and r.pattern is None
        and _COLUMN.fullmatch(r.what)
        and not _SETS.fullmatch(r.what)
    ]
    if not found:
        return
    shown = [f"{r.what} {format_rate(r.value)}" for r in found]
    yield Finding(
        kind=FindingKind.COLLECTIVES,
        severity=Severity.NOTE,
        about=tuple(r.what for r in found[:8]),
        text=f"Also given, of flows that are not named: {listed(shown, 4)}.",
        evidence=tuple(Shown(name=r.what, rate_Bps=r.value) for r in found[:8]),
    )
