"""Several files about one machine become one topology, and say where they disagree.

``topo -m`` knows distances, ``lspci`` knows link widths, NCCL's XML knows both
and NVLink.  The file that shows most of the machine gives the graph; the others
fill in what it leaves open: attributes, nominal capacities, GPU links and
devices.  What two files both say is compared, never averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topocal.topo.agreement import same_model
from topocal.topo.contradictions import Contradiction, between, within
from topocal.topo.errors import InputError, one_line
from topocal.topo.graft import Graft
from topocal.topo.identity import Doubt, doubt_identity
from topocal.topo.match import HOW, Match, match_devices
from topocal.topo.reroot import reroot
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology
from topocal.topo.view import DEVICES, View

__all__ = ["Contradiction", "Merged", "merge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What came out of several files.

    Attributes
    ----------
    topology
        The machine.  Its notes hold those of all files and every contradiction.
    contradictions
        Where the files disagree with each other or themselves.
    notes
        What the merge itself has to tell: devices that only some files list, …
    """

    topology: Topology
    contradictions: tuple[Contradiction, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class _Part:
    """A file that is in: what it says, and its nodes by the names that they have now."""

    view: View
    nodes: dict[str, str]

    def named(self) -> View:
        """The file with its nodes called as they are now."""
        several = Counter(self.nodes.values())
        names = {node: now for now, node in self.nodes.items() if several[node] == 1}
        return View(self.view.topology, self.view.name, names)


def merge(topologies: Sequence[Topology], names: Sequence[str] | None = None) -> Merged:
    """One topology of several descriptions of one machine.

    Devices are matched by PCI address, else (NICs) by name, else by the tools'
    numbers, else by order where the counts are the same; a file that lists no
    device by NUMA nodes and processors.

    Parameters
    ----------
    topologies
        What each file says, one or more.
    names
        What messages call each file; by default as its provenance says.

    Raises
    ------
    InputError
        When there is none, one has nothing in common with the others, or what it
        has in common is contradicted by what it says of it.
    """
    if not topologies:
        raise InputError("nothing to merge", remedy="give at least one file")
    called = _numbered([_name(t) for t in topologies] if names is None else names)
    views = [View(t, name) for t, name in zip(topologies, called, strict=True)]
    waiting = sorted(views, key=_richness, reverse=True)
    base = waiting.pop(0)
    merged = View(base.topology, base.name)
    parts = [_Part(base, {node: node for node in base.graph.nodes})]
    found: list[Contradiction] = []
    notes: list[str] = []
    while waiting:
        view, match, doubt = _next(merged, waiting, [part.view.name for part in parts])
        waiting.remove(view)
        if doubt is not None:
            found.append(_may_be_another(merged, view, match, doubt))
        if (rooted := reroot(merged, view, match)) is not None:
            notes.append(f"host bridges hang off the sockets that {view.name} names")
            for part in parts:
                part.nodes.pop(str(merged.unstated_socket), None)
            merged = View(rooted, merged.name)
            match = match_devices(merged, view)
        found += _new_contradictions(parts, view, match)
        merged, nodes = _grown(merged, view, match)
        parts.append(_Part(view, nodes))
    found = [c for part in parts for c in within(part.named())] + found
    contradictions = tuple(dict.fromkeys(found))
    if len(parts) > 1:
        notes += _counted_out(merged, parts, contradictions)
    return Merged(
        topology=_told(merged.topology, views, notes, contradictions),
        contradictions=contradictions,
        notes=tuple(notes),
    )


def _name(topology: Topology) -> str:
    provenance = topology.graph.graph.get("provenance") or [topology.name or "a file"]
    return str(provenance[0]).partition(": ")[0]


def _numbered(plain: Sequence[str]) -> list[str]:
    """Names that tell files apart: numbered where two are called the same."""
    total, seen = Counter(plain), Counter[str]()
    names = []
    for name in plain:
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if total[name] > 1 else name)
    return names


def _richness(view: View) -> tuple[int, ...]:
    """How much of the machine a file shows, the most telling first.

    GPUs that are connected; shared links of known capacity, which no other file can
    fill in unless it names the same switches; switches and host bridges by their
    addresses, as they are wired; NUMA nodes by number; structure; devices; capacities.
    """
    places = [*view.of_kind(NodeKind.PCIE_SWITCH), *view.of_kind(NodeKind.HOST_BRIDGE)]
    known = {n for n, link in view.uplink.items() if link.get("nominal_Bps") is not None}
    wired = [n for n in places if view.get(n, "bus_id") or view.get(n, "bus")]
    numas = {view.get(socket, "numa") for socket in view.of_kind(NodeKind.SOCKET)} - {None}
    return (
        0 if view.is_list else len(view.of_kind(NodeKind.GPU)),
        len(known.intersection(places)),
        len(wired),
        len(numas),
        len(places),
        0 if view.is_list else len(view.of_kind(NodeKind.NIC)),
        len(known),
    )


def _next(
    merged: View, waiting: Sequence[View], names: Sequence[str]
) -> tuple[View, Match, Doubt | None]:
    """The file that is most surely linked to what is merged already.

    One that nothing links to the first may still be linked to what another adds.
    """
    matches = [(view, match_devices(merged, view)) for view in waiting]
    refused: tuple[View, Doubt] | None = None
    for view, match in sorted(matches, key=lambda found: found[1].surest):
        if not match.links_them:
            continue
        doubt = doubt_identity(merged, view, match)
        if doubt is None or not doubt.certain:
            return view, match, doubt
        refused = refused or (view, doubt)
    if refused is not None:
        view, doubt = refused
        what = f"{view.name} is about another machine than {', '.join(names)}: " + " and ".join(
            doubt.reasons
        )
    else:
        view = waiting[0]
        what = f"{view.name} has no device in common with {', '.join(names)}"
        what += _why_not(merged, view)
    raise InputError(
        what,
        remedy="merge the files of one machine, and read those of another by themselves",
        about=view.topology,
    )


def _why_not(merged: View, view: View) -> str:
    """Why GPUs that are in both are not taken for the same."""
    listed = [each.of_kind(NodeKind.GPU) for each in (view, merged)]
    if not all(listed):
        return ""
    there, here = (
        sorted({str(m) for gpu in gpus if (m := each.get(gpu, "model"))})
        for each, gpus in zip((view, merged), listed, strict=True)
    )
    if there and here and not any(same_model(a, b) for a in there for b in here):
        return f" ({one_line(there[0])} there, {one_line(here[0])} here)"
    if all(
        each.key(gpu) for each, gpus in zip((view, merged), listed, strict=True) for gpu in gpus
    ):
        return " (all PCI addresses differ)"
    return " (neither PCI addresses nor numbers tell which GPU is which)"


def _may_be_another(merged: View, view: View, match: Match, doubt: Doubt) -> Contradiction:
    how = {"sockets": "NUMA nodes"}.get(HOW[match.surest], HOW[match.surest])
    return Contradiction(
        about="one machine?",
        what=f"{view.name} is matched to {merged.name} by {how} alone, and "
        f"{' and '.join(doubt.reasons)}: they may be about two machines",
    )


def _new_contradictions(
    parts: Sequence[_Part], view: View, match: Match
) -> Iterator[Contradiction]:
    """What a file says against each that is in, what is said against several once."""
    seen = set()
    for part in parts:
        first = part.named()
        for contradiction in between(first, view, match.seen_from(first, part.nodes, view)):
            key = "\n".join((contradiction.about, contradiction.what, *contradiction.evidence))
            key = key.replace(first.name, "")
            if key not in seen:
                seen.add(key)
                yield contradiction


def _grown(merged: View, view: View, match: Match) -> tuple[View, dict[str, str]]:
    """What is merged with what a file adds; and that file's nodes by their names in it."""
    graft = Graft(merged, view, match)
    graft.fill_attributes()
    graft.fill_links()
    graft.add_sockets()
    kinds = {merged.graph.nodes[node]["kind"] for node in match.only_first}
    # Where each file has devices that the other lacks, they may be the same devices
    # under other addresses: only a file that has all and more can add some.
    graft.add_missing_devices(kind for kind in NodeKind if kind not in kinds)
    graft.add_fabric()
    graft.add_uses()
    graft.fill_graph()
    return View(graft.build(), f"{merged.name} + {view.name}"), graft.names


def _counted_out(
    merged: View, parts: Sequence[_Part], contradictions: Sequence[Contradiction]
) -> Iterator[str]:
    """Which files show only some of the devices, and what of theirs stands nowhere."""
    about = {contradiction.about for contradiction in contradictions}
    for part in parts:
        for kind in DEVICES:
            word = f"{kind.upper()}s"
            listed, total = part.view.of_kind(kind), len(merged.of_kind(kind))
            placed = [node for node in part.nodes.values() if node in listed]
            lost = [node for node in listed if node not in placed]
            if not listed or word in about or len(placed) > len(set(placed)):
                continue
            if lost:
                yield (
                    f"{part.view.name} lists {len(lost)} {word} that no file connects to anything "
                    f"({', '.join(lost[:3])}{', …' if len(lost) > 3 else ''}): left out"
                )
            elif len(listed) < total:
                yield f"{part.view.name} lists {len(listed)} of the {total} {word}"


def _told(
    topology: Topology,
    views: Sequence[View],
    notes: Sequence[str],
    contradictions: Sequence[Contradiction],
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
    graph.graph["notes"] = list(dict.fromkeys([*collected("notes"), *notes, *told]))
    return Topology(graph)
