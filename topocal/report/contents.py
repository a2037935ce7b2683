"""Where a report's figures come from, and what the file says about the host.

A report is made to be passed on, so it lists what it gives away.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING

from topocal.report.words import file_name
from topocal.topo.errors import one_line, printable
from topocal.topo.naming import natural_key
from topocal.topo.render.sharing import list_names

if TYPE_CHECKING:
    from topocal.measure.samples import Measurements
    from topocal.solve.model import Model

__all__ = ["contents", "provenance"]

_MOST_NAMES = 12


def provenance(model: Model, measurements: Measurements | None) -> Iterator[tuple[str, str]]:
    """Names and values: files, programs, conditions of measurement."""
    sources = dict.fromkeys(file_name(s) for s in model.sources)
    yield "fitted to", _some(list(sources)) or "samples without a file"
    if measurements is not None:
        given = dict.fromkeys(file_name(s) for s in measurements.sources)
        if list(given) != list(sources):
            yield "samples shown", _some(list(given)) or "given without a file"
    for key, value in conditions(model, measurements).items():
        yield key.replace("_", " "), one_line(value)
    yield "patterns", f"{len(model.residuals)} fitted, {len(model.left_out)} left out"
    yield "noise of one figure", f"{model.noise:.2%}"
    nominal = {r.source for r in model.topology.resources.values() if r.source}
    if nominal:
        yield "nominal values", _some(sorted(nominal))
    yield "written by", f"topocal {installed_version('topocal')}, from model.json version 1"


def conditions(model: Model, measurements: Measurements | None) -> dict[str, object]:
    """Under which the figures were measured: what is a plain value."""
    known: dict[str, object] = dict(model.provenance)
    for run in () if measurements is None else measurements.runs:
        known |= run.provenance
    return {
        str(key): value
        for key, value in known.items()
        if isinstance(value, str | int | float | bool)
    }


def contents(model: Model, measurements: Measurements | None) -> Iterator[str]:
    """Sentences on what the file says of the host."""
    graph = model.topology.graph
    yield f"Names of endpoints: {_some_names(model.topology.endpoints)}."
    data = [d for _, d in graph.nodes(data=True)]
    hosts = {str(d["host"]) for d in data if d.get("host")}
    hosts |= {name.rpartition("/")[0] for name in model.topology.endpoints if "/" in name}
    yield f"Names of hosts: {_some_names(hosts)}." if hosts else "No names of hosts."
    models = {str(d["model"]) for d in data if d.get("model")}
    if models:
        yield f"Models of devices: {_some(sorted(models))}."
    addresses = any(
        str(d.get("bus_id") or "") in str(n) for n, d in graph.nodes(data=True) if d.get("bus_id")
    )
    yield "PCI addresses, as part of names." if addresses else "No PCI addresses."
    yield "Names of the files that it was made from, without their folders."
    if conditions(model, measurements):
        yield "The conditions of measurement that are listed here."
    yield (
        "Measured rates of transfers; no raw timings, no serial numbers, no user names, unless "
        "they are part of a name above."
    )


def _some_names(names: object) -> str:
    ordered = sorted((str(n) for n in names), key=natural_key)  # type: ignore[attr-defined]
    if len(ordered) > 200:
        return f"{list_names(ordered[:8])} … {ordered[-1]}, {len(ordered)} in all"
    return printable(list_names(ordered))


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return printable("; ".join(names[:_MOST_NAMES])) + (f"; and {more} more" if more > 0 else "")
