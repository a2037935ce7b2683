"""Flows simulated on a case, as rows and documents that the command prints and writes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topocal.topo.busiest import Busiest
    from topocal.topo.flow import Pattern
    from topocal.topo.fluid import FluidResult
    from topocal.topo.sweep import Swept
    from topocal.topo.what_if import Case

__all__ = [
    "Outcome",
    "flow_rows",
    "pattern_rows",
    "rows_as_csv",
    "run_many",
    "run_one",
]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One pattern on one case: the simulation, and the closed form beside it."""

    case: Case
    result: FluidResult
    closed: Busiest

    def label(self, resource: str | None) -> str | None:
        """A resource's name for people."""
        return None if resource is None else self.case.topology.resources[resource].name

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        runner_up = int(self.closed.runner_up[0])
        return {
            "seconds": self.result.seconds,
            "closed_form": {
                "seconds": float(self.closed.seconds[0]),
                "exact": bool(self.closed.exact[0]),
                "bottleneck": self.closed.bottleneck_of(0),
                "runner_up": None if runner_up < 0 else self.closed.resources[runner_up],
                "seconds_without_bottleneck": float(self.closed.runner_up_s[0]),
            },
            "flows": flow_rows(self),
        }


def run_one(case: Case, pattern: Pattern, *, alpha_s: float, record: bool) -> Outcome:
    """Simulate one pattern.

    Raises
    ------
    TopocalError
        When a flow cannot be carried, or never finishes.
    """
    from topocal.topo.busiest import busiest_of_batch
    from topocal.topo.fluid import simulate_loads

    loads, batch = case.batch([pattern])
    result = simulate_loads(pattern.flows, loads, batch, alpha_s=alpha_s, record=record)
    return Outcome(case, result, busiest_of_batch(loads, batch, alpha_s=alpha_s))


def run_many(
    case: Case,
    patterns: Sequence[Pattern],
    *,
    alpha_s: float,
    progress: Callable[[int], None] | None = None,
) -> Swept:
    """Simulate patterns that have nothing to do with each other.

    Raises
    ------
    TopocalError
        When a flow cannot be carried.
    """
    from topocal.topo.sweep import sweep

    loads, batch = case.batch(patterns)
    return sweep(loads, batch, alpha_s=alpha_s, progress=progress)


def flow_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """One row per flow, in the order they were given."""
    result = outcome.result
    rows = []
    for k, flow in enumerate(result.flows):
        finish = float(result.finish_s[k])
        took = finish - flow.start_s
        rows.append(
            {
                "source": flow.source,
                "destination": flow.destination,
                "size_bytes": flow.size_bytes,
                "start_s": flow.start_s,
                "begin_s": float(result.begin_s[k]),
                "finish_s": finish,
                "throughput_Bps": flow.size_bytes / took if took > 0 else None,
                "bottleneck": result.bottleneck_of(k),
            }
        )
    return rows


def pattern_rows(
    patterns: Sequence[Pattern], swept: Swept, before: Swept | None
) -> list[dict[str, Any]]:
    """One row per pattern; ``before`` is the same without the changes."""
    rows = []
    for k, pattern in enumerate(patterns):
        row: dict[str, Any] = {
            "pattern": pattern.name,
            "flows": len(pattern.flows),
            "seconds": _finite(float(swept.seconds[k])),
            "simulated": bool(swept.simulated[k]),
            "bottleneck": swept.bottleneck_of(k),
        }
        if before is not None:
            row["seconds_before"] = _finite(float(before.seconds[k]))
        rows.append(row)
    return rows


def _finite(seconds: float) -> float | None:
    """A time that JSON can hold; ``None``: it never finishes."""
    return None if seconds == float("inf") else seconds


def rows_as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """Rows as CSV with a header; nothing where there is no value; numbers in full."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: "" if v is None else v for k, v in row.items()})
    return stream.getvalue().encode()
