"""Machines whose owners posted rates of single and of concurrent transfers: predicted, posted.

Run as ``python benchmarks/public_machines.py`` (under a minute), with ``--smoke`` to fit
single flows only (a few seconds), or with ``--write`` to put the tables into
docs/public-machines.md.  The posts are read from ``../shared/cases`` next to the
repository; without them there is nothing to do.

For each machine the concurrent figures are predicted

from singles
    from what was measured one flow at a time, or whatever else the page names;
from the rest
    from everything that was posted except the pattern itself.

A figure that gives each flow's rate while all others run is compared with the max-min
fair rates on the fitted machine; all others with the time of the pattern.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from posted_figures import CASES, GB, REASONS, REPO, Asked, Machine
from posted_machines import machines

from topocal.measure.samples import Measurements, Sample
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.predict import predict
from topocal.topo.errors import TopocalError
from topocal.topo.fluid import simulate

PAGE: Final = REPO / "docs" / "public-machines.md"

CLOSE: Final = 0.10
"""A prediction further off than this is called a misfit."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: a pattern, or the patterns of a family.

    Attributes
    ----------
    family, count
        Which, and how many patterns.
    posted_GBps, predicted_GBps
        Medians over them.
    error
        Of the worst of them, relative.
    binds
        What binds the worst, as far as the fit tells; or why there is no prediction.
    narrow
        Whether every prediction of it claims to be as good as the noise.
    misfit
        Key of the reason why it is known to be off, where it is.
    """

    family: str
    count: int
    posted_GBps: float
    predicted_GBps: float | None
    error: float | None
    binds: str
    narrow: bool
    misfit: str

    @property
    def is_close(self) -> bool:
        """Whether even the worst is within :data:`CLOSE`."""
        return self.error is not None and abs(self.error) <= CLOSE


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a model says of something that was asked."""

    asked: Asked
    Bps: float | None
    binds: str
    narrow: bool = False

    @property
    def error(self) -> float:
        """Relative; infinite where there is no prediction."""
        return float("inf") if self.Bps is None else self.Bps / self.asked.posted_Bps - 1


def evaluate(machine: Machine, *, from_rest: bool) -> list[Line]:
    """Predict what is asked, family by family."""
    found: dict[str, list[Answer]] = {}
    models: dict[str, Model | str] = {}
    for asked in machine.asked:
        key = asked.pattern.name if from_rest else ""
        if key not in models:
            others = [
                a.sample
                for a in machine.asked
                if from_rest and a.sample is not None and a.pattern.name != key
            ]
            models[key] = fitted(machine, [*machine.basis, *others])
        found.setdefault(asked.family, []).append(answer(models[key], asked))
    blind = machine.blind and not from_rest
    return [_line(machine, family, answers, blind) for family, answers in found.items()]


def fitted(machine: Machine, samples: Iterable[Sample]) -> Model | str:
    """The model of some samples, or why there is none."""
    try:
        return fit(Measurements.of(samples), machine.topology)
    except TopocalError as error:
        return f"no fit: {error.what}"


def answer(model: Model | str, asked: Asked) -> Answer:
    """What a model says."""
    if isinstance(model, str):
        return Answer(asked=asked, Bps=None, binds=model)
    try:
        (prediction,) = predict(model, [asked.pattern])
        value = prediction.throughput_Bps
        if asked.as_rates or asked.of_each:
            flows = asked.pattern.flows
            result = simulate(model.topology, flows, model.capacities, record=True)
            if asked.as_rates:
                value = float(result.rates_Bps(0.0).sum())
            else:
                value = statistics.fmean(
                    f.size_bytes / float(t) for f, t in zip(flows, result.finish_s, strict=True)
                )
    except TopocalError as error:
        return Answer(asked=asked, Bps=None, binds=f"no prediction: {error.what}")
    binds = "" if prediction.bottleneck is None else prediction.bottleneck.label
    return Answer(asked=asked, Bps=value, binds=binds, narrow=prediction.narrow)


def _line(machine: Machine, family: str, answers: Sequence[Answer], blind: bool) -> Line:
    reason = "unseen" if blind else machine.misfits.get(family, "")
    worst = max(answers, key=lambda a: abs(a.error))
    known = [a.Bps / GB for a in answers if a.Bps is not None]
    return Line(
        family=family,
        count=len(answers),
        posted_GBps=statistics.median(a.asked.posted_Bps for a in answers) / GB,
        predicted_GBps=statistics.median(known) if known else None,
        error=None if worst.Bps is None else worst.error,
        binds=worst.binds,
        narrow=all(a.narrow for a in answers),
        misfit="no fit" if worst.Bps is None else reason,
    )


def structure(machine: Machine) -> dict[str, bool]:
    """What is known otherwise, and whether the fit of everything finds it."""
    if not machine.structure:
        return {}
    model = fitted(machine, [*machine.basis, *(a.sample for a in machine.asked if a.sample)])
    if isinstance(model, str):
        return dict.fromkeys(machine.structure, False)
    return {claim: holds(model) for claim, holds in machine.structure.items()}


INTRODUCTION: Final = """# Public machines: predicted against posted

People post what their machines do, one transfer at a time and several at once. This page
predicts what they posted of several from the rest. It is made by
`python benchmarks/public_machines.py --write`; the figures are those of the linked posts,
in GB/s, and no threshold was chosen on them.

- *From singles*: from what was measured one flow at a time, or whatever else the page
  names. A resource that no single flow can show (an uplink of several cards, a memory that
  both directions use) is not in such data.
- *From the rest*: from everything posted of the machine except the pattern itself.
- A line may stand for several patterns (their number behind it): posted and predicted are
  medians, the error is that of the worst.
- *Binds*: the resource that the fit from the rest holds responsible.
- Where an error is above 10 %, the last column has the key of the reason, below.
- Below each table: what the posts establish of the machine's structure, and whether a fit
  of all figures shows it.

Where a prediction is off, in short:
"""
HEADER: Final = (
    "| flows | posted | from singles | error | from the rest | error | binds | misfit |\n"
    "|---|---|---|---|---|---|---|---|"
)


def page(*, smoke: bool) -> tuple[str, list[Line]]:
    """The whole page, and every line of its tables."""
    parts = [INTRODUCTION, *(f"- **{key}**: {text}" for key, text in REASONS.items()), ""]
    lines: list[Line] = []
    for machine in machines():
        rows, found = _table(machine, smoke=smoke)
        lines += found
        given = "" if machine.given == "single flows" else f" Taken as given: {machine.given}."
        parts += [f"## {machine.title}", ""]
        parts += [f"Figures: <{machine.url}>. Topology: {machine.wiring}.{given}", ""]
        if rows:
            parts += [HEADER, *rows, ""]
        claims = structure(machine)
        parts += [f"- {c}: {'shown' if h else '**not shown**'}" for c, h in claims.items()]
        parts += [""] * bool(claims)
    return "\n".join(parts).rstrip() + "\n", lines


def _table(machine: Machine, *, smoke: bool) -> tuple[list[str], list[Line]]:
    """The machine's lines in Markdown, and all of them."""
    single = evaluate(machine, from_rest=False) if machine.basis else []
    rest = [] if smoke else evaluate(machine, from_rest=True)
    by_family = [{line.family: line for line in lines} for lines in (single, rest)]
    rows = []
    for family in dict.fromkeys(line.family for line in (*single, *rest)):
        a, b = (lines.get(family) for lines in by_family)
        one = b or a
        assert one is not None
        count = f" ({one.count})" if one.count > 1 else ""
        reasons = dict.fromkeys(x.misfit or "?" for x in (a, b) if x and not x.is_close)
        cells = [
            (family if len(family) <= 60 else family[:57] + "…") + count,
            f"{one.posted_GBps:.4g}",
            *_cells(a),
            *_cells(b),
            one.binds,
            ", ".join(reasons),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows, [*single, *rest]


def _cells(line: Line | None) -> list[str]:
    if line is None or line.predicted_GBps is None or line.error is None:
        return ["–", "–"]
    return [f"{line.predicted_GBps:.4g}", f"{line.error:+.1%}"]


def main() -> int:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="from single flows only")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(REPO)}")
    options = parser.parse_args()
    if not CASES.is_dir():
        print("the posts are not here: nothing to do")
        return 0
    begin = time.perf_counter()
    text, lines = page(smoke=options.smoke)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    close = sum(line.is_close for line in lines)
    told = [line.family for line in lines if not line.is_close and not line.misfit]
    print(
        f"{close} of {len(lines)} lines within {CLOSE:.0%}; {len(lines) - close} misfits, of which "
        f"{len(told)} without a known reason; {time.perf_counter() - begin:.0f} s",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
