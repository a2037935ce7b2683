"""Measurements of a few patterns, and their conditions."""

from __future__ import annotations

from typing import Any

import msgspec

from topocal.measure.patterns import fan_in
from topocal.measure.samples import Measurements, Run, Sample
from topocal.topo.flow import Flow, Pattern

PROVENANCE: dict[str, Any] = {
    "run": "a1b2",
    "started": "2026-11-03T10:00:00Z",
    "machine": "0123456789abcdef",
    "hosts": 1,
    "devices": ["card", "card", "card"],
    "ranks": ["gpu0", "gpu1", "gpu2"],
    "backend": "nccl",
    "issue": "group",
    "clock": "perf_counter",
    "clock_resolution_s": 1e-9,
    "driver": "550.1",
    "libraries": {"nccl": "2.21.5"},
    "environment": {"NCCL_P2P_LEVEL": "SYS"},
    "verified": True,
}


def pattern_of_three(size_bytes: float = 4096.0) -> Pattern:
    return fan_in("gpu0", ["gpu1", "gpu2"], size_bytes)


def small(**changes: Any) -> Measurements:
    """Two repeats of a fan, a relay with unequal sizes and late starts, a failed timing."""
    ring = Pattern(
        flows=(
            Flow(source="gpu0", destination="gpu1", size_bytes=1000.0),
            Flow(source="gpu1", destination="gpu2", size_bytes=0.1 + 0.2, start_s=1e-3),
            Flow(source="gpu2", destination="gpu0", size_bytes=0.0),
        ),
        name="my ring",
    )
    shared = {"issue": "group", "run": 0}
    samples = [
        Sample(
            pattern=pattern_of_three(),
            seconds=1.1e-5,
            repeat=0,
            round=3,
            flow_finish_s=(1e-5, 1.1e-5),
            endpoint_start_s=(0.0, 1e-7, 2e-7),
            endpoint_end_s=(1.1e-5, 1e-5, 1.1e-5),
            **shared,
        ),
        Sample(pattern=pattern_of_three(), seconds=1.2e-5, repeat=1, round=4, **shared),
        Sample(pattern=ring, seconds=0.1, run=0, issue="one-by-one", size_known=False),
        Sample(pattern=ring, seconds=0.0, run=0, issue="group", set_aside="gpu2 did not answer"),
    ]
    return Measurements.of(samples, ["x"], [Run(provenance=PROVENANCE | changes, source="x")])


def stripped(measurements: Measurements) -> list[Sample]:
    """All samples without where they came from."""
    every = (*measurements.samples, *measurements.set_aside)
    return [msgspec.structs.replace(s, where=None) for s in every]
