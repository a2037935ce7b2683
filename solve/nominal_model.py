"""A machine that nothing was measured on, as a model: every capacity by specification.

What has no specification is unknown and never binds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topocal.solve.model import Certificate, FittedResource, Model
from topocal.solve.status import Status
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["nominal_model"]


def nominal_model(topology: Topology) -> Model:
    """The model of a topology by its nominal capacities; each is assumed, or unknown.

    >>> from topocal.topo import machines
    >>> model = nominal_model(machines.dgx_h100())
    >>> sorted({str(resource.status) for resource in model.resources.values()})
    ['assumed', 'unknown']
    """
    resources = {}
    for one in topology.resources.values():
        timed = one.sharing is Sharing.TIME_SHARED
        rate = None if timed else one.nominal_Bps
        resources[one.id] = FittedResource(
            id=one.id,
            label=one.name,
            sharing=one.sharing,
            capacity_Bps=rate,
            low_Bps=rate,
            high_Bps=rate,
            kappa=one.kappa if timed else None,
            error=None,
            status=Status.ASSUMED if timed or rate is not None else Status.UNKNOWN,
        )
    return Model(
        topology=topology,
        resources=resources,
        noise=0.01,
        sharing="nothing was measured: receivers are taken to share as the topology says",
        undecided=(),
        findings=(),
        left_out={},
        residuals=(),
        alpha_s={},
        offset_s={},
        certificate=Certificate(
            least_largest_error=0.0, largest_error=0.0, text=("nothing was measured",)
        ),
        notes=("capacities are those of the specification; nothing was measured",),
        sources=(),
    )
