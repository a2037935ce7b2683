"""A topology from the pair table alone, when nobody gave one.

Endpoints whose rates with everyone else look alike are taken to sit together.
Each sender's row of the pair table (and, as a second proposal, each receiver's
column) is cut at its widest gap; every cut is a vote on which of the *other*
endpoints belong together, and the votes are clustered (average linkage on the
share of votes against).  A row without a clear gap does not vote.  Further proposals
join what is fastest together, or slowest, into any number of groups.  Of all
proposals and of no grouping at all, the one that explains the table best wins:
the scatter that is left when every sender, or every receiver, has one rate
inside its group and one outside, weighed against the number of rates (BIC).
Nothing is assumed about what the groups are: they become nodes of kind ``group``.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from topocal.measure.patterns import PatternKind, kind_of
from topocal.measure.samples import Measurements
from topocal.solve.consistency import NOISE_FLOOR
from topocal.solve.words import is_host, ranges
from topocal.topo.builder import TopologyBuilder
from topocal.topo.resource import LinkKind, NodeKind, Resource
from topocal.topo.topology import Topology

__all__ = ["GAP", "find_groups", "infer_topology"]

MOST_GROUPS: Final = 64
"""More groups are not proposed."""

GAP: Final = np.log(1.15)
"""A row votes when its widest gap is above 15 %: rates of like paths differ by a few
percent on published machines, those of unlike paths by tens."""


def find_groups(measurements: Measurements) -> list[list[str]]:
    """Endpoints by group, groups and members in natural order; one group when no row votes.

    The host's memory is no card: where there are several cards, it stands by itself.
    """
    every = measurements.endpoints
    hosts = [e for e in every if is_host(e)]
    apart = hosts if len(every) - len(hosts) > 1 else []
    kept = [k for k, e in enumerate(every) if e not in apart]
    endpoints = [every[k] for k in kept]
    table = _log_rates(measurements)[np.ix_(kept, kept)]
    n = len(endpoints)
    proposals = [np.zeros(n, dtype=np.int64), *_nearest(table)]
    for lines in ([table], [table.T], [table, table.T]):
        proposals.append(_cluster_votes([line for side in lines for line in side]))
    labels = min(proposals, key=lambda labels: _information(table, labels))
    order = list(dict.fromkeys(labels.tolist()))
    groups = [[e for e, m in zip(endpoints, labels, strict=True) if m == label] for label in order]
    return [*([h] for h in apart), *groups]


def _nearest(table: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Groupings by rate alone, every number of groups: those that are fast together, and (where
    near is slower than far, as behind one staged uplink) those that are slow together."""
    n = len(table)
    measured = np.isfinite(table)
    if n < 3 or np.count_nonzero(measured | measured.T | np.eye(n, dtype=bool)) < n * n:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pairs that nobody measured
        rate = np.nanmean(np.stack([table, table.T]), axis=0)
    found = []
    for apart in (np.nanmax(rate) - rate, rate - np.nanmin(rate)):
        np.fill_diagonal(apart, 0.0)
        found += _cut(apart, "maxclust", range(2, min(n // 2, MOST_GROUPS) + 1))
    return found


def _cluster_votes(lines: list[NDArray[np.float64]]) -> NDArray[np.int64]:
    """A group number per endpoint from the cuts of all lines."""
    n = len(lines[0])
    together, votes = np.zeros((n, n)), np.zeros((n, n))
    for line in lines:
        if np.count_nonzero(np.isfinite(line)) < 2:
            continue
        side = _split(line)
        members = np.flatnonzero(side >= 0)
        if len(members) < 2:
            continue
        grid = np.ix_(members, members)
        votes[grid] += 1
        together[grid] += side[members][:, None] == side[members][None, :]
    if n < 3 or not votes.any():
        return np.zeros(n, dtype=np.int64)
    # Without a vote on a pair, nothing says that they are apart.
    apart = np.where(votes > 0, 1 - together / np.maximum(votes, 1), 0.0)
    np.fill_diagonal(apart, 0.0)
    (found,) = _cut(apart, "distance", [0.5])
    return found


def _cut(
    apart: NDArray[np.float64], by: Literal["maxclust", "distance"], at: Iterable[float]
) -> list[NDArray[np.int64]]:
    """Group numbers by average linkage, for each place to cut the tree."""
    # Slow to load, and of no use where there is a topology.
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(apart, checks=False), "average")
    return [np.asarray(fcluster(tree, place, by), dtype=np.int64) for place in at]


def _information(table: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """BIC of the better of (sender, same group or not) and (receiver, same group or not)."""
    source, destination = np.nonzero(np.isfinite(table))
    if not len(source):
        return 0.0
    values = table[source, destination]
    same = (labels[source] == labels[destination]).astype(np.int64)
    best = np.inf
    for end in (source, destination):
        cell = 2 * end + same
        _, cell = np.unique(cell, return_inverse=True)
        centre = np.array([np.median(values[cell == c]) for c in range(cell.max() + 1)])
        # Absolute deviations, so that one unstable pair does not decide the grouping.
        scatter = max(float(np.abs(values - centre[cell]).mean()), NOISE_FLOOR)
        size = len(values)
        best = min(best, 2 * size * np.log(scatter) + (cell.max() + 1) * np.log(size))
    return float(best)


def _log_rates(measurements: Measurements) -> NDArray[np.float64]:
    """Log pair rates, NaN where not measured; the median of repeats."""
    position = {name: k for k, name in enumerate(measurements.endpoints)}
    found: dict[tuple[int, int], list[float]] = {}
    for sample in measurements.pairs:
        if not sample.pattern.total_bytes > 0:
            continue
        source, destination = sample.pattern.pairs[0]
        key = (position[source], position[destination])
        found.setdefault(key, []).append(sample.throughput_Bps)
    if not found:
        # Where no pair ran alone, half of what both directions pass says as much.
        for sample in measurements.samples:
            if kind_of(sample.pattern) is PatternKind.BOTH_WAYS and sample.throughput_Bps > 0:
                for source, destination in sample.pattern.pairs:
                    key = (position[source], position[destination])
                    found.setdefault(key, []).append(sample.throughput_Bps / 2)
    table = np.full((len(position), len(position)), np.nan)
    for key, rates in found.items():
        table[key] = np.log(np.median(rates))
    return table


def _split(line: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which side of its widest gap each value is on; -1 where unknown or without a clear gap."""
    side = np.full(len(line), -1)
    known = np.flatnonzero(np.isfinite(line))
    if len(known) < 2:
        return side
    values = np.sort(line[known])
    gaps = np.diff(values)
    widest = int(np.argmax(gaps))
    if gaps[widest] <= GAP:
        return side
    side[known] = line[known] > values[widest] + gaps[widest] / 2
    return side


def infer_topology(measurements: Measurements) -> Topology:
    """Endpoints around a node per group, the groups joined to each other.

    All capacities are unknown; the topology's notes say how it was made.
    """
    groups = find_groups(measurements)
    builder = TopologyBuilder("inferred from the pair table")
    for k, members in enumerate(groups):
        group = builder.node(f"group{k}", NodeKind.GROUP)
        for name in members:
            builder.node(name, NodeKind.GPU)
            ways = builder.connect(name, group, LinkKind.UNKNOWN)
            _call(builder, ways, f"sent by {name}", f"received by {name}")
    for a, b in itertools.combinations(range(len(groups)), 2):
        ways = builder.connect(f"group{a}", f"group{b}", LinkKind.UNKNOWN)
        here, there = ranges(groups[a]), ranges(groups[b])
        _call(builder, ways, f"from {here} to {there}", f"from {there} to {here}")
    cards = [m for m in groups if not is_host(m[0])]
    if len(cards) < 2:
        builder.note("no topology was given, and the pair table alone shows no groups")
    else:
        shown = "; ".join(ranges(m) for m in cards)
        builder.note(
            f"no topology was given: {len(cards)} groups of endpoints found from the pair table "
            f"({shown})"
        )
    return builder.build()


def _call(builder: TopologyBuilder, ways: tuple[str, str], *labels: str) -> None:
    """Words for what nobody but the fit has named."""
    for name, label in zip(ways, labels, strict=True):
        builder.resource(Resource(id=name, label=label))
