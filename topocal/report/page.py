"""The whole report as data, and as one HTML file.

The file needs nothing else: style and scripts stand in it, and its content security policy
admits these by their hashes and nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from topocal.measure.patterns import PatternKind
from topocal.report.answers import evidence_of
from topocal.report.calculator import calculator_data
from topocal.report.capacity_rows import CapacityRow, capacity_rows
from topocal.report.cards import Card, draw_cards
from topocal.report.cells import Cells
from topocal.report.contents import contents, provenance
from topocal.report.families import fold
from topocal.report.figures import Figures, Several, find_figures
from topocal.report.glance import Glance, glance, short_name
from topocal.report.heat import Heats, heat_maps
from topocal.report.rules import find_rules
from topocal.report.words import (
    STATUS_WORDS,
    Unit,
    file_name,
    kept_together,
    unit_for,
    with_arrows,
)
from topocal.solve.explain import Explanation
from topocal.solve.findings import find_all
from topocal.solve.overview import blind_spot, overview
from topocal.solve.status import Status
from topocal.solve.words import sentence
from topocal.topo.errors import printable
from topocal.topo.render.outline import outline
from topocal.topo.render.svg import count_kinds
from topocal.topo.resource import NodeKind

if TYPE_CHECKING:
    from jinja2 import Environment

    from topocal.measure.samples import Measurements
    from topocal.solve.evidence import Finding, Shown
    from topocal.solve.minimum import Minimum
    from topocal.solve.model import Model
    from topocal.topo.topology import Topology

__all__ = ["Report", "build_report", "render_report"]

_FINDINGS: Final = 8
"""Findings that are shown at once; the others unfold."""
_OF_ONE_KIND: Final = 3
"""Of one kind, so many are shown at once."""
_FEW: Final = 2
"""A text that names so many figures gives their rates, too."""
_WORST: Final = 24
"""Patterns that are shown at once; the others unfold."""
_MOST_UNFOLDED: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralRow:
    """A pattern of several flows as a row of the table."""

    name: str
    full: str
    measured: str
    predicted: str
    error: float
    left_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """Patterns of one kind and number of flows."""

    name: str
    count: int
    middle: float
    worst: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that the page shows.

    Attributes
    ----------
    model
        Of the machine.
    unit
        In which the page gives rates.
    figures
        Measured beside predicted.
    glance
        What the first screen answers.
    findings, fewest, overview
        The answer: what the figures say, the fewest resources that reproduce them
        (``None`` where that was not asked), and what was measured.
    cards, heats, capacities
        The machine drawn, the pair matrices, the table.
    left_out
        Sentences on what the page does not show.
    measurements
        The samples, where they were given.
    """

    model: Model
    unit: Unit
    figures: Figures
    glance: Glance
    findings: tuple[Finding, ...]
    fewest: Minimum | None
    overview: tuple[str, ...]
    cards: tuple[Card, ...]
    heats: Heats
    capacities: tuple[CapacityRow, ...]
    left_out: tuple[str, ...]
    measurements: Measurements | None

    @property
    def several(self) -> tuple[Several, ...]:
        """Patterns of several flows, the worst predicted first."""
        return tuple(sorted(self.figures.several, key=lambda s: -abs(s.error)))


def build_report(
    model: Model,
    measurements: Measurements | None = None,
    *,
    answer: Explanation | None = None,
) -> Report:
    """Gather what a report shows.

    Parameters
    ----------
    measurements
        Samples to show; without them, the figures that the model keeps.
    answer
        What was found already, the fewest resources with it; ``None``: look for findings.

    Raises
    ------
    InputError
        When the samples cannot have come from the machine of the model.
    """
    figures = find_figures(model, measurements)
    known = [r.capacity_Bps for r in model.resources.values() if r.capacity_Bps is not None]
    rates = figures.pairs.predicted_Bps
    unit = unit_for([*known, *rates[np.isfinite(rates)].tolist()])
    parts = outline(model.topology)
    families = fold(model.topology, parts)
    cells = Cells(model, unit, families)
    rules = find_rules(model, families, cells)
    cards, not_drawn = draw_cards(model.topology, parts, families, cells, rules)
    rows, not_listed = capacity_rows(model, families, unit)
    if answer is None:
        evidence = evidence_of(model, figures.measured)
        answer = Explanation(
            model=model,
            findings=tuple(find_all(evidence)),
            fewest=None,
            overview=overview(evidence),
            blind_spot=blind_spot(evidence),
        )
    return Report(
        model=model,
        unit=unit,
        figures=figures,
        glance=glance(model, figures, answer, unit),
        findings=answer.findings,
        fewest=answer.fewest,
        overview=answer.overview,
        cards=tuple(cards),
        heats=heat_maps(figures.pairs, unit),
        capacities=tuple(rows),
        left_out=(*figures.left_out, *not_drawn, *not_listed),
        measurements=measurements,
    )


def render_report(report: Report) -> str:
    """The page."""
    model = report.model
    environment = _environment()
    style = _source("report.css")
    script = _source("calculator.js") + _source("page.js")
    data = calculator_data(model, report.figures.pairs.endpoints)
    number = {name: k for k, name in enumerate(data["resources"]["id"])}
    place = {name: k for k, name in enumerate(data["endpoints"])}
    several = [_several_row(s, report.unit) for s in report.several]
    found = sorted(Status, key=list(Status).index)
    counts = {s: sum(r.status is s for r in model.resources.values()) for s in found}
    findings, more_findings = _split_findings(report.findings)
    return environment.get_template("report.html.j2").render(
        report=report,
        model=model,
        title=_title(model),
        counts=count_kinds(model.topology)
        + " inferred from the figures" * _is_inferred(model.topology),
        unit=report.unit.name,
        glance=report.glance,
        sure=report.glance.certainty,
        total=len(model.resources),
        findings=findings,
        fit_findings=[t for t in model.findings if t not in {f.text for f in report.findings}],
        more_findings=more_findings,
        several=several[:_WORST],
        unfolded=several[_WORST:_MOST_UNFOLDED],
        not_unfolded=max(0, len(several) - _MOST_UNFOLDED),
        kinds=_kinds(report.figures.several),
        statuses=[(s, counts[s], STATUS_WORDS[s]) for s in found if counts[s]],
        left_out_of_fit=_by_reason(model),
        provenance=list(provenance(model, report.measurements)),
        contents=list(contents(model, report.measurements)),
        number=number,
        place=place,
        data=_json_block(data),
        style=_markup(style),
        script=_markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _title(model: Model) -> str:
    """The machine's name; where its topology was inferred, what it was inferred from."""
    if _is_inferred(model.topology):
        return ", ".join(dict.fromkeys(map(file_name, model.sources))) or "machine"
    return model.topology.name or "machine"


def _is_inferred(topology: Topology) -> bool:
    """Whether nobody said how the machine is wired: only figures make groups."""
    return any(kind is NodeKind.GROUP for _, kind in topology.graph.nodes(data="kind"))


def _split_findings(
    findings: tuple[Finding, ...],
) -> tuple[list[Finding], list[Finding]]:
    """Those shown at once, of each kind the first few; and the others."""
    shown: list[Finding] = []
    others: list[Finding] = []
    seen: Counter[str] = Counter()
    for f in findings:
        seen[f.kind] += 1
        fits = len(shown) < _FINDINGS and seen[f.kind] <= _OF_ONE_KIND
        (shown if fits else others).append(f)
    return shown, others


def _several_row(s: Several, unit: Unit) -> SeveralRow:
    return SeveralRow(
        name="ring " * (s.kind is PatternKind.RELAY) + short_name(s.pattern),
        full=s.pattern.name,
        measured=unit.number(s.measured_Bps),
        predicted=unit.number(s.predicted_Bps),
        error=s.error,
        left_out=s.left_out,
    )


def _kinds(several: tuple[Several, ...]) -> list[KindRow]:
    groups: dict[tuple[PatternKind, int], list[float]] = defaultdict(list)
    for s in several:
        groups[s.kind, len(s.pattern.flows)].append(s.error)
    return [
        KindRow(
            name=f"{str(kind).replace('-', ' ')} of {flows}",
            count=len(errors),
            middle=float(np.median(np.abs(errors))),
            worst=max(errors, key=abs),
        )
        for (kind, flows), errors in groups.items()
    ]


def _by_reason(model: Model) -> list[tuple[str, str]]:
    """Names of what the fit left out, by reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, why in model.left_out.items():
        found[why].append(name)
    return [
        (", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else ""), why)
        for why, names in found.items()
    ]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def plain(value: object) -> object:
        """No character that changes the direction of others, or that nobody sees; arrows and
        quantities that no line breaks in two."""
        return kept_together(with_arrows(printable(value))) if type(value) is str else value

    environment = Environment(
        loader=PackageLoader("topocal.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["px"] = lambda v: f"{v:.1f}".removesuffix(".0")
    environment.filters["numbers"] = _numbers
    environment.filters["signed"] = _signed
    environment.filters["percent"] = _percent
    environment.filters["untold"] = _untold
    environment.filters["sentence"] = _sentence
    return environment


def _numbers(names: Iterable[str], number: Mapping[str, int]) -> str:
    """Numbers of the resources that the calculator knows, for a script to find their cell."""
    return " ".join(str(number[name]) for name in names if name in number)


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with a name, and a full stop."""
    return sentence(text) + ("" if text.endswith((".", "!", "?")) else ".")


def _signed(ratio: float) -> str:
    """A ratio with its sign, in percent, with one decimal up to a hundred."""
    shown = f"{ratio:+.1%}" if abs(ratio) < 0.9995 else f"{ratio:+.0%}"
    shown = shown.replace("%", " %").replace("-", "−")
    return "0.0 %" if shown in ("+0.0 %", "−0.0 %") else shown


def _untold(finding: Finding) -> tuple[Shown, ...]:
    """Its figures, unless its text names them all."""
    named = all(shown.name in finding.text for shown in finding.evidence)
    return () if named and len(finding.evidence) <= _FEW else finding.evidence


def _percent(ratio: float) -> str:
    """A ratio without a sign, with one decimal up to ten percent."""
    shown = f"{ratio:.1%}" if ratio < 0.0995 else f"{ratio:.0%}"
    return shown.replace("%", " %")


def _source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


def _json_block(data: dict[str, Any]) -> Any:
    """JSON that may stand in a script element: nothing in it ends the element, and no editor
    shows it other than it is."""
    text = msgspec.json.encode(_finite(data)).decode()
    text = re.sub(r"[<>&]|[^\x20-\x7e]", _escaped, text)
    return _markup(text)


def _escaped(found: re.Match[str]) -> str:
    """A character as JSON's escapes (UTF-16, so that some are two)."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[k]:02x}{units[k + 1]:02x}" for k in range(0, len(units), 2))


def _finite(value: Any) -> Any:
    """The same without infinities and nans, which JSON lacks.

    Raises
    ------
    ValueError
        When there is one: none is meant to get here.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} among the calculator's numbers")
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value
