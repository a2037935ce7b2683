"""One run of calibration.json as samples: every index and length checked on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NoReturn, TypeVar

from topocal.measure.calibration_schema import RunEntry, is_endpoint_name
from topocal.measure.patterns import kind_of, notation
from topocal.measure.provenance import ISSUE_MODES
from topocal.measure.samples import Sample
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.flow import Flow, Pattern

__all__ = ["REMEDY", "RunDecoder"]

REMEDY: Final = "measure again, or take the file from its source again"

Value = TypeVar("Value")
Times = list[tuple[float, ...] | None]


class RunDecoder:
    """One run's tables and columns as samples.

    Parameters
    ----------
    entry
        The run.
    number
        Its place in the file.
    where
        The file.
    """

    def __init__(self, entry: RunEntry, number: int, where: Where) -> None:
        self._entry = entry
        self._number = number
        self._where = where
        self._flows: dict[tuple[int, int, float, float], Flow] = {}

    def samples(self) -> list[Sample]:
        """Every sample in the order of the file.

        Raises
        ------
        FormatError
            When the tables and columns do not fit together.
        """
        self._check_endpoints()
        patterns = self._patterns()
        columns, n = self._entry.samples, len(self._entry.samples.seconds)
        scenario = columns.scenario
        if len(scenario) != n:
            self._fail(f"has {n} seconds for {len(scenario)} scenarios")
        if n and not 0 <= min(scenario) <= max(scenario) < len(patterns):
            wrong = next(k for k in scenario if not 0 <= k < len(patterns))
            self._fail(f"has a sample of scenario {wrong}, which is not listed")
        flow_counts = [len(p.flows) for p in patterns]
        ends = [len({name for pair in p.pairs for name in pair}) for p in patterns]
        finish = self._times("flow_finish_s", columns.flow_finish_s, flow_counts)
        where, run = self._where, self._number
        return [
            Sample(
                pattern=patterns[k],
                seconds=seconds,
                size_known=known,
                where=where,
                flow_finish_s=done,
                endpoint_start_s=begun,
                endpoint_end_s=ended,
                repeat=repeat,
                round=round_,
                issue=issue,
                iterations=iterations,
                run=run,
                set_aside=reason,
            )
            for (
                k,
                seconds,
                known,
                done,
                begun,
                ended,
                repeat,
                round_,
                issue,
                iterations,
                reason,
            ) in zip(
                scenario,
                columns.seconds,
                self._column("size_known", columns.size_known),
                finish,
                self._times("endpoint_start_s", columns.endpoint_start_s, ends),
                self._times("endpoint_end_s", columns.endpoint_end_s, ends),
                self._counts("repeat", self._column("repeat", columns.repeat)),
                self._counts("round", self._column("round", columns.round)),
                self._issue(),
                self._counts("iterations", self._column("iterations", columns.iterations), 1),
                self._set_aside(finish),
                strict=True,
            )
        ]

    def _fail(self, what: str) -> NoReturn:
        raise FormatError(
            f"damaged calibration: run {self._number} {what}", where=self._where, remedy=REMEDY
        )

    def _check_endpoints(self) -> None:
        seen: set[str] = set()
        for name in self._entry.endpoints:
            if not is_endpoint_name(name):
                self._fail(f"has an endpoint called {one_line(name)!r}")
            if name in seen:
                self._fail(f"lists endpoint {one_line(name)!r} twice")
            seen.add(name)

    def _patterns(self) -> list[Pattern]:
        """The pattern of each scenario, with its sizes."""
        endpoints = self._entry.endpoints
        titles: list[str] = []
        for number, entry in enumerate(self._entry.patterns):
            if not entry.flows:
                self._fail(f"has pattern {number} without flows")
            for source, destination in entry.flows:
                if not (0 <= source < len(endpoints) and 0 <= destination < len(endpoints)):
                    self._fail(f"has pattern {number} with an endpoint that is not listed")
            named = entry.name
            if named is not None and not named.isprintable():
                self._fail(f"has pattern {number} called {one_line(named)!r}")
            if named is None:
                named = notation((endpoints[s], endpoints[d]) for s, d in entry.flows)
            titles.append(named)
        unchecked = {k for k, entry in enumerate(self._entry.patterns) if entry.kind is not None}
        found = []
        for number, scenario in enumerate(self._entry.scenarios):
            if not 0 <= scenario.pattern < len(titles):
                self._fail(f"has scenario {number} of a pattern that is not listed")
            entry = self._entry.patterns[scenario.pattern]
            sizes = self._per_flow(number, "size_bytes", scenario.size_bytes, len(entry.flows))
            starts = self._per_flow(
                number,
                "start_s",
                0.0 if scenario.start_s is None else scenario.start_s,
                len(entry.flows),
            )
            flows = tuple(
                self._flow(s, d, size, start)
                for (s, d), size, start in zip(entry.flows, sizes, starts, strict=True)
            )
            found.append(Pattern(flows=flows, name=titles[scenario.pattern]))
            if scenario.pattern in unchecked:
                unchecked.remove(scenario.pattern)
                kind = kind_of(found[-1])
                if entry.kind != kind:
                    self._fail(
                        f"calls pattern {scenario.pattern} {one_line(entry.kind)!r}, "
                        f"but its flows are {kind}"
                    )
        return found

    def _per_flow(
        self, number: int, name: str, value: float | list[float], flows: int
    ) -> Sequence[float]:
        values = value if isinstance(value, list) else [value]
        if isinstance(value, list) and len(values) != flows:
            self._fail(f"has scenario {number} with {len(values)} {name} for {flows} flows")
        if not all(math.isfinite(v) and v >= 0 for v in values):
            self._fail(f"has scenario {number} with {name} below zero")
        return value if isinstance(value, list) else values * flows

    def _flow(self, source: int, destination: int, size_bytes: float, start_s: float) -> Flow:
        """Flows that several scenarios have in common are made once."""
        key = (source, destination, size_bytes, start_s)
        flow = self._flows.get(key)
        if flow is None:
            names = self._entry.endpoints
            flow = self._flows[key] = Flow(
                source=names[source],
                destination=names[destination],
                size_bytes=size_bytes,
                start_s=start_s,
            )
        return flow

    def _column(self, name: str, value: Value | list[Value]) -> list[Value]:
        n = len(self._entry.samples.seconds)
        if not isinstance(value, list):
            return [value] * n
        if len(value) != n:
            self._fail(f"has {len(value)} {name} for {n} samples")
        return value

    def _counts(self, name: str, values: list[Value], lowest: int = 0) -> list[Value]:
        least = min((v for v in set(values) if isinstance(v, int)), default=lowest)
        if least < lowest:
            self._fail(f"has a sample with {name} {least}")
        return values

    def _times(
        self, name: str, value: list[list[float] | None] | None, lengths: Sequence[int]
    ) -> Times:
        """One tuple per sample, each of the length that its scenario asks for."""
        n = len(self._entry.samples.seconds)
        if value is None:
            return [None] * n
        if len(value) != n:
            self._fail(f"has {len(value)} {name} for {n} samples")
        for number, (k, times) in enumerate(zip(self._entry.samples.scenario, value, strict=True)):
            if times is not None and len(times) != lengths[k]:
                self._fail(
                    f"has sample {number} with {len(times)} {name} where {lengths[k]} belong"
                )
        return [None if times is None else tuple(times) for times in value]

    def _issue(self) -> list[str | None]:
        """How each sample was issued: by its own word, or else by the run's."""
        column = self._column("issue", self._entry.samples.issue)
        for mode in set(column):
            if mode is not None and mode not in ISSUE_MODES:
                self._fail(f"has a sample issued {one_line(mode)!r}")
        default = self._entry.provenance.get("issue")
        if default is None:
            return column
        return [default if mode is None else mode for mode in column]

    def _set_aside(self, finish: Times) -> list[str | None]:
        """The reasons in the file, and those that the timings themselves give."""
        given = self._column("set_aside", self._entry.samples.set_aside)
        reasons = [None if r is None else r or "no reason was given" for r in given]
        for k, (seconds, times) in enumerate(zip(self._entry.samples.seconds, finish, strict=True)):
            if reasons[k] is None and not seconds > 0:
                reasons[k] = "its time is not above zero"
            elif reasons[k] is None and times is not None and min(times) < 0:
                reasons[k] = "a flow finished before the start"
        return reasons
