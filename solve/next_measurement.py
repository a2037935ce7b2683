"""Which measurement would make a prediction narrow, or why none can.

A prediction is wide while resources may bind that no sample pins.  Each of them is taken to
be as slow as the data allows, everything pinned to be as fitted, and the pattern is looked
for in which it is the clear bottleneck (:mod:`topocal.measure.pinning`): measured, that
pattern either pins the resource or proves it faster than matters.  Where the data does not
tell bytes from time, it is the fan that tells (:mod:`topocal.measure.supplements`); where
a time-shared endpoint is known but one of its flows alone is not, that flow alone.

Resources of a model without a real topology are looked for in the same way, by who crosses
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from topocal.measure.design import CLEAR_RATIO
from topocal.measure.findings import Verdict, findings
from topocal.measure.patterns import bundle, parse_pattern
from topocal.measure.pinning import Search
from topocal.measure.plan import Outcome
from topocal.measure.setting import LEAST_RATIO, Setting
from topocal.measure.supplements import contrasts
from topocal.solve.occupancy import Occupancy, occupancies
from topocal.solve.status import CLEAR_SIGMAS, Status
from topocal.topo.errors import TopocalError
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.solve.model import Model
    from topocal.solve.predict import Prediction
    from topocal.topo.flow import Pattern

__all__ = ["Advice", "Adviser"]

MOST_ENDPOINTS: Final = 64
"""On larger machines patterns are looked for among the endpoints at hand and their neighbours:
a search over all pairs of many takes seconds."""

MOST_RESOURCES: Final = 8
"""Advice for so many resources, those that may take longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do about one thing that a prediction hangs on.

    Attributes
    ----------
    about
        The resource, or ``"receiver gpu3"`` where it is how an endpoint shares.
    label
        Words for it.
    pattern
        What to measure, without a size; ``None`` where nothing would help.
    reason
        Why that pattern, or why none.
    ratio
        How far ahead of everything else the resource is there, all as slow as the data allows;
        ``None`` where nothing else is busy, or that is not the point.
    repeat
        Whether the pattern is among the samples already: more repeats are what it takes.
    """

    about: str
    label: str
    pattern: Pattern | None
    reason: str
    ratio: float | None = None
    repeat: bool = False


class Adviser:
    """Looks for measurements on one fitted machine.

    Parameters
    ----------
    model
        The machine.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._searches: dict[tuple[str, ...], tuple[Setting, Search, list[Verdict | None]]] = {}

    def advise(self, prediction: Prediction) -> tuple[Advice, ...]:
        """What would make a prediction narrow, the most important first; empty where it is.

        At most :data:`MOST_RESOURCES`; once those are measured, ask again.
        """
        if prediction.narrow or not prediction.would_narrow:
            return ()
        ((_, busy),) = occupancies(self._model, [prediction.pattern])
        ends = {e for f in busy.flows for e in (f.source, f.destination)}
        setting, search, known = self._search(self._endpoints(ends))
        found: dict[tuple[str, str], Advice] = {}
        for one in self._advice(prediction, busy, setting, search, known):
            what = one.about if one.pattern is None else one.pattern.name
            found.setdefault((one.label if one.pattern is None else "", what), one)
            if len(found) == MOST_RESOURCES:
                break
        return tuple(found.values())

    def _endpoints(self, wanted: set[str]) -> tuple[str, ...]:
        topology = self._model.topology
        everyone = topology.accelerators or topology.endpoints
        if not wanted <= set(everyone):
            everyone = topology.endpoints
        if len(everyone) <= MOST_ENDPOINTS:
            return everyone
        place = {name: k for k, name in enumerate(everyone)}
        mine = np.array(sorted(place[name] for name in wanted))
        away = np.abs(np.arange(len(everyone))[:, None] - mine[None, :]).min(axis=1)
        nearest = np.sort(np.argsort(away, kind="stable")[: max(MOST_ENDPOINTS, len(mine))])
        return tuple(everyone[k] for k in nearest)

    def _search(self, endpoints: tuple[str, ...]) -> tuple[Setting, Search, list[Verdict | None]]:
        if endpoints not in self._searches:
            setting = Setting.of(self._model.topology, endpoints, self._slowest())
            search = Search(setting.crossings, clear=CLEAR_RATIO)
            self._searches[endpoints] = setting, search, setting.known_verdicts(())
        return self._searches[endpoints]

    def _slowest(self) -> dict[str, float]:
        """Seconds per byte: as fitted where pinned, else the most that the data allows."""
        found = {}
        for r in self._model.resources.values():
            settled = r.status in (Status.PINNED, Status.ASSUMED)
            rate = r.capacity_Bps if settled else r.low_Bps or r.capacity_Bps
            if rate and r.sharing is not Sharing.TIME_SHARED:
                found[r.id] = 1.0 / rate
        return found

    @cached_property
    def _measured(self) -> set[frozenset[tuple[str, str]]]:
        """The pairs of every pattern among the samples."""
        found = set()
        known = set(self._model.topology.endpoints)
        for name in (*(r.name for r in self._model.residuals), *self._model.left_out):
            try:
                pairs = parse_pattern(name).pairs
            except TopocalError:
                # Samples of another source may carry names of their own.
                continue
            if all(end in known for pair in pairs for end in pair):
                found.add(frozenset(pairs))
        return found

    def _advice(
        self,
        prediction: Prediction,
        busy: Occupancy,
        setting: Setting,
        search: Search,
        known: list[Verdict | None],
    ) -> Iterator[Advice]:
        wanted = set(prediction.would_narrow)
        longest = dict(zip(busy.resources, busy.high_s.tolist(), strict=True))
        never = set(prediction.unmeasured)
        order = sorted(
            wanted & longest.keys(), key=lambda name: (name not in never, -longest[name], name)
        )
        for who, _ in busy.by_turns:
            if any(who in phrase for phrase in wanted):
                word, _, end = who.partition(" ")
                yield self._sharing(who, who, end, word == "receiver", setting, search)
        for name in order:
            if self._model.resources[name].sharing is Sharing.TIME_SHARED:
                yield from self._turns(name, busy, setting, search)
            else:
                yield self._capacity(name, setting, search, known)

    def _capacity(
        self, name: str, setting: Setting, search: Search, known: list[Verdict | None]
    ) -> Advice:
        """The pattern that pins a capacity."""
        c = setting.crossings
        group = int(c.class_of[list(c.resources).index(name)])
        label = self._model.resources[name].label
        verdict = known[group]
        if verdict is None:
            best = search.best(group)
            if best.ratio >= LEAST_RATIO:
                return self._pinning(name, label, setting, best.rows, best.ratio)
            verdict = setting.verdict(search, group, best.ratio, None)
        told = findings(
            self._model.topology,
            c,
            setting.prior,
            [verdict if g == group else Verdict(Outcome.NOT_FOUND) for g in range(c.classes)],
        )
        reason = next(f.reason for f in told if f.resource == name)
        return Advice(about=name, label=label, pattern=None, reason=reason)

    def _pinning(
        self, name: str, label: str, setting: Setting, rows: Iterable[int], ratio: float
    ) -> Advice:
        pattern = bundle(setting.crossings.names(list(rows)))
        repeat = frozenset(pattern.pairs) in self._measured
        ahead = "nothing else is busy there"
        if math.isfinite(ratio):
            ahead = f"it is busy {ratio:.2f} times as long there as anything else"
        if math.log(ratio) < CLEAR_SIGMAS * self._model.noise:
            ahead += ", which takes more repeats to tell from the noise"
        if repeat:
            ahead += "; measured already, but not surely or not explained"
        return Advice(
            about=name,
            label=label,
            pattern=pattern,
            reason=ahead,
            ratio=ratio if math.isfinite(ratio) else None,
            repeat=repeat,
        )

    def _turns(
        self, name: str, busy: Occupancy, setting: Setting, search: Search
    ) -> Iterator[Advice]:
        """What settles a time-shared endpoint's time: its overlap, and its flows alone."""
        fitted = self._model.resources[name]
        k = busy.resources.index(name)
        if fitted.status is not Status.PINNED:
            end, _, word = name.removesuffix(".engine").rpartition(".")
            yield self._sharing(name, fitted.label, end, word == "receiver", setting, search)
        for flow, part in zip(busy.flows, busy.parts[:, k].tolist(), strict=True):
            alone = frozenset([(flow.source, flow.destination)])
            if part > 0 and alone not in self._measured:
                yield Advice(
                    about=name,
                    label=f"what {flow.source}->{flow.destination} takes alone",
                    pattern=bundle(list(alone)),
                    reason=f"{fitted.label} adds up what its flows take alone",
                )

    def _sharing(
        self, about: str, label: str, end: str, receives: bool, setting: Setting, search: Search
    ) -> Advice:
        """The fan that tells bytes from time at an endpoint."""
        c = setting.crossings
        fans = contrasts(search, [c.endpoints.index(end)]) if end in c.endpoints else ()
        for fan in fans:
            if fan.receives != receives or fan.ratio is None:
                continue
            pattern = bundle(c.names(list(fan.rows)))
            repeat = frozenset(pattern.pairs) in self._measured
            reason = f"by turns it takes {fan.ratio:.2f} times as long as at once"
            return Advice(
                about=about,
                label=label,
                pattern=pattern,
                reason=reason + "; measured already, but not surely" * repeat,
                ratio=fan.ratio,
                repeat=repeat,
            )
        return Advice(
            about=about,
            label=label,
            pattern=None,
            reason="bytes and turns look the same there: its flows take equally long alone",
        )
