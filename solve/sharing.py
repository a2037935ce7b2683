"""Do receivers, or senders, share bytes or time?  All are fitted; the simplest that suffices wins.

Pairs alone cannot tell: sharing matters only when several flows meet.  So the pairs are
explained first, by the capacities that a specification gives or else by the senders
(one rate on each side of the machine), and by whatever else they demand.  Then the
concurrent observations are explained three times over: by capacities alone, with
receivers that serve one flow at a time, and with senders that do, one overlap factor
for all.  Resources are added only while some observation is still predicted too short,
the one that promises most first, and stay only when they buy more than the
log(observations) that a number costs.  What a hypothesis costs is its misfit plus that
price for each number that only concurrent observations needed (BIC; Kass & Raftery 1995:
a difference below 2 is not worth a mention); resources whose capacities agree count as
one number.

Then every endpoint whose own fans tell is judged by them: time, or the best capacity that
its other observations allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from topocal.solve.candidates import RECEIVER, SENDER, Candidates
from topocal.solve.hypotheses import Fit, Hypotheses
from topocal.solve.polish import MOST_OBSERVATIONS, polish
from topocal.solve.rows import Observation, Rows, build_rows

__all__ = ["SharingVerdict", "fit_sharing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingVerdict:
    """Which hypothesis was chosen and by how much.

    Attributes
    ----------
    time_shared
        Endpoints and sides (0 receiving, 1 sending) that serve one flow at a time.
    advantage
        BIC of capacities alone less that of the chosen hypothesis.
    undecided
        Sides (0 receiving, 1 sending) on which the data cannot tell bytes from time.
    undecided_endpoints
        Endpoints and sides whose own fans do not tell, where those of others disagree.
    fans_at
        By column of the port of an endpoint that may share bytes or time: the observations
        of its fans, which say nothing sure of that port.
    text
        The same in a sentence.
    """

    time_shared: frozenset[tuple[str, int]]
    undecided: tuple[int, ...]
    undecided_endpoints: tuple[tuple[str, int], ...]
    fans_at: Mapping[int, frozenset[int]]
    advantage: float
    text: str


def fit_sharing(
    candidates: Candidates,
    observations: Sequence[Observation],
    adjusted: Callable[[Rows], Rows] | None = None,
) -> tuple[Fit, SharingVerdict]:
    """Fit all hypotheses and choose.

    Parameters
    ----------
    adjusted
        Changes the loads before anything is fitted.

    Raises
    ------
    SolverError
        When an optimiser fails.
    """
    rows = build_rows(candidates.topology, observations, candidates.rank)
    if adjusted is not None:
        rows = adjusted(rows)
    problem = Hypotheses(candidates, rows)
    fits: dict[int | None, Fit] = {None: problem.fit(problem.none)}
    settled: set[int] = set()
    for side in (RECEIVER, SENDER):
        engines = problem.engines_of(side)
        if not engines[rows.shared.resource].any() or not problem.can_tell(fits[None], side):
            continue
        if problem.is_refuted(fits[None], side):
            settled.add(side)
        else:
            fits[side] = problem.fit(engines, give_up=problem.hopeless(fits[None]))
    best = min(fits, key=lambda side: fits[side].bic)
    for tried in (RECEIVER, SENDER):
        if tried not in fits:
            continue
        if abs(fits[tried].bic - fits[None].bic) > problem.worth(fits[None], tried):
            settled.add(tried)
        elif tried == best:
            best = None
    chosen, alone = problem.without_followers(problem.judge_endpoints(fits[best]))
    verdict = _verdict(problem, fits, chosen, best, settled, alone)
    if len(observations) <= MOST_OBSERVATIONS:
        polished = polish(chosen.rows, problem.prior, chosen.active, chosen.estimate)
        chosen = replace(chosen, estimate=polished)
    return chosen, verdict


def _verdict(
    problem: Hypotheses,
    fits: dict[int | None, Fit],
    chosen: Fit,
    best: int | None,
    settled: set[int],
    alone: frozenset[tuple[str, int]],
) -> SharingVerdict:
    column = {name: k for k, name in enumerate(chosen.rows.resources)}
    at_work = frozenset(
        key for key, name in problem.candidates.engines.items() if chosen.engines[column[name]]
    )
    plain, sides = fits[None], set(problem.rows.shared.side.tolist())
    advantage = 0.0
    if best is not None:
        advantage = plain.bic - fits[best].bic
    if alone:
        endpoint, side = min(alone)
        kappa = math.exp(chosen.estimate.log_kappa[side])
        what = "sender" if side == SENDER else "receiver"
        text = (
            f"{what} {endpoint} shares time by its own fans (overlap factor {kappa:.3f}, "
            f"BIC {advantage:.1f} better than capacities alone); no fan tells whether the other "
            f"{what}s do. They are taken to share bytes, and predictions allow for both"
        )
    elif best is not None:
        whom = "receivers" if best == RECEIVER else "senders"
        text = (
            f"{whom} are time-shared: one overlap factor "
            f"({math.exp(chosen.estimate.log_kappa[best]):.3f}) with {chosen.numbers} fitted "
            f"number{'s' * (chosen.numbers != 1)} in all explains the {_concurrent(chosen)} "
            f"concurrent figures, where capacities take {plain.numbers} "
            f"(BIC {advantage:.1f} better)"
        )
    elif RECEIVER in settled:
        text = (
            f"receivers share bytes: capacities explain the {_concurrent(chosen)} concurrent "
            "figures better than time-sharing"
        )
    elif RECEIVER not in sides:
        text = (
            "receivers: no fan into one endpoint was measured, so whether they share bytes or "
            "time is unknown; they are taken to share bytes"
        )
    else:
        text = (
            "receivers: the data cannot tell whether they share bytes or time; they are taken to "
            "share bytes. A fan whose senders differ by 30 % or more alone would tell"
        )
    undecided, single = _undecided(problem, chosen, settled)
    open_ends = {
        key
        for key in problem.candidates.engines
        if key not in at_work and (key[1] in undecided or key in single)
    }
    return SharingVerdict(
        time_shared=at_work,
        undecided=undecided,
        undecided_endpoints=single,
        fans_at={problem.port_of(key): problem.fans_of(key) for key in sorted(open_ends)},
        advantage=advantage,
        text=text + ("" if alone else _exceptions(problem, at_work, best)),
    )


def _undecided(
    problem: Hypotheses, fit: Fit, settled: set[int]
) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
    """Sides of which nothing tells, and of others the single endpoints that do not.

    Where the endpoints of a side are of one kind, those that do not tell follow the others;
    where they differ, or all of them together did not decide, none follows.
    """
    told: dict[int, set[bool]] = {RECEIVER: set(), SENDER: set()}
    states: dict[int, set[bool]] = {RECEIVER: set(), SENDER: set()}
    weak = []
    for key, engine, _, sure in problem.evidence(fit):
        state = bool(fit.engines[engine])
        states[key[1]].add(state)
        if sure:
            told[key[1]].add(state)
        else:
            weak.append(key)
    silent = {side for side in told if side not in settled and not told[side]}
    open_ = {side for side in told if side not in settled or len(states[side]) > 1} - silent
    return tuple(sorted(silent)), tuple(key for key in weak if key[1] in open_)


def _concurrent(fit: Fit) -> int:
    return sum(len(o.pattern.flows) > 1 for o in fit.rows.observations)


def _exceptions(problem: Hypotheses, at_work: frozenset[tuple[str, int]], best: int | None) -> str:
    """Endpoints that their own fans judge otherwise than the rest."""
    words = []
    for side, whom in ((RECEIVER, "receiver"), (SENDER, "sender")):
        every = {endpoint for endpoint, s in problem.candidates.engines if s == side}
        timed = {endpoint for endpoint, s in at_work if s == side}
        odd = sorted(every - timed if side == best else timed)
        if odd:
            how = "shares bytes" if side == best else "shares time"
            words += [f"{whom} {endpoint} {how}" for endpoint in odd]
    return "; but by their own fans " + ", ".join(words) if words else ""
