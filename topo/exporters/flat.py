"""A topology as plain attributes, for formats that hold numbers and text only.

Lists and records become JSON text; what is not known is left out.  A link has, beside its own
attributes, the tightest figure of what its bytes load: ``capacity_Bps`` with its interval
(``low_Bps``, ``high_Bps``) and ``status``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from topocal.topo.exporters.figures import Figures, link_figure
from topocal.topo.exporters.xml_text import xml_safe
from topocal.topo.json_values import to_json_value
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.topo.topology import Topology

__all__ = ["Plain", "link_attributes", "node_attributes", "resource_records"]

Plain = bool | int | float | str
"""What an attribute may be."""

_LARGEST_INT = 2**63


def node_attributes(data: Mapping[str, Any]) -> dict[str, Plain]:
    """A node's attributes."""
    return _plain(data)


def link_attributes(
    topology: Topology, figures: Figures, link: str, data: Mapping[str, Any]
) -> dict[str, Plain]:
    """A link's attributes, and its tightest figure."""
    figure = link_figure(topology, figures, topology.links[link])
    fields = ("capacity_Bps", "low_Bps", "high_Bps", "status")
    found = {} if figure is None else {name: getattr(figure, name) for name in fields}
    return _plain({**data, **found, "id": link})


def resource_records(topology: Topology, figures: Figures) -> list[dict[str, Any]]:
    """Every resource with its figure and who loads it besides links, as JSON values."""
    uses: dict[str, list[dict[str, Any]]] = {}
    for use in topology.uses:
        found = {
            "sources": use.sources,
            "destinations": use.destinations,
            "path_classes": None
            if use.path_classes is None
            else [c.name for c in use.path_classes],
            "weight": use.weight,
        }
        uses.setdefault(use.resource, []).append({k: v for k, v in found.items() if v is not None})
    records = []
    for name, resource in topology.resources.items():
        figure = figures[name]
        timed = resource.sharing is Sharing.TIME_SHARED
        record = {
            "id": name,
            "label": resource.name,
            "sharing": str(resource.sharing),
            "capacity_Bps": _finite(figure.capacity_Bps),
            "low_Bps": _finite(figure.low_Bps),
            "high_Bps": _finite(figure.high_Bps),
            "kappa": figure.kappa if timed else None,
            "status": figure.status,
            "uses": uses.get(name),
        }
        records.append({k: v for k, v in record.items() if v is not None})
    return records


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _plain(data: Mapping[str, Any]) -> dict[str, Plain]:
    found = {str(key): _value(value) for key, value in data.items()}
    return {xml_safe(key): value for key, value in found.items() if value is not None}


def _value(value: Any) -> Plain | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and not -_LARGEST_INT <= value < _LARGEST_INT:
        return str(value)
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, int) or value is None:
        return value
    if isinstance(value, str):
        return xml_safe(str(value))
    return xml_safe(msgspec.json.encode(to_json_value(value)).decode())
