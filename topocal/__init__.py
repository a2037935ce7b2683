"""topocal: what a set of concurrent transfers takes, and which resource says so.

The names below are the public ones; they are loaded when first used, so that
``import topocal`` is quick.

>>> import topocal as tc
>>> tc.fan_in("gpu3", ["gpu4", "gpu5"]).name
'gpu3<-gpu4,gpu5'
"""

from __future__ import annotations

TYPE_CHECKING = False  # As typing says it, which takes a moment to load.
if TYPE_CHECKING:
    from typing import Any

    from topocal.measure.distributed import run_plan
    from topocal.measure.importers.tables import read_tables
    from topocal.measure.load import load
    from topocal.measure.patterns import (
        both_ways,
        bundle,
        fan_in,
        fan_out,
        parse_pattern,
        peer,
        relay,
    )
    from topocal.measure.samples import Measurements, Sample
    from topocal.solve.caps import Caps
    from topocal.solve.caps_document import read_caps, write_caps
    from topocal.solve.conditions import Conditions
    from topocal.solve.fit import fit
    from topocal.solve.link_costs import link_costs
    from topocal.solve.model import Model, read_model, write_model
    from topocal.solve.pair_costs import PairCosts
    from topocal.solve.policy.answer import Assignment
    from topocal.solve.policy.assign import assign
    from topocal.solve.policy.files import read_requests
    from topocal.solve.policy.requests import Part, Request
    from topocal.solve.predict import Prediction, predict
    from topocal.solve.price import Price, price
    from topocal.solve.price_totals import PriceBounds, price_bounds
    from topocal.solve.transfer_files import read_transfers
    from topocal.solve.transfers import Totals
    from topocal.topo import machines
    from topocal.topo.builder import TopologyBuilder
    from topocal.topo.errors import TopocalError
    from topocal.topo.flow import Flow, Pattern
    from topocal.topo.io import read_topology, write_topology
    from topocal.topo.resource import LinkKind, NodeKind
    from topocal.topo.topology import Topology

__all__ = [
    "Assignment",
    "Caps",
    "Conditions",
    "Flow",
    "LinkKind",
    "Measurements",
    "Model",
    "NodeKind",
    "PairCosts",
    "Part",
    "Pattern",
    "Prediction",
    "Price",
    "PriceBounds",
    "Request",
    "Sample",
    "TopocalError",
    "Topology",
    "TopologyBuilder",
    "Totals",
    "assign",
    "both_ways",
    "bundle",
    "fan_in",
    "fan_out",
    "fit",
    "link_costs",
    "load",
    "machines",
    "parse_pattern",
    "peer",
    "predict",
    "price",
    "price_bounds",
    "read_caps",
    "read_model",
    "read_requests",
    "read_tables",
    "read_topology",
    "read_transfers",
    "relay",
    "run_plan",
    "write_caps",
    "write_model",
    "write_topology",
]

_HOME = {
    "Assignment": "solve.policy.answer",
    "Caps": "solve.caps",
    "Conditions": "solve.conditions",
    "Flow": "topo.flow",
    "LinkKind": "topo.resource",
    "Measurements": "measure.samples",
    "Model": "solve.model",
    "NodeKind": "topo.resource",
    "PairCosts": "solve.pair_costs",
    "Part": "solve.policy.requests",
    "Pattern": "topo.flow",
    "Prediction": "solve.predict",
    "Price": "solve.price",
    "PriceBounds": "solve.price_totals",
    "Request": "solve.policy.requests",
    "Sample": "measure.samples",
    "TopocalError": "topo.errors",
    "Topology": "topo.topology",
    "TopologyBuilder": "topo.builder",
    "Totals": "solve.transfers",
    "assign": "solve.policy.assign",
    "both_ways": "measure.patterns",
    "bundle": "measure.patterns",
    "fan_in": "measure.patterns",
    "fan_out": "measure.patterns",
    "fit": "solve.fit",
    "link_costs": "solve.link_costs",
    "load": "measure.load",
    "machines": "topo",
    "parse_pattern": "measure.patterns",
    "peer": "measure.patterns",
    "predict": "solve.predict",
    "price": "solve.price",
    "price_bounds": "solve.price_totals",
    "read_caps": "solve.caps_document",
    "read_model": "solve.model",
    "read_requests": "solve.policy.files",
    "read_tables": "measure.importers.tables",
    "read_topology": "topo.io",
    "read_transfers": "solve.transfer_files",
    "relay": "measure.patterns",
    "run_plan": "measure.distributed",
    "write_caps": "solve.caps_document",
    "write_model": "solve.model",
    "write_topology": "topo.io",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'topocal' has no attribute {name!r}")
    home = f"topocal.{_HOME[name]}"
    if name == "machines":
        return import_module(f"{home}.{name}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
