"""The report's first screen: what limits the machine, how sure that is, what to do next.

Everything here follows from what the rest of the page shows in full: which resource each
measured pattern's prediction names, how far predictions are off, what each capacity rests
on, and the measurements that would make the fans into each endpoint certain.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from topocal.measure.patterns import fan_in
from topocal.report.figures import Figures, reachable
from topocal.report.words import OPEN, Unit
from topocal.solve.next_measurement import Adviser
from topocal.solve.predict import predict
from topocal.solve.resource_words import alike_resources
from topocal.solve.status import Status
from topocal.solve.words import pattern_in_words
from topocal.topo.render.sharing import list_names
from topocal.topo.resource import NodeKind, Sharing

if TYPE_CHECKING:
    from topocal.report.figures import Measured
    from topocal.solve.evidence import Finding
    from topocal.solve.explain import Explanation
    from topocal.solve.minimum import Minimum
    from topocal.solve.model import Model
    from topocal.solve.next_measurement import Advice
    from topocal.solve.predict import Prediction
    from topocal.topo.flow import Pattern

__all__ = ["Certainty", "Glance", "Limit", "Step", "glance", "severities", "short_name"]

_MOST_LIMITS: Final = 4
_MOST_STEPS: Final = 3
_MOST_ASKED: Final = 500
"""Patterns whose bottleneck is asked for: a share of so many says the same of more."""
_MOST_FANS: Final = 64
"""Endpoints whose fans are looked at for what to measure next."""
_SIZE_BYTES: Final = 2.0**28
_OFF: Final = 0.10
"""A figure that is predicted so far off is worth measuring again."""

_KIND_WORDS: Final = {
    NodeKind.GPU: "GPU",
    NodeKind.NIC: "NIC",
    NodeKind.CPU: "CPU",
    NodeKind.MEMORY: "memory",
    NodeKind.PCIE_SWITCH: "PCIe switch",
    NodeKind.HOST_BRIDGE: "host bridge",
    NodeKind.SOCKET: "socket",
    NodeKind.GROUP: "group",
    NodeKind.NVSWITCH: "fabric switch",
    NodeKind.NET_SWITCH: "network switch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Resources of one kind that limit measured patterns.

    Attributes
    ----------
    name
        What they are.
    passes
        Their capacities, with the unit.
    count
        Patterns that one of them limits.
    share
        Of all patterns.
    """

    name: str
    passes: str
    count: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """How far the predictions can be relied on.

    Attributes
    ----------
    count
        Figures that were fitted.
    median, worst
        Errors of the predictions, as ratios, the worst with its sign; nan without figures.
    where
        The pattern that is predicted worst.
    shares
        How many of the resources have each status, the best first; those of none left out.
    noise
        Scatter of one figure, as a ratio.
    left_out
        Figures that the fit did not use.
    """

    count: int
    median: float
    worst: float
    where: str
    shares: tuple[tuple[Status, int], ...]
    noise: float
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something to do: in a few words, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """The first screen.

    Attributes
    ----------
    severities
        How many findings of each severity, in words.
    limits
        What limits most patterns, the most frequent first.
    of
        Patterns that were asked.
    certainty
        How sure that is.
    open, steps
        Whether some fan into one endpoint is not predicted from pinned resources alone, and
        what to do next; there may be nothing to do about what is open.
    """

    severities: str
    limits: tuple[Limit, ...]
    of: int
    certainty: Certainty
    open: bool
    steps: tuple[Step, ...]


def glance(model: Model, figures: Figures, answer: Explanation, unit: Unit) -> Glance:
    """Gather the first screen of a report.

    Where the fewest resources that reproduce the figures were found, they are what limits the
    machine, else the bottlenecks that the model names.
    """
    fewest = answer.fewest
    used = [m for m in figures.measured if not m.left_out and m.throughput_Bps is not None]
    if fewest is not None and fewest.chosen:
        limits, asked = _fewest(fewest, unit)
    else:
        limits, asked = _limits(model, used, unit)
    certainty = _certainty(model, figures, len(used))
    wide = _open_fans(model, figures)
    return Glance(
        severities=severities(answer.findings),
        limits=limits,
        of=asked,
        certainty=certainty,
        open=bool(wide),
        steps=tuple(islice(_steps(model, figures, answer, certainty, wide), _MOST_STEPS)),
    )


def severities(findings: Sequence[Finding]) -> str:
    """How many findings there are of each severity.

    >>> severities([])
    'no findings'
    """
    counts = Counter(f.severity.value for f in findings)
    parts = [
        f"{n} serious" if name == "serious" else f"{n} {name}{'s' * (n > 1)}"
        for name in ("serious", "warning", "note")
        if (n := counts[name])
    ]
    if not parts:
        return "no findings"
    if "serious" in counts:
        parts[0] += f" finding{'s' * (counts['serious'] > 1)}"
    return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]


def _limits(model: Model, used: Sequence[Measured], unit: Unit) -> tuple[tuple[Limit, ...], int]:
    """Bottlenecks of the measured patterns, those of one kind together."""
    step = max(1, math.ceil(len(used) / _MOST_ASKED))
    asked = [m.pattern for m in used[::step]]
    on_links = _kinds_of_links(model)
    members: dict[str, Counter[str]] = defaultdict(Counter)
    for p in predict(model, asked) if asked else ():
        if p.bottleneck is not None:
            name = p.bottleneck.resource
            members[on_links.get(name) or _role(model, name)][name] += 1
    found = []
    for kind, ids in members.items():
        table = [model.resources[name] for name in ids]
        rates = [r.capacity_Bps for r in table if r.capacity_Bps is not None]
        kappas = [r.kappa for r in table if r.kappa is not None]
        if kappas:
            passes = "one flow at a time"
        elif rates:
            least = "≥ " if {r.status for r in table} <= set(OPEN) else ""
            passes = f"{least}{unit.span(min(rates), max(rates))} {unit.name}"
        else:
            passes = "unknown"
        count = sum(ids.values())
        name = table[0].label if len(table) == 1 else f"{len(table)} × {kind}"
        found.append(Limit(name=name, passes=passes, count=count, share=count / len(asked)))
    found.sort(key=lambda one: -one.count)
    return tuple(found[:_MOST_LIMITS]), len(asked)


def _fewest(fewest: Minimum, unit: Unit) -> tuple[tuple[Limit, ...], int]:
    """The resources of the shortest explanation, those of most figures first."""
    count = len(fewest.explanation)
    chosen = [(c.resource, c.capacity_Bps, len(c.explains)) for c in fewest.chosen]
    found = [
        Limit(
            name=one.words,
            passes=f"{unit.span(min(one.rates_Bps), max(one.rates_Bps))} {unit.name}",
            count=one.figures,
            share=one.figures / max(1, count),
        )
        for one in alike_resources(chosen)
    ]
    alone = Counter(fewest.explanation.values())
    found += [
        Limit(name=name, passes="one flow at a time", count=alone[name], share=alone[name] / count)
        for name in fewest.time_shared
        if alone[name]
    ]
    found.sort(key=lambda one: -one.count)
    return tuple(found[:_MOST_LIMITS]), count


def _kinds_of_links(model: Model) -> dict[str, str]:
    """What each resource on a link joins, whichever devices these are."""
    kinds = dict(model.topology.graph.nodes(data="kind"))
    found = {}
    for link in model.topology.links.values():
        ends = [_KIND_WORDS.get(kinds[node], "node") for node in (link.tail, link.head)]
        for name, _ in link.uses:
            found[name] = f"{ends[0]} to {ends[1]}"
    return found


def _role(model: Model, resource: str) -> str:
    """A resource's label without the endpoint that it belongs to."""
    r = model.resources[resource]
    owner = resource.partition(".")[0]
    rest = " ".join(r.label.replace(owner, " ").split()) if owner in model.topology.graph else ""
    return (rest or r.label) + " by turns" * (r.sharing is Sharing.TIME_SHARED)


def _certainty(model: Model, figures: Figures, count: int) -> Certainty:
    pairs = figures.pairs
    errors = [(s.error, short_name(s.pattern)) for s in figures.several if not s.left_out]
    errors += [
        (float(error), f"{pairs.endpoints[i]}->{pairs.endpoints[j]}")
        for (i, j), error in np.ndenumerate(pairs.error)
        if math.isfinite(error) and (pairs.endpoints[i], pairs.endpoints[j]) not in pairs.left_out
    ]
    worst, where = max(errors, key=lambda e: abs(e[0]), default=(math.nan, ""))
    statuses = Counter(r.status for r in model.resources.values())
    return Certainty(
        count=count,
        median=float(np.median([abs(e) for e, _ in errors])) if errors else math.nan,
        worst=worst,
        where=where,
        shares=tuple((s, statuses[s]) for s in Status if statuses[s]),
        noise=model.noise,
        left_out=len(model.left_out),
    )


def _open_fans(model: Model, figures: Figures) -> list[Prediction]:
    """What all others send to one endpoint where that is not certain, the widest first."""
    linked: dict[str, list[str]] = defaultdict(list)
    for a, b in reachable(model, figures.pairs.endpoints):
        linked[b].append(a)
    roots = list(linked)
    roots = roots[:: max(1, math.ceil(len(roots) / _MOST_FANS))]
    fans = [fan_in(root, linked[root], _SIZE_BYTES) for root in roots]
    found = [p for p in predict(model, fans) if not p.narrow] if fans else []
    return sorted(found, key=lambda p: -(p.high_s / p.low_s if p.low_s > 0 else math.inf))


def _steps(
    model: Model,
    figures: Figures,
    answer: Explanation,
    certainty: Certainty,
    wide: Sequence[Prediction],
) -> Iterator[Step]:
    """What would make the fans certain, one measurement for each thing that is not known."""
    if abs(certainty.worst) > _OFF:
        yield Step(
            what=f"Measure {certainty.where} again",
            why=f"Its prediction is off by {certainty.worst:+.0%}: either the figure is wrong, or "
            "the model lacks something there",
        )
    if answer.blind_spot:
        yield Step(what="Measure several transfers at once", why=answer.blind_spot)
    ends = figures.pairs.endpoints
    if len(reachable(model, ends)) < len(ends) * (len(ends) - 1):
        # Patterns are looked for among endpoints that all reach each other.
        return
    adviser = Adviser(model)
    told: set[str] = set()
    for prediction in wide:
        for one in adviser.advise(prediction):
            if one.pattern is None or told & {one.pattern.name, one.about}:
                continue
            told |= {one.pattern.name, one.about}
            yield Step(
                what=f"Measure {_whole_name(one.pattern)}{' again' * one.repeat}",
                why=_why(model, one),
            )
            break


def _whole_name(pattern: Pattern) -> str:
    """What to measure: no flow is left out of it."""
    name = short_name(pattern)
    if name.endswith("more flows"):
        name = " + ".join(f"{a}→{b}" for a, b in pattern.pairs)
    return name + " at once" * (len(pattern.pairs) > 1)


def _why(model: Model, one: Advice) -> str:
    """What a measurement is good for."""
    resource = model.resources.get(one.about)
    again = "; measured already, but not surely" * one.repeat
    if one.label.startswith("what "):
        return f"It tells {one.label}: {one.reason}"
    if resource is None or resource.sharing is Sharing.TIME_SHARED:
        turns = "" if one.ratio is None else f", taking {one.ratio:.1f} times as long"
        return f"It tells whether {one.label} serves all at once or by turns{turns}{again}"
    return f"It pins {one.label}: {one.reason}"


def short_name(pattern: Pattern) -> str:
    """A pattern's notation with runs drawn together, or what it is in words.

    >>> short_name(fan_in("gpu0", ["gpu1", "gpu2", "gpu3"], 1.0))
    'gpu0 ← gpu1–3'
    """
    pairs = pattern.pairs
    sources = {a for a, _ in pairs}
    destinations = {b for _, b in pairs}
    if len(pairs) == 2 and pairs[0] == pairs[1][::-1]:
        return f"{pairs[0][0]} ↔ {pairs[0][1]}"
    if len(pairs) > 1 and len(destinations) == 1:
        return f"{pairs[0][1]} ← {list_names(sources)}"
    if len(pairs) > 1 and len(sources) == 1:
        return f"{pairs[0][0]} → {list_names(destinations)}"
    return pattern_in_words(pattern)
