"""The fewest resources that reproduce what was measured, or the proof that none do.

An explanation, never the estimate: of the candidates (:mod:`topocal.solve.explanation_columns`)
it names the fewest that, with suitable capacities, bring every figure within its tolerance,
and says whether other sets of the same size would do.  A mixed-integer program
(:mod:`topocal.solve.minimum_program`) finds it under a time limit; what it returns is
evaluated by the law itself before it is believed.

Often no set of capacities can: then there is a scenario that took longer than any
candidate could be busy, given what the other scenarios say each is able to pass.  That
is a proof in closed form, by residuation, and it comes with that scenario's name.  Without
any list of candidates, :mod:`topocal.solve.certificate` proves a weaker bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from topocal.solve.demands import Demands
from topocal.solve.evidence import listed
from topocal.solve.integer import ProgramStatus, relative_gap
from topocal.solve.minimum_capacities import evaluate, is_explanation, settle
from topocal.solve.minimum_program import Choice, Need, Program
from topocal.solve.resource_words import labels_in_words, resources_in_words
from topocal.solve.words import name_in_words
from topocal.topo.units import format_rate, format_seconds

__all__ = [
    "Chosen",
    "Minimum",
    "Refutation",
    "explain_by_fewest",
    "loosest_refutation",
    "refute",
]

MOST_LINES: Final = 12
"""More are no explanation to read."""

ROUNDING: Final = 1e-6
"""A bound that is a whole number but for this counts as it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A resource of the explanation.

    Attributes
    ----------
    resource
        Its label.
    capacity_Bps
        One that brings all figures within their tolerances, as near their middle as can be.
    explains
        Scenarios that it is the busiest of.
    """

    resource: str
    capacity_Bps: float
    explains: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refutation:
    """Why no candidates explain what was measured.

    Attributes
    ----------
    scenario
        The one that nothing explains.
    least_s, most_s
        How long it takes at least, and the longest that any candidate can be busy with it;
        where ``receiver`` is set, how long that is busy at least, and the longest the scenario
        may take.
    busiest
        The candidate that can be busy longest, empty where the scenario loads none.
    held_by
        The scenario that says the candidate is no slower.
    receiver
        The time-shared receiver that takes too long, empty where nothing takes long enough.
    size_bytes
        Of the scenario, zero where unknown.
    """

    scenario: str
    least_s: float
    most_s: float
    busiest: str
    held_by: str
    receiver: str = ""
    size_bytes: float = 0.0

    @property
    def excess(self) -> float:
        """How far the two times are apart, relative."""
        return self.least_s / self.most_s - 1.0 if self.most_s > 0 else math.inf

    @property
    def sentence(self) -> str:
        """The proof in words."""
        name = name_in_words(self.scenario)
        least, most = self._amount(self.least_s), self._amount(self.most_s)
        if self.receiver:
            if self.size_bytes:
                return (
                    f"{name} passes {most} or more, but one after another its flows into a "
                    f"time-shared {self.receiver} pass {least} at most"
                )
            return (
                f"{name} takes {most} at most, but a time-shared {self.receiver} is busy with its "
                f"flows for {least} or more"
            )
        if not self.busiest:
            return f"{name} loads none of the candidates"
        held_by = name_in_words(self.held_by)
        if self.size_bytes:
            return (
                f"{name} passes {least} at most, but every candidate lets it pass {most} or more: "
                f"the tightest is {self.busiest}, and {held_by} says that it is no slower"
            )
        return (
            f"{name} takes {least} or more, but no candidate can be busy with it for longer than "
            f"{most}: that is {self.busiest}, and {held_by} says that it is no slower"
        )

    def _amount(self, seconds: float) -> str:
        """A time as the throughput that it means, where the size is known."""
        if self.size_bytes and seconds > 0:
            return format_rate(self.size_bytes / seconds)
        return format_seconds(seconds)


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """The explanation, or what is known of it when time ran out.

    Attributes
    ----------
    status
        ``optimal``: no fewer do; ``feasible``: these do, perhaps fewer would; ``infeasible``:
        none do; ``time limit``: none were found.
    chosen
        The resources, in the order of the candidates.
    time_shared
        Receivers that are time-shared, by name.
    explanation
        By scenario, the label of what is busiest.
    at_least
        Proven: no explanation has fewer resources.
    unique
        Whether no other set of the same size does; ``None`` where that was not settled.
    other
        Another set of the same size, by label, where there is one.
    refutations
        Where infeasible: scenarios that nothing explains; empty where only the search proved it.
    worst
        Largest |log| that a figure of its own is off by.
    seconds
        Wall time.
    sentences
        For people.
    """

    status: ProgramStatus
    chosen: tuple[Chosen, ...]
    time_shared: tuple[str, ...]
    explanation: Mapping[str, str]
    at_least: int
    unique: bool | None
    other: tuple[str, ...]
    refutations: tuple[Refutation, ...]
    worst: float
    seconds: float
    sentences: tuple[str, ...]

    @property
    def gap(self) -> float:
        """How far the number of resources may be from the least, relative; inf without any."""
        if self.status is ProgramStatus.TIME_LIMIT:
            return math.inf
        return relative_gap(float(len(self.chosen)), float(min(self.at_least, len(self.chosen))))


def refute(demands: Demands) -> tuple[Refutation, ...]:
    """Scenarios that no candidate can explain: proofs in closed form, the clearest first.

    Empty when there are none; that alone does not mean that an explanation exists.
    """
    program = Program(demands)
    found = [_refutation(program, need) for need in program.hopeless]
    engines = demands.engines
    for k, least in program.overfull:
        assert engines is not None
        s = int(engines.scenario[k])
        found.append(
            Refutation(
                scenario=demands.scenarios[s],
                least_s=least * math.exp(demands.high[s]),
                most_s=math.exp(demands.high[s]),
                busiest="",
                held_by="",
                receiver=engines.names[int(engines.engine[k])],
                size_bytes=demands.sizes[s] if demands.sizes else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda r: (-r.excess, r.scenario)))


def _refutation(program: Program, need: Need) -> Refutation:
    demands, s = program.demands, need.scenario
    entries = demands.log_load.tocoo()
    row, column = entries.coords
    here = np.flatnonzero(row == s)
    allowed = math.exp(demands.high[s])
    least_s = need.least * allowed
    if not len(here):
        return Refutation(
            scenario=demands.scenarios[s], least_s=least_s, most_s=0.0, busiest="", held_by=""
        )
    busy = entries.data[here] + program.slowest[column[here]]
    at = here[int(np.argmax(busy))]
    mine = np.flatnonzero(column == column[at])
    holds = mine[int(np.argmin(demands.high[row[mine]] - entries.data[mine]))]
    return Refutation(
        scenario=demands.scenarios[s],
        least_s=least_s,
        most_s=math.exp(float(busy.max())),
        busiest=demands.resources[int(column[at])],
        held_by=demands.scenarios[int(row[holds])],
        size_bytes=demands.sizes[s] if demands.sizes else 0.0,
    )


def loosest_refutation(
    demands_at: Callable[[float], Demands], *, most: float = 4.0, step: float = 1e-3
) -> float | None:
    """The largest tolerance up to which the closed form proves that nothing explains the data.

    Parameters
    ----------
    demands_at
        What is to be explained at a tolerance; must get looser as that grows.
    most, step
        Where to stop looking, and how finely.

    Returns
    -------
    ``None`` when even no tolerance at all refutes nothing.
    """
    if not refute(demands_at(0.0)):
        return None
    low, high = 0.0, most
    if refute(demands_at(most)):
        return most
    while high - low > step:
        middle = (low + high) / 2
        if refute(demands_at(middle)):
            low = middle
        else:
            high = middle
    return low


def explain_by_fewest(
    demands: Demands, *, time_limit_s: float = 10.0, check_unique: bool = True
) -> Minimum:
    """The fewest candidates that explain everything.

    Parameters
    ----------
    time_limit_s
        Wall time for all.
    check_unique
        Whether to look for another set of the same size.

    Raises
    ------
    SolverError
        When the solver returns what is no explanation.
    """
    begin = time.perf_counter()
    refutations = refute(demands)
    if refutations:
        return _none(demands, ProgramStatus.INFEASIBLE, refutations, 0, begin)
    program = Program(demands)
    outcome, choice = program.solve(time_limit_s=time_limit_s)
    at_least = math.floor(outcome.bound + ROUNDING) if math.isfinite(outcome.bound) else 0
    if choice is None:
        return _none(demands, outcome.status, (), at_least, begin)
    status = ProgramStatus.FEASIBLE
    if at_least >= len(choice.columns):
        status, at_least = ProgramStatus.OPTIMAL, len(choice.columns)
    settled = settle(program, choice)
    unique: bool | None = None
    other: tuple[str, ...] = ()
    left = time_limit_s - (time.perf_counter() - begin)
    if check_unique and status is ProgramStatus.OPTIMAL and left > 0:
        again, alternative = program.solve(
            time_limit_s=left, at_most=len(choice.columns), other_than=[choice.columns]
        )
        if alternative is not None and is_explanation(program, alternative):
            other = tuple(demands.resources[k] for k in alternative.columns)
            unique = False
        elif again.status is ProgramStatus.INFEASIBLE:
            unique = True
    return _result(program, settled, status, at_least, unique, other, begin)


def _none(
    demands: Demands,
    status: ProgramStatus,
    refutations: tuple[Refutation, ...],
    at_least: int,
    begin: float,
) -> Minimum:
    number = len(demands.resources)
    if status is ProgramStatus.INFEASIBLE:
        kind = "capacities of" if demands.engines is None else "choice among"
        sentences = [f"No {kind} the {number} candidates can explain {demands.what}."]
        sentences += [f"Proof: {r.sentence}." for r in refutations[:1]]
        if len(refutations) > 1:
            more = len(refutations) - 1
            sentences.append(
                f"{more} more figure{'s' * (more > 1)} prove{'s' * (more == 1)} it by "
                f"{'themselves' if more > 1 else 'itself'}."
            )
    else:
        sentences = [
            f"No explanation of {demands.what} was found in time, and no proof that there is none; "
            f"one would take {at_least} resources or more."
        ]
    return Minimum(
        status=status,
        chosen=(),
        time_shared=(),
        explanation={},
        at_least=at_least,
        unique=None,
        other=(),
        refutations=refutations,
        worst=math.inf,
        seconds=time.perf_counter() - begin,
        sentences=tuple(sentences),
    )


def _result(
    program: Program,
    choice: Choice,
    status: ProgramStatus,
    at_least: int,
    unique: bool | None,
    other: tuple[str, ...],
    begin: float,
) -> Minimum:
    demands = program.demands
    found = evaluate(program, choice)
    explanation: dict[str, str] = {}
    explains: dict[int, list[str]] = {int(c): [] for c in choice.columns}
    engines = demands.engines
    for s, name in enumerate(demands.scenarios):
        if found.engine[s] >= 0:
            assert engines is not None
            explanation[name] = engines.names[int(engines.engine[found.engine[s]])]
        else:
            explanation[name] = demands.resources[int(found.column[s])]
            explains[int(found.column[s])].append(name)
    chosen = tuple(
        Chosen(
            resource=demands.resources[int(c)],
            capacity_Bps=math.exp(-choice.x[c]) if np.isfinite(choice.x[c]) else math.inf,
            explains=tuple(explains[int(c)]),
        )
        for c in choice.columns
    )
    time_shared: tuple[str, ...] = ()
    if engines is not None:
        # Free receivers that explain nothing may be either: they are not called time-shared.
        busy = {int(engines.engine[k]) for k in found.engine if k >= 0}
        time_shared = tuple(
            n
            for e, n in enumerate(engines.names)
            if choice.time_shared[e] and (e in busy or not engines.free)
        )
    vague = {s for g in demands.any_of for s in g.scenarios}
    own = [s for s in range(len(demands.scenarios)) if s not in vague]
    middle = (demands.low + demands.high) / 2
    worst = float(np.abs(found.log_s - middle)[own].max()) if own else 0.0
    return Minimum(
        status=status,
        chosen=chosen,
        time_shared=time_shared,
        explanation=explanation,
        at_least=at_least,
        unique=unique,
        other=other,
        refutations=(),
        worst=worst,
        seconds=time.perf_counter() - begin,
        sentences=_sentences(demands, chosen, time_shared, status, at_least, unique, other),
    )


def _sentences(
    demands: Demands,
    chosen: tuple[Chosen, ...],
    time_shared: tuple[str, ...],
    status: ProgramStatus,
    at_least: int,
    unique: bool | None,
    other: tuple[str, ...],
) -> tuple[str, ...]:
    n = len(chosen)
    resources = f"{n} resource{'s' * (n != 1)}"
    if demands.engines is not None and time_shared:
        kappa = math.exp(demands.engines.log_kappa)
        which = "" if not demands.engines.free else f"{len(time_shared)} "
        word = "receiver" if len(time_shared) == 1 else "receivers"
        resources += f" and {which}time-shared {word} (overlap factor {kappa:.3g})"
    verb = "explains" if n == 1 and not time_shared else "explain"
    proof = (
        "no fewer do"
        if status is ProgramStatus.OPTIMAL
        else f"time ran out: {at_least} or more are needed"
    )
    lines = [f"{resources[0].upper()}{resources[1:]} {verb} {demands.what}; {proof}."]
    told = resources_in_words([(c.resource, c.capacity_Bps, len(c.explains)) for c in chosen])
    lines += told[:MOST_LINES]
    if len(told) > MOST_LINES:
        lines.append(f"and {len(told) - MOST_LINES} more lines like these")
    if unique:
        lines.append("No other set of the same size does.")
    elif unique is False:
        mine = {c.resource for c in chosen}
        gone = labels_in_words([c.resource for c in chosen if c.resource not in other])
        new = labels_in_words([label for label in other if label not in mine])
        lines.append(
            f"The choice is not unique: {listed(new, 4)} in place of {listed(gone, 4)} "
            f"{'does' if len(new) == 1 else 'do'} as well."
        )
    return tuple(lines)
