"""Several files about one machine become one topology, and say where they disagree.

``topo -m`` knows distances, ``lspci`` knows link widths, NCCL's XML knows both
and NVLink.  The file that shows most of the machine gives the graph; the others
fill in what it leaves open: attributes, nominal capacities, GPU links and
devices.  What two files both say is compared, never averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from topocal.topo.contradictions import Contradiction, between, within
from topocal.topo.errors import InputError
from topocal.topo.graft import Graft
from topocal.topo.match import Match, match_devices
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology
from topocal.topo.view import View

__all__ = ["Contradiction", "Merged", "merge"]

_FILLED: Final = (
    "bus_id",
    "index",
    "model",
    "numa",
    "cpu_list",
    "pci_class",
    "vendor",
    "device",
    "compute_capability",
    "architecture",
    "net_names",
    "network_Bps",
)
"""Attributes that a file may add to a device of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What came out of several files.

    Attributes
    ----------
    topology
        The machine.  Its notes hold those of all files and every contradiction.
    contradictions
        Where the files disagree with each other or themselves.
    """

    topology: Topology
    contradictions: tuple[Contradiction, ...]


def merge(topologies: Sequence[Topology]) -> Merged:
    """One topology of several descriptions of one machine.

    Devices are matched by PCI address, else (NICs) by name, else by the tools'
    numbers, else by order where the counts are the same.

    Parameters
    ----------
    topologies
        What each file says, one or more.

    Raises
    ------
    InputError
        When there is none, or one has nothing in common with the others.
    """
    if not topologies:
        raise InputError("nothing to merge", remedy="give at least one file")
    views = [View(t, name) for t, name in zip(topologies, _names(topologies), strict=True)]
    found: list[Contradiction] = [c for view in views for c in within(view)]
    waiting = sorted(views, key=_richness, reverse=True)
    base = waiting.pop(0)
    merged = View(base.topology, base.name)
    merged_names = [base.name]
    while waiting:
        # A file that nothing links to the first may still be linked to what another adds.
        for view in waiting:
            match = match_devices(merged, view)
            if match.links_them:
                break
        else:
            raise InputError(
                f"{waiting[0].name} has no device in common with {', '.join(merged_names)}",
                remedy="merge the files of one machine, and read those of another by themselves",
                about=waiting[0].topology,
            )
        waiting.remove(view)
        found += between(merged, view, match)
        merged = View(_filled(merged, view, match), " + ".join([*merged_names, view.name]))
        merged_names.append(view.name)
    contradictions = tuple(dict.fromkeys(found))
    return Merged(
        topology=_told(merged.topology, views, contradictions), contradictions=contradictions
    )


def _names(topologies: Sequence[Topology]) -> list[str]:
    """What messages call each file: by its name, numbered where two are called the same."""
    plain = []
    for topology in topologies:
        provenance = topology.graph.graph.get("provenance") or [topology.name or "a file"]
        plain.append(str(provenance[0]).partition(": ")[0])
    total, seen = Counter(plain), Counter[str]()
    names = []
    for name in plain:
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if total[name] > 1 else name)
    return names


def _richness(view: View) -> tuple[int, int, int, int, int]:
    """How much of the machine a file shows, the most telling first.

    GPUs; NUMA nodes by number; shared links of known capacity, which no other file
    can fill in unless it names the same switches; structure; capacities at all.
    """
    places = [*view.of_kind(NodeKind.PCIE_SWITCH), *view.of_kind(NodeKind.HOST_BRIDGE)]
    known = {n for n, link in view.uplink.items() if link.get("nominal_Bps") is not None}
    numas = {view.get(socket, "numa") for socket in view.of_kind(NodeKind.SOCKET)} - {None}
    return (
        len(view.of_kind(NodeKind.GPU)),
        len(numas),
        len(known.intersection(places)),
        len(places),
        len(known),
    )


def _filled(base: View, other: View, match: Match) -> Topology:
    """The first topology with what the second adds."""
    graft = Graft(base, other, match.nodes)
    graft.fill_attributes(_FILLED)
    graft.fill_links()
    kinds = {base.graph.nodes[node]["kind"] for node in match.only_first}
    # Where each file has devices that the other lacks, they may be the same devices
    # under other addresses: only a file that has all and more can add some.
    graft.add_missing_devices(kind for kind in NodeKind if kind not in kinds)
    graft.add_fabric()
    graft.fill_graph()
    return graft.build()


def _told(
    topology: Topology, views: Sequence[View], contradictions: Sequence[Contradiction]
) -> Topology:
    """The topology with all provenance, notes and contradictions."""
    graph = topology.graph.copy()
    several = len(views) > 1

    def collected(key: str) -> list[str]:
        lines: dict[str, None] = {}
        for view in views:
            for text in view.graph.graph.get(key) or ():
                lines[f"{view.name}: {text}" if several and key == "notes" else text] = None
        return list(lines)

    told = [f"contradiction: {contradiction}" for contradiction in contradictions]
    graph.graph["provenance"] = collected("provenance")
    graph.graph["notes"] = list(dict.fromkeys([*collected("notes"), *told]))
    return Topology(graph)
