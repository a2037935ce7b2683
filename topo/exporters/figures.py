"""What each resource passes, as exporters take it: fitted or nominal, with what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.topo.resource import Link
    from topocal.topo.topology import Topology

__all__ = ["Figure", "Figures", "link_figure", "nominal_figures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What one resource passes.

    Attributes
    ----------
    capacity_Bps
        Bytes per second; ``None`` where it is unknown, and for time-shared resources.
    low_Bps, high_Bps
        Its interval; ``None`` where nothing is proven on that side.
    kappa
        Overlap of a time-shared resource.
    status
        ``nominal``, or what a fitted capacity rests on.
    """

    capacity_Bps: float | None = None
    low_Bps: float | None = None
    high_Bps: float | None = None
    kappa: float = 1.0
    status: str = "nominal"

    @property
    def is_fitted(self) -> bool:
        """Whether it says more than the specification."""
        return self.status not in ("nominal", "assumed", "unknown")


Figures = Mapping[str, Figure]
"""By resource id; every resource of the topology."""


def nominal_figures(topology: Topology) -> dict[str, Figure]:
    """The figures of a topology's own specification."""
    return {
        name: Figure(
            capacity_Bps=None if r.sharing is Sharing.TIME_SHARED else r.nominal_Bps,
            kappa=r.kappa,
            status="unknown" if r.nominal_Bps is None else "nominal",
        )
        for name, r in topology.resources.items()
    }


def link_figure(topology: Topology, figures: Figures, link: Link) -> Figure | None:
    """The tightest figure of what a link's bytes load, per byte on the link.

    Returns
    -------
    ``None`` where nothing says what the link passes.
    """
    best: Figure | None = None
    for resource, weight in link.uses:
        found = figures[resource]
        if found.capacity_Bps is None:
            continue
        scaled = Figure(
            capacity_Bps=found.capacity_Bps / weight,
            low_Bps=None if found.low_Bps is None else found.low_Bps / weight,
            high_Bps=None if found.high_Bps is None else found.high_Bps / weight,
            status=found.status,
        )
        if best is None or (scaled.capacity_Bps or 0.0) < (best.capacity_Bps or 0.0):
            best = scaled
    return best
