"""One hypothesis on who shares bytes and who shares time, fitted; and what else one may ask it.

Pairs are explained first, by the capacities that a specification gives or else by the senders
(one rate on each side of the machine), and by whatever else they demand.  Then come the
concurrent observations.  Resources are added only while some observation is still predicted
too short, the one that promises most first, and stay only when they buy more than the
log(observations) that a number costs.  What a hypothesis costs is its misfit plus that price
for each number that only concurrent observations needed (BIC); resources whose capacities
agree count as one number, and those that pass what is specified as none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topocal.solve.candidates import RECEIVER, SENDER, Candidates
from topocal.solve.cost import LEAST_KAPPA, Estimate, huber
from topocal.solve.estimate import estimate
from topocal.solve.judge import SAME_SIGMAS, prefer_time
from topocal.solve.judge_closely import Judge
from topocal.solve.nearby import SHARE, Nearby
from topocal.solve.opposed import never_opposed
from topocal.solve.polish import MOST_OBSERVATIONS
from topocal.solve.residuation import upper_bounds
from topocal.solve.rows import Rows, first_busiest
from topocal.topo.topology import Topology

__all__ = [
    "LEAST_SPREAD",
    "SPREAD",
    "WORTH_A_MENTION",
    "Fit",
    "Hypotheses",
    "nominal_prior",
    "stand_ins",
]

WORTH_A_MENTION: Final = 2.0
"""Smallest difference of BIC that decides (Kass & Raftery 1995, section 3.2)."""

SPREAD: Final = 1.3
"""Flows whose rates alone differ by 30 % tell sharing of bytes from sharing of time; equal
ones never do (docs/model.md)."""

LEAST_SPREAD: Final = 1.1
"""Below that nothing is decided: the scatter of rates alone makes such differences."""

VERY_STRONG: Final = 10.0
"""Difference of BIC that decides where flows differ by less than :data:`SPREAD` (Kass & Raftery
1995: very strong evidence)."""

SIGMAS: Final = 3.0
"""An observation is still unexplained when it is predicted too short by this many deviations."""

MOST_ROUNDS: Final = 3
"""Rounds of judging endpoints."""

MOST_SINGLE: Final = 32
"""Endpoints that are tried one by one in a round."""

ASK_NEARBY_FROM: Final = MOST_OBSERVATIONS
"""Up to so many observations everything is fitted again for every trial: it takes no time."""

HOPELESS: Final = 2.0
"""A hypothesis that costs so many times what another does is given up."""

ASK_NEARBY_SHARE: Final = 0.1
"""…and where the fans of what is tried are more than this share of them it would take as long."""


Told: TypeAlias = tuple[tuple[str, int], int, float, bool]
"""An endpoint and side, the column of its engine, how much its own fans prefer time to bytes, and
whether that decides."""


@dataclass(frozen=True)
class Fit:
    """One hypothesis, fitted."""

    candidates: Candidates
    rows: Rows
    estimate: Estimate
    active: NDArray[np.bool_]
    engines: NDArray[np.bool_]
    numbers: int
    bic: float

    @property
    def topology(self) -> Topology:
        """With all candidates."""
        return self.candidates.topology


def nominal_prior(topology: Topology) -> NDArray[np.float64]:
    """Log seconds per byte of every resource by specification, NaN where unknown."""
    return np.array(
        [
            -math.log(r.nominal_Bps) if r.nominal_Bps else math.nan
            for r in topology.resources.values()
        ]
    )


def stand_ins(wanted: NDArray[np.bool_], series: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The wanted resources, each by the one that stands for its series."""
    found = np.zeros_like(wanted)
    found[series[wanted]] = True
    return found


def _slowest_of_series(
    prior: NDArray[np.float64], series: NDArray[np.int64]
) -> NDArray[np.float64]:
    slowest = np.full(len(prior), -np.inf)
    known = np.isfinite(prior)
    np.maximum.at(slowest, series[known], prior[known])
    return np.where(np.isfinite(slowest[series]), slowest[series], np.nan)


class Hypotheses:
    """The observations, and what hypotheses about them have in common."""

    def __init__(self, candidates: Candidates, rows: Rows) -> None:
        self.candidates = candidates
        self.rows = rows
        # Of capacities in series the first stands for all, with the slowest nominal value.
        self._alone = rows.series == np.arange(len(rows.resources))
        self.prior = _slowest_of_series(nominal_prior(candidates.topology), rows.series)
        self._supposed = np.array([name in candidates.rank for name in rows.resources], dtype=bool)
        self._refused = ~self._alone | never_opposed(candidates, rows)
        self._column = {name: k for k, name in enumerate(rows.resources)}
        self.none = np.zeros(len(rows.resources), dtype=bool)
        self._price = math.log(max(2, len(rows.observations)))
        single = np.array([len(o.pattern.flows) == 1 for o in rows.observations], dtype=bool)
        by_pairs = self._base()
        self._by_pairs: Estimate | None = None
        self._paired = np.zeros(len(rows.resources), dtype=bool)
        self._hidden = self.none
        if single.any():
            pairs = rows.with_engines(self.none).some(single)
            carried = np.isfinite(upper_bounds(pairs))
            # What a sender passes to some of its peers, pairs show: of one that none shows, a
            # fan would say that it passes as little as the one flow of it there.
            classes = np.array([name in candidates.classes for name in rows.resources], dtype=bool)
            self._refused |= classes & ~carried
            self._hidden = by_pairs & ~(carried | np.isfinite(self.prior))
            by_pairs &= ~self._hidden
            self._by_pairs = self._select(pairs, by_pairs, None)
            self._paired = carried & by_pairs
        self._start = by_pairs
        self._nearby: tuple[Fit, Nearby, set[int]] | None = None
        self._told: tuple[Fit, list[Told]] | None = None

    def _base(self) -> NDArray[np.bool_]:
        """What explains pairs before anything else: specifications, else senders."""
        known = np.isfinite(self.prior)
        loaded = self.rows.crowd > 0
        if known[loaded].mean() >= 0.25 if loaded.any() else False:
            return np.asarray(known & self._alone)
        senders = np.array([name in self.candidates.senders for name in self.rows.resources])
        return stand_ins(senders, self.rows.series)

    def engines_of(self, side: int) -> NDArray[np.bool_]:
        """The engines of all endpoints on one side."""
        wanted = self.none.copy()
        wanted[[self._column[n] for (_, s), n in self.candidates.engines.items() if s == side]] = 1
        return wanted

    def hopeless(self, plain: Fit) -> float:
        """The cost from which a fit with engines need not be brought to its end.

        Capacities explain all without a resource more than is specified, and the engines cost
        :data:`HOPELESS` times as much when every capacity was tried over its range: what costs
        is that they are too long, and resources that would be added only lengthen.  (Of 1600
        random machines where the fit was brought to its end none came down from there to
        what capacities cost; from 1.5 times none either.)
        """
        if len(self.rows.observations) <= ASK_NEARBY_FROM or (plain.active != self._start).any():
            return math.inf
        return HOPELESS * plain.estimate.objective

    def fit(
        self, engines: NDArray[np.bool_], start: Fit | None = None, *, give_up: float = math.inf
    ) -> Fit:
        """Fit with the given engines at work, unless it costs more than ``give_up`` early on.

        What was supposed for endpoints whose engine is switched has to be demanded again.
        """
        rows = self.rows.with_engines(engines)
        active = (self._start if start is None else start.active).copy()
        # Who adds up what its flows take alone tells that of a flow that nobody timed alone.
        added_up = np.zeros_like(active)
        added_up[rows.pair_weight.indices] = True
        active = (active & ~self._hidden) | (self._hidden & added_up)
        if start is not None:
            supposed = self.supposed_for(start)
            for engine in np.flatnonzero(engines != start.engines).tolist():
                active[supposed.get(engine, [])] = False
        # Not from another hypothesis: its capacities may already stand where a fan put them.
        begin = self._by_pairs if start is None else start.estimate
        result = self._select(rows, active, begin, give_up)
        sides = len(np.unique(rows.shared.side))
        numbers = self._count(result, active & ~self._paired, rows) + sides
        bic = result.objective + numbers * self._price
        return Fit(self.candidates, rows, result, active, engines, numbers, bic)

    def _select(
        self,
        rows: Rows,
        active: NDArray[np.bool_],
        start: Estimate | None,
        give_up: float = math.inf,
    ) -> Estimate:
        """Fit, and add to ``active`` what the observations demand, until they demand no more."""
        bound = upper_bounds(rows)
        first = estimate(rows, self.prior, active, start, give_up=give_up)
        if first.objective > give_up:
            return first
        result, added = self._add(rows, bound, active, first, self._refused)
        if len(rows.observations) > MOST_OBSERVATIONS:
            return result
        # One supposed resource may half explain what links of the machine explain in full.
        for doubted in [k for k in added if self._supposed[k]]:
            fewer = active.copy()
            fewer[doubted] = False
            refused = self._refused.copy()
            refused[doubted] = True
            again = estimate(rows, self.prior, fewer, result)
            other, instead = self._add(rows, bound, fewer, again, refused)
            more = len(instead) - 1
            if other.objective + more * self._price <= result.objective + WORTH_A_MENTION:
                result, active[:] = other, fewer
        return result

    def _add(
        self,
        rows: Rows,
        bound: NDArray[np.float64],
        active: NDArray[np.bool_],
        result: Estimate,
        refused: NDArray[np.bool_],
    ) -> tuple[Estimate, list[int]]:
        """The fit with what is demanded, added to ``active`` one by one, and what was added."""
        added: list[int] = []
        refused = refused.copy()
        while True:
            wanted = self._most_wanted(rows, result, bound, active | refused)
            if wanted is None:
                return result, added
            active[wanted] = True
            extended = estimate(rows, self.prior, active, result)
            if result.objective - extended.objective > self._price:
                result = extended
                added.append(wanted)
            else:
                active[wanted], refused[wanted] = False, True

    def _most_wanted(
        self,
        rows: Rows,
        result: Estimate,
        bound: NDArray[np.float64],
        excluded: NDArray[np.bool_],
    ) -> int | None:
        """The resource outside ``excluded`` that promises most for those predicted too short.

        A resource promises, for each of those, what the cost falls by when it passes as
        little as all observations allow.
        """
        lacking = (rows.log_seconds - result.log_predicted) / rows.sigma
        entries = rows.log_load.tocoo()
        row, column = entries.coords
        able = (lacking[row] > SIGMAS) & ~excluded[column]
        if not able.any():
            return None
        row, column, load = row[able], column[able], entries.data[able]
        left = (rows.log_seconds[row] - load - bound[column]) / rows.sigma[row]
        gain = huber(lacking[row]) - huber(np.minimum(left, lacking[row]))
        promise = np.bincount(column, weights=gain, minlength=len(bound))
        ranked = np.lexsort((np.arange(len(promise)), rows.crowd, -np.round(promise, 6)))
        best = int(ranked[0])
        return best if promise[best] > self._price else None

    def _count(self, result: Estimate, added: NDArray[np.bool_], rows: Rows) -> int:
        """Numbers that only concurrent observations needed: capacities that agree count once,
        and those that pass what their specification says do not count."""
        width = 2 * SAME_SIGMAS * float(np.median(rows.sigma)) if len(rows.sigma) else 0.0
        said = np.abs(result.x - self.prior) <= width / 2
        alike, distinct = np.sort(result.x[added & (rows.crowd > 0) & ~said]), 0
        while len(alike):
            distinct += 1
            alike = alike[alike > alike[0] + width]
        return distinct

    def is_refuted(self, fit: Fit, side: int) -> bool:
        """Whether most fans that can tell finished far sooner than by time-sharing."""
        shared = self.rows.shared
        telling = (shared.side == side) & (self._spread(self.rows, fit.estimate) > LEAST_SPREAD)
        if not telling.any():
            return False
        # Rates as the pairs read them: a fit without engines may have bent them to the fans.
        solo = self.rows.solo(fit.estimate.x)
        if self._by_pairs is not None:
            by_pairs = self.rows.solo(np.where(self._start, self._by_pairs.x, -np.inf))
            solo = np.where(np.isfinite(by_pairs), by_pairs, solo)
        busy, _ = shared.busy(solo, np.full(2, math.log(LEAST_KAPPA)))
        row = shared.row[telling]
        lead = (busy[telling] - self.rows.log_seconds[row]) / self.rows.sigma[row]
        return bool((lead > SIGMAS).mean() > 0.5)

    def can_tell(self, fit: Fit, side: int) -> bool:
        """Whether some fan's flows differ enough alone for bytes and time to differ."""
        return self._widest(fit, side) > LEAST_SPREAD

    def worth(self, fit: Fit, side: int) -> float:
        """Difference of BIC that decides a side: more where the flows hardly differ."""
        if self._widest(fit, side) > SPREAD:
            return WORTH_A_MENTION
        return VERY_STRONG

    def _widest(self, fit: Fit, side: int) -> float:
        spread = self._spread(self.rows, fit.estimate)[self.rows.shared.side == side]
        return float(spread.max(initial=1.0))

    @staticmethod
    def _spread(rows: Rows, found: Estimate) -> NDArray[np.float64]:
        """Longest over shortest solo time per byte in every time-shared row."""
        shared = rows.shared
        if not len(shared):
            return np.zeros(0)
        solo = rows.solo(found.x)[shared.pair]
        begin = shared.indptr[:-1]
        longest = np.maximum.reduceat(solo, begin)
        return np.asarray(np.exp(longest - np.minimum.reduceat(solo, begin)))

    def judge_endpoints(self, fit: Fit) -> Fit:
        """Turn single engines on or off where an endpoint's own fans say so, and fit again.

        All that ask for it together; where that does not pay, one by one, the surest first.
        """
        for _ in range(MOST_ROUNDS):
            wishes = self._wishes(fit)
            if not wishes:
                return fit
            before = fit
            everyone = [engine for engine, _ in wishes]
            fit = self._turned(fit, everyone)
            if fit is not before:
                continue
            for engine in everyone[:MOST_SINGLE]:
                fit = self._turned(fit, [engine])
            if fit is before:
                return fit
        return fit

    def without_followers(self, fit: Fit) -> tuple[Fit, frozenset[tuple[str, int]]]:
        """Where a single endpoint of a side tells, and tells of time, no other follows it.

        Two that agree speak for their like; one may be the odd one.  Endpoints whose fans do
        not tell then share bytes, unless the data is far from it.

        Returns
        -------
        tuple[Fit, frozenset[tuple[str, int]]]
            The fit, and the endpoints and sides that stand alone.
        """
        alone: set[tuple[str, int]] = set()
        engines = fit.engines.copy()
        for side in (RECEIVER, SENDER):
            told = [(key, e, sure) for key, e, _, sure in self.evidence(fit) if key[1] == side]
            timed = [key for key, e, sure in told if sure and fit.engines[e]]
            followers = [e for _, e, sure in told if not sure and fit.engines[e]]
            if len(timed) == 1 and followers:
                engines[followers] = False
                alone.update(timed)
        if not alone:
            return fit, frozenset()
        again = self.fit(engines, fit)
        return (
            (again, frozenset(alone)) if again.bic < fit.bic + VERY_STRONG else (fit, frozenset())
        )

    def _turned(self, fit: Fit, which: list[int]) -> Fit:
        """The fit with some engines on that were off, or off that were on, if that pays."""
        engines = fit.engines.copy()
        engines[which] = ~engines[which]
        if not self._may_pay(fit, engines):
            return fit
        again = self.fit(engines, fit)
        return again if again.bic < fit.bic else fit

    def _may_pay(self, fit: Fit, engines: NDArray[np.bool_]) -> bool:
        """Whether other engines may be worth a fit of everything."""
        count, shared = len(self.rows.observations), self.rows.shared
        changed = engines != fit.engines
        fans = len(np.unique(shared.row[changed[shared.resource]]))
        if count <= ASK_NEARBY_FROM or fans > ASK_NEARBY_SHARE * count:
            return True
        if self._nearby is None or self._nearby[0] is not fit:
            around = Nearby(self.rows, fit.estimate, fit.active, fit.engines, self.prior)
            self._nearby = (fit, around, set(self.supposed_for(fit)))
        _, nearby, open_ends = self._nearby
        # Other resources may take the place of what an engine explained, and it theirs.
        if (fit.engines & changed).any() or open_ends & set(np.flatnonzero(changed).tolist()):
            return True
        sides = len(np.unique(shared.side[engines[shared.resource]]))
        more = sides - len(np.unique(shared.side[fit.engines[shared.resource]]))
        return nearby.saving(engines) > (more - SHARE) * self._price

    def _wishes(self, fit: Fit) -> list[tuple[int, float]]:
        """Engines whose endpoint's fans would rather have them the other way, the surest first."""
        found = [
            (engine, abs(prefers_time))
            for (_, engine, prefers_time, sure) in self.evidence(fit)
            if sure and (prefers_time > 0) != fit.engines[engine]
        ]
        return sorted(found, key=lambda one: (-one[1], one[0]))

    def evidence(self, fit: Fit) -> list[Told]:
        """What the fans of each endpoint and side say; kept for the fit that was last asked for."""
        if self._told is None or self._told[0] is not fit:
            self._told = (fit, list(self._ask(fit)))
        return self._told[1]

    def _ask(self, fit: Fit) -> Iterator[Told]:
        spread = self._spread(self.rows, fit.estimate)
        telling = set(self.rows.shared.resource[spread > SPREAD].tolist())
        asked = [
            (self._column[name], self.port_of(key), key[1])
            for key, name in self.candidates.engines.items()
        ]
        state = (self.rows, fit.estimate, fit.active, fit.engines, self.prior)
        if len(self.rows.observations) <= MOST_OBSERVATIONS:
            judge, supposed = Judge(*state), self.supposed_for(fit)
            found = [judge.prefers_time(*one, supposed.get(one[0], ())) for one in asked]
        else:
            found = prefer_time(*state, asked).tolist()
        for key, (engine, _, _), prefers_time in zip(
            self.candidates.engines, asked, found, strict=True
        ):
            # Flows that are alike tell too, where other patterns say what the port passes.
            worth = WORTH_A_MENTION if engine in telling else VERY_STRONG
            yield key, engine, prefers_time, abs(prefers_time) > worth

    def supposed_for(self, fit: Fit) -> dict[int, list[int]]:
        """By engine: the supposed resources that bind fans at its endpoint, and only fans."""
        if not (fit.active & self._supposed & ~self._start).any():
            return {}
        top = first_busiest(self.rows.log_load, np.where(fit.active, fit.estimate.x, -np.inf))
        bound = np.where(top >= 0, self.rows.log_load.indices[top], -1)
        fans: dict[int, set[int]] = {}
        for row, engine in zip(self.rows.shared.row, self.rows.shared.resource, strict=True):
            fans.setdefault(int(row), set()).add(int(engine))
        found: dict[int, list[int]] = {}
        for column in np.flatnonzero(fit.active & self._supposed & ~self._start).tolist():
            binds = np.flatnonzero(bound == column).tolist()
            if not all(row in fans for row in binds):
                continue
            for engine in sorted(set().union(*(fans[row] for row in binds))):
                found.setdefault(engine, []).append(column)
        return found

    def port_of(self, key: tuple[str, int]) -> int:
        """Column that stands for the port of an endpoint's side."""
        return int(self.rows.series[self._column[self.candidates.ports[key]]])

    def fans_of(self, key: tuple[str, int]) -> frozenset[int]:
        """Observations with several flows at an endpoint's side."""
        shared = self.rows.shared
        engine = self._column[self.candidates.engines[key]]
        return frozenset(shared.row[shared.resource == engine].tolist())
