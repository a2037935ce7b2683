"""Fit the published eight-card machine, and ask it about patterns.

56 pairs and three fans go in; capacities with intervals and a status come out, and predictions with
the resource that binds.  On the command line: `topocal fit`, `topocal predict`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import topocal as tc
from topocal.topo.units import format_rate, format_seconds

TABLES = Path(__file__).with_name("b70")


def main() -> None:
    """Print what the fit knows, and what four patterns take."""
    measured = tc.read_tables([TABLES / "pairs.csv", TABLES / "fans.csv"])
    model = tc.fit(measured, tc.machines.b70())
    statuses = Counter(str(r.status) for r in model.resources.values())
    print(
        f"{len(model.residuals)} figures explained within "
        f"{max(abs(r.error) for r in model.residuals):.1%}; resources: "
        + ", ".join(f"{n} {status}" for status, n in statuses.most_common())
    )
    print(f"{model.sharing}\n")
    for resource in [r for r in model.resources.values() if r.status == "pinned"][:6]:
        known = "by turns" if resource.capacity_Bps is None else format_rate(resource.capacity_Bps)
        print(f"  {resource.label:36} {known:>10}   {resource.pinned_by[0]}")
    print()
    gpu = [f"gpu{k}" for k in range(8)]
    for pattern in tc.predict(
        model,
        [
            tc.peer(gpu[0], gpu[4]).scaled(2.0**28),
            tc.fan_in(gpu[3], gpu[4:], 2.0**28),
            tc.fan_in(gpu[0], gpu[1:], 2.0**28),
            tc.parse_pattern("gpu0->gpu4 + gpu1->gpu5").scaled(2.0**28),
        ],
    ):
        sure = f"{format_seconds(pattern.low_s)} to {format_seconds(pattern.high_s)}"
        print(f"{pattern.pattern.name}: {format_seconds(pattern.seconds)} ({sure})")
        print(f"    {pattern.reason}")


if __name__ == "__main__":
    main()
