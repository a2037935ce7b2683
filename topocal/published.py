"""The published B70 machine as a story: fit it, predict what was kept from the fit, judge.

The figures are in examples/b70; ``published.csv`` is never shown to the fit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from topocal.measure.importers.tables import SIZE_WHEN_UNKNOWN_BYTES, read_tables
from topocal.measure.patterns import fan_in
from topocal.solve.certificate import CapacityBound, capacity_bound
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.predict import Prediction, predict
from topocal.topo.flow import Pattern
from topocal.topo.machines import b70
from topocal.topo.render.sharing import list_names
from topocal.topo.units import BYTES_PER_GB, format_rate

__all__ = ["Comparison", "Extreme", "Story", "read_extremes", "tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """Smallest and largest root throughput of a fan width, over all roots."""

    width: int
    minimum_Bps: float
    maximum_Bps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A published figure against the prediction."""

    title: str
    published_Bps: float
    prediction: Prediction

    @property
    def error(self) -> float:
        """Relative error of the predicted throughput."""
        return self.prediction.throughput_Bps / self.published_Bps - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that the demo tells.

    Attributes
    ----------
    model
        Fitted to pairs and named fans.
    pair_rates_Bps
        The published pairs, by sender and receiver.
    named, extremes
        Fans that the fit has seen, and those that it has not.
    verdicts
        Sentences: whether capacities alone can explain it, and what became of what was left out.
    """

    model: Model
    pair_rates_Bps: Mapping[tuple[str, str], float]
    named: tuple[Comparison, ...]
    extremes: tuple[Comparison, ...]
    verdicts: tuple[str, ...]


def read_extremes(path: Path) -> list[Extreme]:
    """The published extremes, by width."""
    with path.open(newline="") as stream:
        rows = csv.DictReader(line for line in stream if not line.startswith("#"))
        return [
            Extreme(
                width=int(row["width"]),
                minimum_Bps=float(row["minimum_GBps"]) * BYTES_PER_GB,
                maximum_Bps=float(row["maximum_GBps"]) * BYTES_PER_GB,
            )
            for row in rows
        ]


def tell() -> Story:
    """Fit the machine and predict all that was published of it."""
    with as_file(files("topocal") / "examples" / "b70") as folder:
        measurements = read_tables([folder / "pairs.csv", folder / "fans.csv"])
        extremes = read_extremes(folder / "published.csv")
    model = fit(measurements, b70())
    endpoints = model.topology.accelerators
    named = tuple(
        Comparison(title=s.name, published_Bps=s.throughput_Bps, prediction=p)
        for s, p in zip(
            measurements.concurrent,
            predict(model, [s.pattern for s in measurements.concurrent]),
            strict=True,
        )
    )
    compared: list[Comparison] = []
    bounds: list[CapacityBound] = []
    rates = {s.pattern.pairs[0]: s.throughput_Bps for s in measurements.pairs}
    steady = {p: rate for p, rate in rates.items() if f"{p[0]}->{p[1]}" not in model.left_out}
    for extreme in extremes:
        fans = [_fan(endpoints, root, extreme.width) for root in range(len(endpoints))]
        ranked = sorted(predict(model, fans), key=lambda p: p.throughput_Bps)
        for words, published, prediction in (
            ("slowest", extreme.minimum_Bps, ranked[0]),
            ("fastest", extreme.maximum_Bps, ranked[-1]),
        ):
            sources = list_names(source for source, _ in prediction.pattern.pairs)
            root = prediction.pattern.pairs[0][1]
            title = f"{words} of width {extreme.width}: {root} <- {sources}"
            compared.append(Comparison(title=title, published_Bps=published, prediction=prediction))
        bounds += [
            bound
            for fan in fans
            if (bound := capacity_bound(fan.name, fan.pairs, extreme.maximum_Bps, steady))
        ]
    return Story(
        model=model,
        pair_rates_Bps=rates,
        named=named,
        extremes=tuple(compared),
        verdicts=(_on_capacities(bounds), *_on_what_was_left_out(model, rates, extremes)),
    )


def _fan(endpoints: tuple[str, ...], root: int, width: int) -> Pattern:
    """The published fans take their peers from the endpoints after the root, wrapping."""
    peers = [endpoints[(root + k) % len(endpoints)] for k in range(1, width + 1)]
    return fan_in(endpoints[root], peers, SIZE_WHEN_UNKNOWN_BYTES)


def _on_capacities(bounds: list[CapacityBound]) -> str:
    strongest = max(bounds, key=lambda b: b.excess)
    figures = (
        f"any set of capacities that passes the pair rates lets {strongest.name} reach "
        f"{format_rate(strongest.least_Bps)} or more, yet no root was published above "
        f"{format_rate(strongest.reached_Bps)}"
    )
    if not strongest.refutes_capacities:
        return f"Capacities alone are not refuted: {figures}."
    return (
        f"Capacity resources alone cannot explain this machine: {figures} "
        f"({strongest.excess:.0%} apart; proof: docs/model.md)."
    )


def _on_what_was_left_out(
    model: Model, rates: dict[tuple[str, str], float], extremes: list[Extreme]
) -> list[str]:
    """Whether a published single-peer minimum agrees with a pair that the fit distrusted."""
    single = next((e for e in extremes if e.width == 1), None)
    if single is None:
        return []
    endpoints = model.topology.accelerators
    lines = []
    for root in range(len(endpoints)):
        fan = _fan(endpoints, root, 1)
        (pair,) = fan.pairs
        if f"{pair[0]}->{pair[1]}" in model.left_out:
            (prediction,) = predict(model, [fan])
            lines.append(
                f"{pair[0]}->{pair[1]}, left out at {format_rate(rates[pair])}, is predicted at "
                f"{format_rate(prediction.throughput_Bps)}; the published minimum of width 1 is "
                f"{format_rate(single.minimum_Bps)}."
            )
    return lines
