"""``topocal predict``: what a pattern that nobody measured takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topocal.options import AsJson
from topocal.pattern_options import BothWays, FanIn, FanOut, FlowOption, Notation, Size

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="model.json, from topocal fit.")],
    fan_in: FanIn = None,
    fan_out: FanOut = None,
    flow: FlowOption = None,
    both_ways: BothWays = None,
    pattern: Notation = None,
    size: Size = "256MiB",
    as_json: AsJson = False,
) -> None:
    """Predict how long a pattern takes, which resource says so, and how sure that is.

    Where the data leaves it open, with the measurements that would settle it.

    topocal predict model.json --fan-in 2:3,5,7 --size 256MiB

    topocal predict model.json --flow 0:4 --flow 1:5 --json
    """
    from topocal.console import console, print_indented, print_json, safe
    from topocal.expected import of_model_s
    from topocal.pattern_options import flow_size, patterns_from
    from topocal.prediction_text import (
        advice_document,
        advice_line,
        details,
        headline,
        prediction_document,
    )
    from topocal.progress import progress
    from topocal.solve.model import read_model
    from topocal.solve.next_measurement import Adviser
    from topocal.solve.predict import predict as predict_patterns
    from topocal.topo.endpoint_names import resolve_endpoint
    from topocal.topo.errors import InputError

    size_bytes = flow_size(size)
    with progress("predicting", expected_s=of_model_s(model, "predicting")):
        machine = read_model(model)
        known = machine.topology.endpoints
        wanted = patterns_from(
            fan_in,
            fan_out,
            flow,
            both_ways,
            pattern,
            size_bytes,
            lambda name: resolve_endpoint(name, known),
        )
        if not wanted:
            raise InputError(
                "nothing to predict",
                remedy="give --fan-in, --fan-out, --flow, --both-ways or --pattern",
            )
        predictions = predict_patterns(machine, wanted)
        adviser = Adviser(machine)
        advice = [adviser.advise(p) for p in predictions]
    if as_json:
        print_json(
            {
                "predictions": [
                    prediction_document(p, size_bytes) | {"measure_next": advice_document(a)}
                    for p, a in zip(predictions, advice, strict=True)
                ],
                "sharing": machine.sharing,
                "findings": list(machine.findings),
                "notes": list(machine.notes),
            }
        )
        return
    out = console()
    for prediction, ways in zip(predictions, advice, strict=True):
        out.print(headline(prediction, size_bytes))
        for line in (*details(prediction, machine), *([advice_line(ways)] if ways else ())):
            print_indented(out, line)
    for note in (*machine.findings, *machine.notes):
        out.print(f"note: {safe(note)}")
