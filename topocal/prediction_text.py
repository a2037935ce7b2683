"""How a prediction is told: to people in lines, to programs as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topocal.solve.model import Model
    from topocal.solve.next_measurement import Advice
    from topocal.solve.predict import Binding, Prediction

__all__ = [
    "advice_document",
    "advice_line",
    "binding_document",
    "details",
    "headline",
    "prediction_document",
]

_MOST_TOLD = 3


def headline(prediction: Prediction, size_bytes: float) -> str:
    """Name, size, seconds and throughput; in Rich's markup."""
    from topocal.console import safe
    from topocal.topo.units import format_bytes, format_rate, format_seconds

    return (
        f"[bold]{safe(prediction.pattern.name)}[/bold], {format_bytes(size_bytes)} per flow: "
        f"[bold]{format_seconds(prediction.seconds)}[/bold], "
        f"{format_rate(prediction.throughput_Bps)} in all"
    )


def details(prediction: Prediction, machine: Model) -> list[str]:
    """What binds, what is next, how sure that is."""
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


def advice_line(advice: Sequence[Advice]) -> str:
    """What would make a prediction narrow, or that nothing would."""
    do: dict[str, list[str]] = {}
    for one in advice:
        if one.pattern is not None:
            again = " again" * one.repeat
            do.setdefault(one.pattern.name + again, []).append(one.label)
    parts = [f"{name} (for {', '.join(labels)})" for name, labels in do.items()]
    vain = [one for one in advice if one.pattern is None]
    if not parts:
        reasons = "; ".join(f"{one.label}: {one.reason}" for one in vain[:_MOST_TOLD])
        return f"no measurement of patterns would make it narrow: {reasons}"
    more = len(parts) - _MOST_TOLD
    words = "; ".join(parts[:_MOST_TOLD])
    if more > 0:
        words += f"; and {more} more"
    if vain:
        words += f"; only then, if at all, {', '.join(one.label for one in vain[:_MOST_TOLD])}"
    return f"to make it narrow, measure {words}"


def advice_document(advice: Sequence[Advice]) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [
        {
            "about": one.about,
            "label": one.label,
            "pattern": None if one.pattern is None else one.pattern.name,
            "ratio": one.ratio,
            "measured_already": one.repeat,
            "reason": one.reason,
        }
        for one in advice
    ]


def prediction_document(prediction: Prediction, size_bytes: float) -> dict[str, Any]:
    """All of it."""
    return {
        "pattern": prediction.pattern.name,
        "size_bytes": size_bytes,
        "seconds": prediction.seconds,
        "alpha_s": prediction.alpha_s,
        "interval_s": [prediction.low_s, prediction.high_s],
        "narrow": prediction.narrow,
        "would_narrow": list(prediction.would_narrow),
        "throughput_Bps": prediction.throughput_Bps,
        "bottleneck": binding_document(prediction.bottleneck),
        "indistinguishable": [binding_document(b) for b in prediction.indistinguishable],
        "runner_up": binding_document(prediction.runner_up),
        "reason": prediction.reason,
        "method": "closed form" if prediction.exact else "fluid simulation",
        "unmeasured": list(prediction.unmeasured),
    }


def binding_document(binding: Binding | None) -> dict[str, Any] | None:
    """A resource's part in it."""
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
