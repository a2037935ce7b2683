"""``topocal explain``: why a machine, or one pattern on it, is as slow as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topocal.options import AsJson, TopologyOption, refuse_idle
from topocal.pattern_options import BothWays, FanIn, FanOut, FlowOption, Notation, Size

if TYPE_CHECKING:
    from topocal.measure.samples import Measurements
    from topocal.solve.explain import Explanation
    from topocal.solve.model import Model
    from topocal.solve.speedup import Speedup
    from topocal.topo.topology import Topology

__all__ = ["explain"]


def explain(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Measurements and topology files, in any number; or one model.json. Told by "
            "content."
        ),
    ],
    topology: TopologyOption = None,
    fan_in: FanIn = None,
    fan_out: FanOut = None,
    flow: FlowOption = None,
    both_ways: BothWays = None,
    pattern: Notation = None,
    size: Size = "256MiB",
    faster: Annotated[
        float, typer.Option("--faster", metavar="TIMES", help="How many times as fast to be.")
    ] = 2.0,
    time_limit: Annotated[
        str, typer.Option("--time-limit", metavar="TIME", help="For the fewest resources.")
    ] = "5s",
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the answer and a picture to one file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why a machine, or one pattern on it, is as slow as it is.

    With measurements: what was measured, findings, and the fewest resources that reproduce the
    figures. With a pattern: what binds, what would bind next, and what it takes to be twice as
    fast. With a topology alone: what it shows before anything is measured.

    topocal explain topo.txt p2p.txt

    topocal explain pairs.csv fans.csv -t b70 --html answer.html

    topocal explain model.json --fan-in 3:4,5,6,7 --faster 1.5
    """
    from topocal.outputs import check_outputs
    from topocal.topo.units import parse_seconds

    limit_s = parse_seconds(time_limit)
    fitted = _model(files, topology)
    wanted = bool(fan_in or fan_out or flow or both_ways or pattern)
    if wanted or fitted is not None:
        _refuse_of_machine(context, html is not None)
    if not wanted:
        refuse_idle(context, ("--size", "--faster"), "without a pattern")
    check_outputs(html, [*files, topology], formats=("HTML",))
    if not wanted:
        if fitted is not None:
            _no_pattern(files[0])
        _explain_machine(files, topology, limit_s, html, as_json)
        return
    from topocal.expected import fitting_s
    from topocal.explaining import sort_inputs
    from topocal.pattern_options import flow_size, patterns_from
    from topocal.progress import progress
    from topocal.solve.fit import fit
    from topocal.solve.speedup import speed_up
    from topocal.topo.endpoint_names import resolve_endpoint

    if fitted is None:
        inputs = sort_inputs(files, topology)
        part, notes = inputs.whole()
        with progress("fitting", expected_s=fitting_s(len(part.measurements.samples))):
            fitted = _noted(fit(part.measurements, part.machine), notes)
    known = fitted.topology.endpoints
    size_bytes = flow_size(size)
    patterns = patterns_from(
        fan_in,
        fan_out,
        flow,
        both_ways,
        pattern,
        size_bytes,
        lambda name: resolve_endpoint(name, known),
    )
    _tell_patterns(fitted, [speed_up(fitted, p, faster) for p in patterns], size_bytes, as_json)


def _refuse_of_machine(context: typer.Context, has_page: bool) -> None:
    """Options of a machine that is explained from its measurements are for no pattern or model.

    Raises
    ------
    InputError
        When one is given.
    """
    from topocal.topo.errors import InputError

    if has_page:
        raise InputError(
            "--html shows a machine, from its measurements",
            remedy="give measurements and no pattern, or use topocal report on the model",
        )
    refuse_idle(context, ("--time-limit",), "for a pattern or a model")


def _explain_machine(
    files: list[Path], topology: str | None, limit_s: float, html: Path | None, as_json: bool
) -> None:
    """Say what the figures say, part by part."""
    from dataclasses import replace

    from topocal.console import console, print_json, safe
    from topocal.expected import fitting_s
    from topocal.explaining import sort_inputs
    from topocal.explanation_text import (
        explanation_document,
        findings_document,
        tell_explanations,
        tell_findings,
    )
    from topocal.progress import progress
    from topocal.solve.explain import explain as explain_part
    from topocal.solve.explain import find_in_settings
    from topocal.solve.findings_topology import find_in_topology

    inputs = sort_inputs(files, topology)
    if not inputs.parts:
        if html is not None:
            inputs.whole()
        findings = find_in_settings(inputs.settings, inputs.machine)
        if inputs.machine is not None:
            findings += find_in_topology(inputs.machine)
        notes = _of_topology(inputs.machine) + list(inputs.notes)
        if as_json:
            print_json({"findings": findings_document(findings), "notes": notes})
        else:
            tell_findings(findings, inputs.machine, notes)
        return
    samples = sum(len(part.measurements.samples) for part in inputs.parts)
    also = find_in_settings(inputs.settings, inputs.machine)
    if inputs.machine is not None and all(part.machine is None for part in inputs.parts):
        also += find_in_topology(inputs.machine)  # of no use to the fit, and true all the same
    with progress("explaining", expected_s=fitting_s(samples) + limit_s):
        found = [
            explain_part(
                part.measurements,
                part.machine,
                no_peer=part.no_peer,
                also=() if k else also,
                time_limit_s=0.0 if k else limit_s,
            )
            for k, part in enumerate(inputs.parts)
        ]
    first = replace(found[0], model=_noted(found[0].model, inputs.notes))
    if html is not None:
        _draw(first, inputs.parts[0].measurements, html)
    if as_json:
        others = [
            {"title": part.title} | explanation_document(one)
            for part, one in zip(inputs.parts[1:], found[1:], strict=True)
        ]
        print_json(
            {"title": inputs.parts[0].title}
            | explanation_document(first)
            | ({"others": others} if others else {})
        )
        return
    tell_explanations(found, inputs.parts, inputs.notes)
    if html is not None:
        console().print(f"\nwrote {safe(html)}")


def _of_topology(machine: Topology | None) -> list[str]:
    """What a topology says that is explained without measurements."""
    if machine is None:
        return []
    return list(machine.graph.graph["notes"])


def _draw(found: Explanation, measurements: Measurements, html: Path) -> None:
    """The answer with the machine drawn, as topocal report shows it."""
    from topocal.report.page import build_report, render_report
    from topocal.topo.files import write_atomically

    page = build_report(found.model, measurements, answer=found)
    write_atomically(html, render_report(page).encode("utf-8", "replace"))


def _no_pattern(path: Path) -> None:
    from topocal.topo.errors import InputError, Where

    raise InputError(
        "a model holds no samples to find anything in",
        where=Where(file=str(path)),
        remedy="name a pattern (--fan-in …), or give the measurements in its place",
    )


def _model(files: list[Path], topology: str | None) -> Model | None:
    """The model, where the one file is one.

    Raises
    ------
    InputError
        When a model stands beside other files, or beside a topology, which it holds itself.
    """
    from topocal.solve.model import is_model, read_model
    from topocal.topo.errors import InputError, Where

    models = [path for path in files if is_model(path)]
    if not models:
        return None
    if len(files) > 1 or topology is not None:
        raise InputError(
            "a model comes with its own topology and samples",
            where=Where(file=str(models[0])),
            remedy="give it alone",
        )
    return read_model(models[0])


def _noted(model: Model, notes: tuple[str, ...]) -> Model:
    """The model with what was passed over on the way to it."""
    from dataclasses import replace

    return replace(model, notes=(*notes, *model.notes))


def _tell_patterns(model: Model, found: list[Speedup], size_bytes: float, as_json: bool) -> None:
    from topocal.console import console, print_indented, print_json, safe
    from topocal.prediction_text import advice_document, advice_line, details, headline
    from topocal.solve.next_measurement import Adviser
    from topocal.speedup_text import speedup_document, speedup_lines

    adviser = Adviser(model)
    advice = [adviser.advise(one.prediction) for one in found]
    if as_json:
        print_json(
            {
                "patterns": [
                    speedup_document(one, size_bytes) | {"measure_next": advice_document(ways)}
                    for one, ways in zip(found, advice, strict=True)
                ],
                "sharing": model.sharing,
                "findings": list(model.findings),
                "notes": list(model.notes),
            }
        )
        return
    out = console()
    for one, ways in zip(found, advice, strict=True):
        out.print(headline(one.prediction, size_bytes))
        lines = [*details(one.prediction, model), *([advice_line(ways)] if ways else ())]
        for line in (*lines, *speedup_lines(one, model)):
            print_indented(out, line)
    for note in (*model.findings, *model.notes):
        out.print(f"note: {safe(note)}")
