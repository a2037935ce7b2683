"""Machines and figures whose fewest resources are asked for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from topocal.measure.importers.tables import parse_table
from topocal.measure.patterns import fan_in
from topocal.published import read_extremes
from topocal.solve.demands import AnyOf, Demands, Extremes, Figure, Receivers, demands
from topocal.solve.explanation_columns import explanation_columns
from topocal.solve.minimum import (
    Minimum,
)
from topocal.topo.builder import TopologyBuilder
from topocal.topo.machines import b70
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

B70 = Path(__file__).parents[1] / "examples" / "b70"


SIZE = 2.0**28


UNSTABLE = {"gpu1->gpu0", "gpu1->gpu2", "gpu1->gpu3"}


def everyone(topology: Topology) -> frozenset[frozenset[str]]:
    """Every two accelerators ran both ways."""
    return frozenset(map(frozenset, itertools.combinations(topology.accelerators, 2)))


def plain(
    loads: Sequence[Sequence[float]],
    seconds: Sequence[float],
    tolerance: float = 0.05,
    any_of: tuple[AnyOf, ...] = (),
) -> Demands:
    """Demands on resources a, b, c … from bytes and seconds."""
    matrix = csr_array(np.array(loads, dtype=np.float64))
    matrix.eliminate_zeros()
    matrix.data = np.log(matrix.data)
    y = np.log(seconds)
    return Demands(
        scenarios=tuple(f"s{k}" for k in range(len(y))),
        resources=tuple("abcdefgh"[: matrix.shape[1]]),
        log_load=matrix,
        low=y - math.log1p(tolerance),
        high=y + math.log1p(tolerance),
        any_of=any_of,
        what="all",
    )


def labels(found: Minimum) -> list[str]:
    return [c.resource for c in found.chosen]


def star(gpus: int = 4) -> Topology:
    builder = TopologyBuilder("star")
    builder.node("socket0", NodeKind.SOCKET)
    for k in range(gpus):
        builder.node(f"gpu{k}", NodeKind.GPU)
        builder.connect(f"gpu{k}", "socket0", LinkKind.PCIE)
    return builder.build()


def figure(pattern_Bps: tuple[object, float], tolerance: float = 0.02) -> Figure:
    pattern, rate = pattern_Bps
    return Figure(pattern=pattern, throughput_Bps=rate, tolerance=tolerance)  # type: ignore[arg-type]


def b70_demands(
    receivers: Receivers, pair_tolerance: float = 0.05, fan_tolerance: float = 0.03
) -> Demands:
    topology = b70()
    ends = topology.accelerators
    samples = [
        s
        for name in ("pairs.csv", "fans.csv")
        for s in parse_table((B70 / name).read_text(), file=name)
        if s.name not in UNSTABLE
    ]
    figures = [
        Figure(
            pattern=s.pattern,
            throughput_Bps=s.throughput_Bps,
            tolerance=pair_tolerance if len(s.pattern.flows) == 1 else fan_tolerance,
        )
        for s in samples
    ]
    extremes = [
        Extremes(
            patterns=tuple(
                fan_in(ends[r], [ends[(r + k) % 8] for k in range(1, e.width + 1)], SIZE)
                for r in range(8)
            ),
            smallest_Bps=e.minimum_Bps,
            largest_Bps=e.maximum_Bps,
            tolerance=fan_tolerance,
        )
        for e in read_extremes(B70 / "published.csv")
    ]
    # 0.98 is the overlap that fits the nine published fans (docs/model.md).
    return demands(
        explanation_columns(topology), figures, extremes, receivers=receivers, kappa=0.98
    )
