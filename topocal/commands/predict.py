"""``topocal predict``: what a pattern that nobody measured takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from topocal.solve.model import Model
    from topocal.solve.predict import Binding, Prediction
    from topocal.topo.flow import Pattern

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="model.json, from topocal fit.")],
    fan_in: Annotated[
        list[str] | None,
        typer.Option("--fan-in", metavar="ROOT:PEERS", help="The peers send to the root."),
    ] = None,
    fan_out: Annotated[
        list[str] | None,
        typer.Option("--fan-out", metavar="ROOT:PEERS", help="The root sends to the peers."),
    ] = None,
    flow: Annotated[
        list[str] | None,
        typer.Option(
            "--flow", metavar="FROM:TO", help="One flow; several run at once as one pattern."
        ),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option("--pattern", help="In notation: '3<-4,5', '0->1,2', '0<->1', '0->4 + 1->5'."),
    ] = None,
    size: Annotated[str, typer.Option("--size", help="Bytes of every flow.")] = "256MiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict how long a pattern takes, and which resource says so.

    topocal predict model.json --fan-in 2:3,5,7 --size 256MiB

    topocal predict model.json --flow 0:4 --flow 1:5 --json
    """
    from topocal.console import console, print_json, safe
    from topocal.solve.model import read_model
    from topocal.solve.predict import predict as predict_patterns
    from topocal.topo.endpoint_names import resolve_endpoint
    from topocal.topo.units import format_bytes, parse_bytes

    machine = read_model(model)
    size_bytes = parse_bytes(size)

    def resolve(name: str) -> str:
        return resolve_endpoint(name, machine.topology.endpoints)

    wanted = _patterns(fan_in, fan_out, flow, pattern, size_bytes, resolve)
    predictions = predict_patterns(machine, wanted)
    if as_json:
        print_json(
            {
                "predictions": [_document(p, size_bytes) for p in predictions],
                "sharing": machine.sharing,
                "findings": list(machine.findings),
                "notes": list(machine.notes),
            }
        )
        return
    out = console()
    for prediction in predictions:
        out.print(
            f"[bold]{safe(prediction.pattern.name)}[/bold], {format_bytes(size_bytes)} per flow: "
            + _headline(prediction)
        )
        for line in _details(prediction, machine):
            out.print(f"  {safe(line)}")
    for note in (*machine.findings, *machine.notes):
        out.print(f"note: {safe(note)}")


def _patterns(
    fan_in: list[str] | None,
    fan_out: list[str] | None,
    flow: list[str] | None,
    pattern: list[str] | None,
    size_bytes: float,
    resolve: Callable[[str], str],
) -> list[Pattern]:
    """All patterns asked for, in the order of the options; all flows make one pattern."""
    from topocal.measure.patterns import bundle, parse_pattern
    from topocal.measure.patterns import fan_in as make_fan_in
    from topocal.measure.patterns import fan_out as make_fan_out
    from topocal.topo.errors import InputError

    found: list[Pattern] = []
    for given, make in ((fan_in, make_fan_in), (fan_out, make_fan_out)):
        for text in given or ():
            root, peers = _sides(text, "ROOT:PEERS, such as 2:3,5,7")
            names = [resolve(p) for p in peers.replace(",", " ").split()]
            found.append(make(resolve(root), names, size_bytes))
    if flow:
        sides = [_sides(text, "FROM:TO, such as 0:4") for text in flow]
        found.append(bundle([(resolve(s), resolve(d)) for s, d in sides], size_bytes))
    for text in pattern or ():
        found.append(parse_pattern(text, size_bytes, resolve=resolve))
    if not found:
        raise InputError(
            "nothing to predict", remedy="give --fan-in, --fan-out, --flow or --pattern"
        )
    return found


def _sides(text: str, form: str) -> tuple[str, str]:
    from topocal.topo.errors import InputError, one_line

    # Endpoint ids may hold colons themselves (PCI addresses): the last one separates.
    left, colon, right = text.rpartition(":")
    if not colon or not left.strip() or not right.strip():
        raise InputError(f"{one_line(text)!r} is not of the form {form}", remedy="write it so")
    return left, right


def _headline(prediction: Prediction) -> str:
    from topocal.topo.units import format_rate, format_seconds

    return (
        f"[bold]{format_seconds(prediction.seconds)}[/bold], "
        f"{format_rate(prediction.throughput_Bps)} in all"
    )


def _details(prediction: Prediction, machine: Model) -> list[str]:
    from topocal.topo.units import format_seconds

    lines = [f"bottleneck: {prediction.reason}"]
    if prediction.runner_up is not None:
        lines.append(
            f"next: {prediction.runner_up.text}, {format_seconds(prediction.runner_up.seconds)}"
        )
    if prediction.high_s > prediction.low_s:
        span = f"{format_seconds(prediction.low_s)} to {format_seconds(prediction.high_s)}"
        if prediction.narrow:
            lines.append(f"95 % interval {span}")
        else:
            table = machine.resources
            open_ones = [table[n].label if n in table else n for n in prediction.would_narrow]
            lines.append(f"the data allows {span}; not known well: " + ", ".join(open_ones))
    if not prediction.exact:
        lines.append("simulated flow by flow: the closed form is not exact for this pattern")
    if prediction.unmeasured:
        lines.append(
            "never measured, so that it may take longer than said: "
            + ", ".join(prediction.unmeasured)
        )
    return lines


def _document(prediction: Prediction, size_bytes: float) -> dict[str, Any]:
    return {
        "pattern": prediction.pattern.name,
        "size_bytes": size_bytes,
        "seconds": prediction.seconds,
        "alpha_s": prediction.alpha_s,
        "interval_s": [prediction.low_s, prediction.high_s],
        "narrow": prediction.narrow,
        "would_narrow": list(prediction.would_narrow),
        "throughput_Bps": prediction.throughput_Bps,
        "throughput_GBps": prediction.throughput_Bps / 1e9,
        "bottleneck": _binding(prediction.bottleneck),
        "indistinguishable": [_binding(b) for b in prediction.indistinguishable],
        "runner_up": _binding(prediction.runner_up),
        "reason": prediction.reason,
        "method": "closed form" if prediction.exact else "fluid simulation",
        "unmeasured": list(prediction.unmeasured),
    }


def _binding(binding: Binding | None) -> dict[str, Any] | None:
    if binding is None:
        return None
    return {
        "resource": binding.resource,
        "label": binding.label,
        "sharing": str(binding.sharing),
        "status": str(binding.status),
        "seconds": binding.seconds,
        "dominated_by": None
        if binding.dominated_by is None
        else {"flow": binding.dominated_by[0], "share": binding.dominated_by[1]},
    }
