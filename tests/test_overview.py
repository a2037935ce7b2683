"""What is said of figures beside the findings."""

from __future__ import annotations

import pytest
from finding_figures import box, evenly

from topocal.measure.importers.figures import alone
from topocal.measure.patterns import both_ways, bundle
from topocal.measure.samples import Measurements, Sample
from topocal.solve.explain import explain
from topocal.topo.errors import Where

GB = 1e9
SIZE = 2.0**28


def pair(a: str, b: str, rate: float) -> Sample:
    return alone(a, b, rate * GB, where=Where(file="x"))


def at_once(rate: float, *pairs: tuple[str, str]) -> Sample:
    return Sample(pattern=bundle(list(pairs), SIZE), seconds=SIZE * len(pairs) / (rate * GB))


def together(a: str, b: str, rate: float) -> Sample:
    return Sample(pattern=both_ways(a, b, SIZE), seconds=2 * SIZE / (rate * GB))


#   The figures, and what is said where nothing was found in them.
QUIET = {
    "one pair": ([pair("gpu0", "gpu1", 25)], "the figures are too few to be compared"),
    "two": (
        [pair("gpu0", "gpu1", 25), pair("gpu1", "gpu0", 25)],
        "nothing reads slower than its like",
    ),
    "both ways": (
        [pair("gpu0", "gpu1", 25), pair("gpu1", "gpu0", 25), together("gpu0", "gpu1", 50)],
        "nothing reads slower than its like, and no transfer loses by another",
    ),
    "a lone bundle": (
        [at_once(50, ("gpu0", "gpu1"), ("gpu2", "gpu3"))],
        "the figures are too few to be compared",
    ),
}


@pytest.mark.parametrize("kind", QUIET)
def test_no_more_is_said_than_the_figures_could_have_shown(kind: str) -> None:
    samples, said = QUIET[kind]
    found = explain(Measurements.of(samples, ["x"]), time_limit_s=0.0)
    assert not found.findings
    assert found.quiet.startswith(said)
    assert "loses" in said or "loses" not in found.quiet


def test_both_directions_of_one_pair_are_no_several() -> None:
    machine = box(4, 2)
    rates = evenly(machine, 25.0)
    samples = [alone(a, b, rate, where=Where(file="x")) for (a, b), rate in rates.items()]
    alone_only = explain(Measurements.of(samples, ["x"]), time_limit_s=0.0)
    assert "none here did" in alone_only.blind_spot
    samples += [together(a, b, 50) for a, b in rates if a < b]
    with_both = explain(Measurements.of(samples, ["x"]), time_limit_s=0.0)
    assert "here only the two directions of one pair did" in with_both.blind_spot
