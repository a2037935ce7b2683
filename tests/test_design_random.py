"""Designs of random machines against the simulator, and against every small pattern."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.design import CLEAR_RATIO, design
from topocal.measure.patterns import bundle
from topocal.measure.plan import Outcome, Plan
from topocal.measure.setting import LEAST_RATIO
from topocal.topo.busiest import busiest
from topocal.topo.capacities import SHARING_CODE, Capacities
from topocal.topo.flow import Pattern
from topocal.topo.incidence import incidence
from topocal.topo.machines import (
    MACHINES,
    random_cluster,
    random_fabric_set,
    random_pcie_tree,
)
from topocal.topo.resource import PathClass, Resource, Sharing, Use
from topocal.topo.topology import Topology


def _random_machine(seed: int, gpus: int) -> Topology:
    """A tree, a set of direct links or a cluster, with some resources that no link shows."""
    rng = np.random.default_rng(seed)
    match int(rng.integers(3)):
        case 0:
            topology = random_pcie_tree(rng, gpus=gpus)
        case 1:
            topology = random_fabric_set(rng, gpus=gpus)
        case _:
            topology = random_cluster(rng, nodes=2, gpus=gpus // 2)
    ends = topology.accelerators
    resources, uses = [], []
    for k in range(int(rng.integers(0, 5))):
        sharing = list(Sharing)[int(rng.integers(4))]
        timed = sharing is Sharing.TIME_SHARED
        resources.append(
            Resource(
                id=f"extra{k}",
                sharing=sharing,
                nominal_Bps=None if timed else float(rng.choice([5e9, 20e9, 40e9])),
                kappa=float(rng.choice([0.8, 1.0])) if timed else 1.0,
            )
        )
        some = [
            tuple(str(e) for e in rng.choice(ends, int(rng.integers(1, len(ends) + 1)), False))
            for _ in range(2)
        ]
        uses.append(
            Use(
                resource=f"extra{k}",
                sources=some[0] if rng.random() < 0.7 else None,
                destinations=some[1] if rng.random() < 0.7 else None,
                weight=float(rng.choice([1, 2])),
            )
        )
    return topology.with_resources(resources, uses)


def _assumed(topology: Topology, plan: Plan) -> Capacities:
    values = {
        f.resource: math.inf if f.assumed_Bps is None else f.assumed_Bps for f in plan.resources
    }
    return Capacities.of(topology, values)


class _Oracle:
    """How far each resource is ahead of all others in any pattern, by the simulator."""

    def __init__(self, topology: Topology, plan: Plan) -> None:
        self.topology = topology
        self.capacities = _assumed(topology, plan)
        self.columns = {name: k for k, name in enumerate(topology.resources)}
        self._series: dict[str, set[str]] = {name: {name} for name in topology.resources}
        for finding in plan.resources:
            if finding.outcome is Outcome.SERIES:
                self._series[finding.others[0]].add(finding.resource)

    def busy(self, patterns: list[Pattern]) -> np.ndarray:
        """Busy seconds, shape (patterns, resources); a lone flow does not wait for an engine."""
        sized = [p.scaled(1e9) for p in patterns]
        busy = busiest(self.topology, sized, self.capacities).utilisation_s.toarray()
        timed = self.capacities.sharing == SHARING_CODE[Sharing.TIME_SHARED]
        pairs = list(dict.fromkeys(pair for p in sized for pair in p.pairs))
        crossed = dict(
            zip(pairs, incidence(self.topology, pairs).matrix.toarray() > 0, strict=True)
        )
        flows = np.array([sum(crossed[pair].astype(int) for pair in p.pairs) for p in sized])
        return np.where(timed & (flows < 2), 0.0, busy)

    def ratios(self, resource: str, busy: np.ndarray) -> np.ndarray:
        """The resource's busy seconds over those of all that is not in series with it."""
        mine = busy[:, self.columns[resource]]
        others = [k for name, k in self.columns.items() if name not in self._series[resource]]
        longest = busy[:, others].max(axis=1, initial=0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(longest > 0, mine / longest, np.where(mine > 0, math.inf, 0.0))


def _check_claims(topology: Topology, plan: Plan) -> None:
    """Every pattern's claimed ratio holds under the assumed capacities."""
    oracle = _Oracle(topology, plan)
    for finding in plan.resources:
        if finding.outcome not in (Outcome.CLEAR, Outcome.NARROW):
            continue
        assert finding.pattern is not None
        pattern = plan.patterns[finding.pattern].pattern
        ratio = float(oracle.ratios(finding.resource, oracle.busy([pattern]))[0])
        claimed = math.inf if finding.ratio is None else finding.ratio
        assert ratio == pytest.approx(claimed, rel=1e-9), finding
        is_clear = claimed >= CLEAR_RATIO
        assert (finding.outcome is Outcome.CLEAR) == is_clear
        assert claimed >= LEAST_RATIO
        if finding.ceiling is not None:
            assert claimed <= finding.ceiling * (1 + 1e-6)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_every_claimed_ratio_holds(seed: int, gpus: int) -> None:
    topology = _random_machine(seed, gpus)
    if len(topology.accelerators) >= 2:
        _check_claims(topology, design(topology))


@pytest.mark.parametrize("name", MACHINES)
def test_claims_hold_on_reference_machines(name: str) -> None:
    topology = MACHINES[name].build()
    _check_claims(topology, design(topology))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(3, 4))
def test_no_pattern_of_three_flows_does_what_is_said_to_be_impossible(seed: int, gpus: int) -> None:
    topology = _random_machine(seed, gpus)
    ends = topology.accelerators
    if len(ends) < 2:
        return
    plan = design(topology)
    joined = topology.routes(ends).path_class != PathClass.DIS
    pairs = [
        (a, b) for i, a in enumerate(ends) for j, b in enumerate(ends) if i != j and joined[i, j]
    ]
    patterns = [bundle(chosen) for k in (1, 2, 3) for chosen in itertools.combinations(pairs, k)]
    oracle = _Oracle(topology, plan)
    busy = oracle.busy(patterns)
    for finding in plan.resources:
        best = float(oracle.ratios(finding.resource, busy).max())
        match finding.outcome:
            case Outcome.UNUSED:
                assert not busy[:, oracle.columns[finding.resource]].any()
            case Outcome.SERIES:
                mine, other = (
                    busy[:, oracle.columns[name]] for name in (finding.resource, finding.others[0])
                )
                assert ((mine > 0) == (other > 0)).all()
                assert (mine <= other * (1 + 1e-9)).all()
            case Outcome.DOMINATED | Outcome.FED | Outcome.TRIED:
                assert best < LEAST_RATIO
            case Outcome.CLEAR:
                pass
            case Outcome.NARROW:
                assert best < CLEAR_RATIO
            case Outcome.NOT_FOUND:
                assert best < LEAST_RATIO
        if finding.ceiling is not None and finding.outcome is not Outcome.SERIES:
            assert best <= finding.ceiling * (1 + 1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_the_same_machine_gives_the_same_plan(seed: int, gpus: int) -> None:
    first, second = _random_machine(seed, gpus), _random_machine(seed, gpus)
    if len(first.accelerators) >= 2:
        assert design(first) == design(second)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(-6, 6))
def test_units_make_no_difference(seed: int, power: int) -> None:
    """All capacities times a factor, a power of two, which rounds nothing: what is as good as
    something else stays so.  The same patterns, the same ratios."""
    factor = 2.0**power
    topology = random_pcie_tree(np.random.default_rng(seed), gpus=5)
    plan = design(topology)
    slower = {
        f.resource: 1 / (factor * f.assumed_Bps)
        for f in plan.resources
        if f.assumed_Bps is not None
    }
    same = {f.resource: 1 / f.assumed_Bps for f in plan.resources if f.assumed_Bps is not None}
    scaled, given_ = design(topology, theta=slower), design(topology, theta=same)
    assert [p.flows for p in scaled.patterns] == [p.flows for p in given_.patterns]
    for one, other in zip(scaled.resources, given_.resources, strict=True):
        assert one.outcome is other.outcome
        assert one.ratio == pytest.approx(other.ratio)
