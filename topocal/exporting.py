"""A model or topology in the formats of other programs, and what they cannot say of it.

``topocal export`` finds the machine and its figures here and leaves the writing to
:mod:`topocal.topo.exporters`; what only a fitted model knows becomes notes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topocal.solve.model import Model
    from topocal.topo.exporters.figures import Figures
    from topocal.topo.topology import Topology

__all__ = ["FORMATS", "Export", "Source", "export", "find_source", "fitted_figures", "held_by"]

FORMATS: Final = ("simgrid", "nccl", "graphml", "dot")
"""What :func:`export` writes."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is exported: a machine, what each resource passes, and what else a model knows.

    ``capacities`` is ``fitted`` or ``nominal``; ``file`` what it was found by.
    """

    topology: Topology
    figures: Figures
    capacities: str
    notes: tuple[str, ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class Export:
    """A file's text, and what it does not say."""

    text: str
    notes: tuple[str, ...]


def held_by(format: str) -> str:
    """What a file of a format holds, as :func:`topocal.outputs.check_outputs` calls it.

    Raises
    ------
    InputError
        When the format is unknown.
    """
    from topocal.topo.choices import one_of

    held = {"simgrid": "XML", "nccl": "XML", "graphml": "GraphML or XML", "dot": "DOT"}
    return held[one_of(format, FORMATS, what="format")]


def find_source(name: str) -> Source:
    """A fitted model, a topology, a tool's output or a reference machine, by name.

    Raises
    ------
    InputError
        When it is none of these, or cannot be read.
    """
    from topocal.machine import find_topology
    from topocal.solve.model import is_model, read_model
    from topocal.topo.exporters.figures import nominal_figures

    if is_model(name):
        model = read_model(name)
        notes = _model_notes(model)
        return Source(model.topology, fitted_figures(model), "fitted", notes, file=name)
    topology = find_topology(name)
    return Source(topology, nominal_figures(topology), "nominal", file=name)


def fitted_figures(model: Model) -> Figures:
    """The figures of a model; a bounded capacity is what is proven of it."""
    from topocal.topo.exporters.figures import Figure

    return {
        r.id: Figure(
            capacity_Bps=r.capacity_Bps,
            low_Bps=r.low_Bps,
            high_Bps=r.high_Bps,
            kappa=1.0 if r.kappa is None else r.kappa,
            status=str(r.status),
        )
        for r in model.resources.values()
    }


def _model_notes(model: Model) -> tuple[str, ...]:
    """What a model knows and a graph with capacities does not."""
    from topocal.topo.units import format_seconds

    notes = []
    if model.alpha_s:
        times = ", ".join(f"{kind} {format_seconds(s)}" for kind, s in model.alpha_s.items())
        notes.append(f"start-up time by kind of pattern, not in the file: {times}")
    else:
        notes.append("start-up times were not measured")
    if model.fading is not None:
        notes.append(
            f"many flows at once lose {model.fading.loss:.1%} for each further one (up to "
            f"{model.fading.most_flows}), which the file does not say"
        )
    if model.undecided or model.undecided_endpoints:
        notes.append(
            "whether some endpoints serve their flows at once or by turns is undecided: "
            "the file says the one that the model takes"
        )
    return tuple(notes)


def export(
    source: Source,
    format: str,
    *,
    endpoints: str | None = None,
    host: str | None = None,
) -> Export:
    """The file's text.

    Parameters
    ----------
    format
        One of :data:`FORMATS`.
    endpoints
        Hosts of a SimGrid platform, such as ``0,1,nic0`` (default: the accelerators, else all
        endpoints).
    host
        Which host NCCL's file describes, where there are several.

    Raises
    ------
    InputError
        When the format is unknown, an option is not for it, or it cannot hold the machine.
    """
    from topocal.topo.choices import one_of
    from topocal.topo.errors import InputError, UnknownEndpointError, Where

    kind = one_of(format, FORMATS, what="format")
    for given, option, of in ((endpoints, "--endpoints", "simgrid"), (host, "--host", "nccl")):
        if given is not None and kind != of:
            raise InputError(f"{option} is for {of}", remedy=f"leave it out, or say --as {of}")
    try:
        return _written(source, kind, endpoints, host)
    except InputError as error:
        if error.where is not None or isinstance(error, UnknownEndpointError):
            raise
        where = Where(file=source.file or source.topology.name)
        raise InputError(error.what, where=where, remedy=error.remedy) from error


def _written(source: Source, kind: str, endpoints: str | None, host: str | None) -> Export:
    topology, figures = source.topology, source.figures
    if kind == "simgrid":
        from topocal.topo.endpoint_names import endpoint_list
        from topocal.topo.exporters.simgrid import simgrid_platform

        chosen = None if endpoints is None else endpoint_list(endpoints, topology.endpoints)
        platform = simgrid_platform(topology, figures, endpoints=chosen, notes=source.notes)
        return Export(platform.text, platform.notes)
    if kind == "nccl":
        from topocal.topo.exporters.nccl_xml import nccl_file

        file = nccl_file(topology, figures, host=host, notes=source.notes)
        return Export(file.text, file.notes)
    if kind == "graphml":
        from topocal.topo.exporters.graphml import to_graphml

        return Export(to_graphml(topology, figures), source.notes)
    from topocal.topo.exporters.dot import to_dot

    return Export(to_dot(topology, figures), source.notes)
