"""Who loads which resource when every accelerator sends to every other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from topocal.topo.incidence import incidence
from topocal.topo.naming import natural_key
from topocal.topo.resource import PathClass, Resource
from topocal.topo.topology import Topology

__all__ = ["Shared", "list_names", "shared_resources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A resource and the pairs that load it.

    Attributes
    ----------
    resource
        The resource.
    sources, destinations
        Who sends over it, and to whom, in natural order.
    pairs
        How many ordered pairs load it.
    heaviest
        Greatest weight with which one byte counts on it.
    """

    resource: Resource
    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    pairs: int
    heaviest: float

    @property
    def is_private(self) -> bool:
        """Whether it belongs to one endpoint, for all it sends or all it receives."""
        return len(self.sources) <= 1 or len(self.destinations) <= 1


def shared_resources(topology: Topology) -> list[Shared]:
    """Every resource that some pair of accelerators loads, the most shared first."""
    routes = topology.routes()
    pairs = [
        (source, destination)
        for source, destination, code in routes.classes()
        if code is not PathClass.DIS
    ]
    if not pairs:
        return []
    loads = incidence(topology, pairs)
    matrix = loads.matrix.tocsc()
    position = routes.position
    source = np.array([position[s] for s, _ in pairs])
    destination = np.array([position[d] for _, d in pairs])
    found = []
    for column, name in enumerate(loads.resources):
        rows = matrix.indices[matrix.indptr[column] : matrix.indptr[column + 1]]
        if len(rows) == 0:
            continue
        weights = matrix.data[matrix.indptr[column] : matrix.indptr[column + 1]]
        found.append(
            Shared(
                resource=topology.resources[name],
                sources=tuple(routes.endpoints[k] for k in np.unique(source[rows])),
                destinations=tuple(routes.endpoints[k] for k in np.unique(destination[rows])),
                pairs=len(rows),
                heaviest=float(weights.max()),
            )
        )
    return sorted(found, key=lambda s: (-s.pairs, natural_key(s.resource.id)))


def list_names(names: Iterable[str]) -> str:
    """Names with runs of numbers drawn together, and hosts that have the same ones.

    >>> list_names(["gpu0", "gpu1", "gpu2", "gpu5"])
    'gpu0–2, gpu5'
    >>> list_names(["node0/gpu0", "node0/gpu1", "node1/gpu0", "node1/gpu1"])
    'node0–1/gpu0–1'
    """
    by_host: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names, key=natural_key):
        host, _, own = name.rpartition("/")
        by_host[host].append(own)
    by_set: dict[str, list[str]] = defaultdict(list)
    for host, inside in by_host.items():
        by_set[", ".join(_runs(inside))].append(host)
    parts = []
    for listed, hosts in by_set.items():
        inner = f"({listed})" if ", " in listed and hosts != [""] else listed
        parts += [f"{run}/{inner}" if run else inner for run in _runs(hosts)]
    return ", ".join(parts)


def _runs(names: list[str]) -> list[str]:
    """``gpu0``, ``gpu1``, ``gpu2`` as ``gpu0–2``; names come in natural order."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        number = int(digits) if _is_plain_number(digits) else -1
        if number < 0:
            runs.append((name, -1, -1))
        elif runs and runs[-1][0] == stem and runs[-1][2] == number - 1:
            runs[-1] = (stem, runs[-1][1], number)
        else:
            runs.append((stem, number, number))
    return [_run(*run) for run in runs]


def _is_plain_number(digits: str) -> bool:
    return digits.isdecimal() and len(digits) <= 18 and digits == str(int(digits))


def _run(stem: str, first: int, last: int) -> str:
    if first < 0:
        return stem
    return f"{stem}{first}" if first == last else f"{stem}{first}–{last}"
