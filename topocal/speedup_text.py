"""How it is told what a pattern takes to be faster: in lines, and as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topocal.solve.model import Model
    from topocal.solve.speedup import Demand, Needed, Speedup

__all__ = ["speedup_document", "speedup_lines"]


def speedup_lines(found: Speedup, model: Model) -> list[str]:
    """What relieving the bottleneck gains, and what being faster takes."""
    from topocal.topo.units import format_seconds

    lines = []
    if found.relief is not None and found.relieved_s is not None:
        lines.append(
            f"without this bottleneck: {format_seconds(found.relieved_s)}, {found.relief:.2f} "
            "times as fast"
        )
    if found.prediction.bottleneck is None:
        return lines
    head = f"to be {found.factor:g} times as fast, in {format_seconds(found.target_s)}"
    if not found.possible:
        return [*lines, f"{head}: impossible, an empty message takes as long"]
    lines.append(f"{head}:")
    told: dict[object, list[Demand]] = {}
    for demand in found.demands:
        told.setdefault(demand.key, []).append(demand)
    lines += [f"- {first.text_with(alike)}" for first, *alike in told.values()]
    if found.unsure:
        names = ", ".join(model.resources[name].label for name in found.unsure)
        lines.append(f"- not known well, and perhaps too slow as well: {names}")
    return lines


def speedup_document(found: Speedup, size_bytes: float) -> dict[str, Any]:
    """All of it, the prediction included."""
    from topocal.prediction_text import prediction_document

    return {
        **prediction_document(found.prediction, size_bytes),
        "relieved_s": found.relieved_s,
        "relief": found.relief,
        "faster": {
            "times": found.factor,
            "seconds": found.target_s,
            "possible": found.possible,
            "resources": [_demand_document(d) for d in found.demands],
            "unsure": list(found.unsure),
        },
    }


def _demand_document(demand: Demand) -> dict[str, Any]:
    return {
        "resource": demand.resource,
        "label": demand.label,
        "sharing": str(demand.sharing),
        "status": str(demand.status),
        "seconds": demand.seconds,
        "times": demand.factor,
        "flows": list(demand.flows),
        "needed": None if demand.needed is None else _needed_document(demand.needed),
        "in_series": list(demand.in_series),
        "one_way_s": demand.one_way_s,
        "crosses_twice": list(demand.twice),
        "leave_out": list(demand.leave_out),
        "flows_alone": [_needed_document(n) for n in demand.faster],
        "text": demand.text,
    }


def _needed_document(needed: Needed) -> dict[str, Any]:
    return {
        "resource": needed.resource,
        "now_Bps": needed.now_Bps,
        "needed_Bps": needed.needed_Bps,
        "times": needed.factor,
    }
