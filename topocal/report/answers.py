"""What the report answers from figures alone, as :mod:`topocal.solve.explain` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topocal.solve.evidence import Concurrent, Evidence, Finding
from topocal.solve.findings import find_all
from topocal.solve.status import Status

if TYPE_CHECKING:
    from topocal.report.figures import Measured
    from topocal.solve.model import Model

__all__ = ["evidence_of", "findings_of"]


def findings_of(model: Model, measured: Sequence[Measured]) -> tuple[Finding, ...]:
    """What :mod:`topocal.solve.findings` finds in the figures that the fit used."""
    return tuple(find_all(evidence_of(model, measured)))


def evidence_of(model: Model, measured: Sequence[Measured]) -> Evidence:
    """The figures that the fit used, and what it makes of links.

    As in :func:`topocal.solve.explain.explain`, what the fit only supposed (a sender's class
    of routes) is no evidence.
    """
    used = [m for m in measured if not m.left_out and m.throughput_Bps is not None]
    on_links = {name for link in model.topology.links.values() for name, _ in link.uses}
    return Evidence(
        topology=model.topology,
        pair_rates_Bps={
            m.pattern.pairs[0]: m.throughput_Bps
            for m in used
            if len(m.pattern.flows) == 1 and m.throughput_Bps is not None
        },
        concurrent=tuple(
            Concurrent(pattern=m.pattern, throughput_Bps=m.throughput_Bps)
            for m in used
            if len(m.pattern.flows) > 1 and m.throughput_Bps is not None
        ),
        fitted_Bps={
            r.id: r.capacity_Bps
            for r in model.resources.values()
            if r.status is Status.PINNED and r.capacity_Bps and r.id in on_links
        },
        noise=model.noise,
    )
