"""``topocal report``: a fitted machine as one HTML file for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from topocal.measure.samples import Measurements
    from topocal.report.page import Report

__all__ = ["report"]


def report(
    model: Annotated[Path, typer.Argument(help="model.json, from topocal fit.")],
    measurements: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MEASUREMENTS",
            help="What was measured, to show beside the predictions; "
            "without it, the figures that the model keeps.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the page.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print its figures as JSON.")] = False,
) -> None:
    """Show a fitted machine: drawn, its pairs and capacities, findings, a calculator.

    One file that needs nothing else, for a screen, a phone or paper.

    topocal report model.json -o report.html

    topocal report model.json calibration.json -o report.html
    """
    from dataclasses import replace

    from topocal.console import console, print_json, safe
    from topocal.expected import of_model_s
    from topocal.explaining import sort_inputs
    from topocal.outputs import check_outputs
    from topocal.progress import progress
    from topocal.report.page import build_report, render_report
    from topocal.solve.model import read_model
    from topocal.topo.errors import InputError
    from topocal.topo.files import write_atomically

    if output is None and not as_json:
        raise InputError("nowhere to write", remedy="give -o report.html")
    check_outputs(output, [model, *(measurements or ())], formats=("HTML",))
    size = 0
    with progress("drawing the machine", expected_s=of_model_s(model, "report")):
        fitted = read_model(model)
        given: Measurements | None = None
        notes: tuple[str, ...] = ()
        if measurements:
            part, notes = sort_inputs(measurements, known=fitted.topology).whole()
            given = part.measurements
        found = build_report(fitted, given)
        found = replace(found, left_out=(*notes, *found.left_out))
        if output is not None:
            content = render_report(found).encode("utf-8", "replace")
            size = len(content)
            write_atomically(output, content)
    if as_json:
        print_json(_document(found, output, size))
        return
    out = console()
    for sentence in found.left_out:
        out.print(f"note: {safe(sentence)}")
    out.print(f"wrote {safe(output)} ({size / 1e3:.0f} kB)")


def _document(found: Report, output: Path | None, size: int) -> dict[str, Any]:
    import numpy as np

    pairs = found.figures.pairs
    rows = [
        {
            "source": a,
            "destination": b,
            "measured_Bps": _number(pairs.measured_Bps[i, j]),
            "predicted_Bps": _number(pairs.predicted_Bps[i, j]),
            "error": _number(pairs.error[i, j]),
            "left_out": pairs.left_out.get((a, b)),
        }
        for i, a in enumerate(pairs.endpoints)
        for j, b in enumerate(pairs.endpoints)
        if i != j and np.isfinite([pairs.measured_Bps[i, j], pairs.predicted_Bps[i, j]]).any()
    ]
    return {
        "output": None if output is None else str(output),
        "file_bytes": size,
        "limits": [
            {"name": one.name, "passes": one.passes, "figures": one.count}
            for one in found.glance.limits
        ],
        "next_steps": [{"do": one.what, "why": one.why} for one in found.glance.steps],
        "pairs": rows,
        "patterns": [
            {
                "pattern": s.pattern.name,
                "kind": str(s.kind),
                "measured_Bps": s.measured_Bps,
                "predicted_Bps": s.predicted_Bps,
                "error": s.error,
                "left_out": s.left_out or None,
            }
            for s in found.figures.several
        ],
        "findings": [
            {
                "kind": str(f.kind),
                "severity": str(f.severity),
                "about": list(f.about),
                "text": f.text,
                "evidence": [{"name": s.name, "rate_Bps": s.rate_Bps} for s in f.evidence],
            }
            for f in found.findings
        ],
        "left_out": list(found.left_out),
    }


def _number(value: float) -> float | None:
    """A finite number, or nothing: JSON has no others."""
    import math

    return float(value) if math.isfinite(value) else None
