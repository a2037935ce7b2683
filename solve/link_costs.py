"""What a per-path calibrator gives: alpha and bandwidth by path, by pair, by root and peers.

No resources and no sharing: each pattern by itself, as measured.  For those who want the
usual tables, and to compare them with what a model of resources says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from topocal.measure.patterns import PatternKind
from topocal.measure.samples import Measurements
from topocal.solve.scenarios import Scenario, build_scenarios
from topocal.topo.naming import natural_key
from topocal.topo.topology import Topology

__all__ = ["link_costs"]

FORMAT: Final = "topocal/link-costs"
VERSION: Final = 1

LOCAL_COPY: Final = "local_copy"
INTRA_NODE: Final = "intra_node"
INTER_NODE: Final = "inter_node"

Entry = dict[str, Any]


def link_costs(measurements: Measurements, topology: Topology | None = None) -> dict[str, Any]:
    """Alpha and bandwidth of every path, pair, fan and relay that was measured.

    A path is ``local_copy``, ``intra_node`` or ``inter_node``; the host of an endpoint is
    what the topology says, or what stands before the last slash of its name.

    Parameters
    ----------
    topology
        Of the machine, for its hosts.

    Returns
    -------
    dict
        Ready for JSON; times in seconds, rates in bytes per second, ``None`` where the
        samples do not say.

        ``paths``
            By kind of pattern and path: medians over its scenarios, slowest, fastest.
        ``pairs``
            By ordered pair, one flow alone.
        ``both_ways``
            By pair: the rate of each direction while both are busy, and its ratio to the
            slower direction alone.
        ``relay``
            By (path of what a process receives, path of what it sends).
        ``fan_in``, ``fan_out``
            By root and set of peers: each flow's rate, and what the root receives or
            sends in all.
        ``bundles``
            Other flows at once.

    Raises
    ------
    InputError
        When a sample is not possible (no flows, no time above zero).
    UnknownEndpointError
        When a topology is given that lacks an endpoint.
    """
    if topology is not None:
        topology.require_endpoints(measurements.endpoints)
    hosts = {name: _host(name, topology) for name in measurements.endpoints}
    scenarios = build_scenarios(measurements)
    tables: dict[str, list[Entry]] = {
        name: [] for name in ("pairs", "both_ways", "fan_in", "fan_out", "bundles")
    }
    alone: dict[tuple[str, str], float] = {}
    for scenario in scenarios:
        if scenario.kind is PatternKind.PEER and scenario.seconds_per_byte is not None:
            pair = scenario.pattern.pairs[0]
            alone[pair] = max(alone.get(pair, 0.0), scenario.seconds_per_byte)
    for scenario in scenarios:
        name, entry = _entry(scenario, hosts, alone)
        tables[name].append(entry)
    return {
        "format": FORMAT,
        "version": VERSION,
        "paths": _by_path(scenarios, hosts),
        **tables,
        "relay": _relays(scenarios, hosts),
    }


def _host(name: str, topology: Topology | None) -> str:
    if topology is not None:
        stated = topology.graph.nodes[name].get("host")
        if isinstance(stated, str):
            return stated
    return name.rpartition("/")[0]


def _path(pair: tuple[str, str], hosts: dict[str, str]) -> str:
    source, destination = pair
    if source == destination:
        return LOCAL_COPY
    return INTRA_NODE if hosts[source] == hosts[destination] else INTER_NODE


def _paths(scenario: Scenario, hosts: dict[str, str]) -> str:
    """The path of all its flows, or the several, joined."""
    found = {_path(pair, hosts) for pair in scenario.pattern.pairs}
    order = (LOCAL_COPY, INTRA_NODE, INTER_NODE)
    return " + ".join(path for path in order if path in found)


def _entry(
    scenario: Scenario, hosts: dict[str, str], alone: dict[tuple[str, str], float]
) -> tuple[str, Entry]:
    """The table that a scenario belongs to, and its entry there."""
    pairs = scenario.pattern.pairs
    cost = {"path": _paths(scenario, hosts), **_cost(scenario)}
    match scenario.kind:
        case PatternKind.PEER:
            return "pairs", {"source": pairs[0][0], "destination": pairs[0][1], **cost}
        case PatternKind.BOTH_WAYS:
            known = [alone[pair] for pair in pairs if pair in alone]
            ratio = None
            if len(known) == len(pairs) and scenario.seconds_per_byte is not None:
                ratio = _ratio(max(known), scenario.seconds_per_byte)
            return "both_ways", {"endpoints": list(pairs[0]), **cost, "ratio_to_alone": ratio}
        case PatternKind.FAN_IN:
            peers = [source for source, _ in pairs]
            fan = {"root": pairs[0][1], "peers": peers, **cost}
            return "fan_in", fan | {"root_receive_Bps": _rate(scenario.throughput_Bps)}
        case PatternKind.FAN_OUT:
            peers = [destination for _, destination in pairs]
            fan = {"root": pairs[0][0], "peers": peers, **cost}
            return "fan_out", fan | {"root_send_Bps": _rate(scenario.throughput_Bps)}
    flows = [list(pair) for pair in pairs]
    total = _rate(scenario.throughput_Bps)
    return "bundles", {"flows": flows, "kind": str(scenario.kind), **cost, "total_Bps": total}


def _cost(scenario: Scenario) -> Entry:
    """What every entry says of its scenario."""
    slope = scenario.seconds_per_byte
    sizes = [flow.size_bytes for flow in scenario.pattern.flows]
    found: Entry = {
        "alpha_s": scenario.alpha_s,
        "seconds_per_byte": slope,
        "bandwidth_Bps": None if slope is None else _ratio(1.0, slope),
        "relative_error": scenario.sigma,
        "samples": scenario.samples,
        "sizes_bytes": list(scenario.sizes_bytes),
    }
    if min(sizes) < 1.0:
        found["proportions"] = sizes
    if scenario.issue is not None:
        found["issue"] = scenario.issue
    if scenario.doubt is not None:
        found["doubt"] = scenario.doubt
    return found


def _ratio(above: float, below: float) -> float | None:
    """A quotient of positive numbers, where it can be written down."""
    found = above / below if below > above / 1e300 else math.inf
    return found if math.isfinite(found) else None


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low + (high - low) / 2  # a sum may be out of range


def _rate(value_Bps: float | None) -> float | None:
    return value_Bps if value_Bps is not None and math.isfinite(value_Bps) else None


def _by_path(scenarios: Iterable[Scenario], hosts: dict[str, str]) -> list[Entry]:
    found: dict[tuple[str, str], list[Scenario]] = {}
    for scenario in scenarios:
        key = (str(scenario.kind), _paths(scenario, hosts))
        found.setdefault(key, []).append(scenario)
    return [
        {"kind": kind, "path": path, **_pooled(members)}
        for (kind, path), members in sorted(found.items())
    ]


def _pooled(scenarios: Sequence[Scenario]) -> Entry:
    """Medians over scenarios, with the extremes."""
    slopes = [s.seconds_per_byte for s in scenarios if s.seconds_per_byte is not None]
    alphas = [s.alpha_s for s in scenarios if s.alpha_s is not None]
    return {
        "alpha_s": _median(alphas) if alphas else None,
        **_slopes(slopes),
        "scenarios": len(scenarios),
        "samples": sum(s.samples for s in scenarios),
    }


def _slopes(slopes: Sequence[float]) -> Entry:
    if not slopes:
        empty = ("seconds_per_byte", "bandwidth_Bps", "slowest_Bps", "fastest_Bps")
        return dict.fromkeys(empty)
    middle = _median(slopes)
    return {
        "seconds_per_byte": middle,
        "bandwidth_Bps": _ratio(1.0, middle),
        "slowest_Bps": _ratio(1.0, max(slopes)),
        "fastest_Bps": _ratio(1.0, min(slopes)),
    }


def _relays(scenarios: Iterable[Scenario], hosts: dict[str, str]) -> list[Entry]:
    """Processes that receive and send at once, by the paths of the two.

    Each counts by when its own two flows were done, where that was recorded, else by
    when the whole pattern was.
    """
    slopes: dict[tuple[str, str], list[float]] = {}
    alphas: dict[tuple[str, str], list[float]] = {}
    for scenario in scenarios:
        pairs = scenario.pattern.pairs
        sender = {destination: k for k, (_, destination) in enumerate(pairs)}
        receiver = {source: k for k, (source, _) in enumerate(pairs)}
        if not _is_relay(pairs) or scenario.seconds_per_byte is None:
            continue
        for name in sorted(receiver, key=natural_key):
            incoming, outgoing = sender[name], receiver[name]
            key = (_path(pairs[incoming], hosts), _path(pairs[outgoing], hosts))
            own = scenario.flow_seconds_per_byte or ()
            times = [own[k] for k in (incoming, outgoing) if own]
            known = [t for t in times if t is not None]
            slope = max(known) if len(known) == 2 else scenario.seconds_per_byte
            slopes.setdefault(key, []).append(slope)
            if scenario.alpha_s is not None:
                alphas.setdefault(key, []).append(scenario.alpha_s)
    return [
        {
            "receive_path": receive,
            "send_path": send,
            "alpha_s": _median(alphas[key]) if key in alphas else None,
            **_slopes(slopes[key]),
            "processes": len(slopes[key]),
        }
        for key in sorted(slopes)
        for receive, send in [key]
    ]


def _is_relay(pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether everyone receives from one and sends to another one."""
    following = dict(pairs)
    return (
        len(following) == len(pairs)
        and set(following) == set(following.values())
        and all(following[b] != a for a, b in pairs)
    )
