"""Where files about one machine disagree, and where one file disagrees with itself.

Neither side is taken for right: a contradiction says what each says and leaves
the choice to the user, or to a measurement.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from topocal.topo.agreement import processors_agree, same_value
from topocal.topo.distances import compare_distances
from topocal.topo.match import Match
from topocal.topo.readers.pci import bus_id_key, normal_bus_id
from topocal.topo.resource import NodeKind, PathClass
from topocal.topo.topology import natural_key
from topocal.topo.view import View, uplink_text

__all__ = ["Contradiction", "between", "within"]

_SHOWN: Final = 3
_NOT_COMPARED: Final = frozenset(
    (
        *("kind", "label", "bus_id", "bus", "path", "host", "names", "net_names"),
        *("rank", "card", "tile", "numa_nodes", "count"),
    )
)
"""Attributes that readers make up, that depend on the run, or that have a rule of their own."""

_WORDS: Final = {
    "index": ("numbers", "the files number devices differently"),
    "numa": ("NUMA nodes", "the files put devices on different NUMA nodes"),
    "model": ("models", "the files name different models"),
    "device": ("PCI device ids", "the files give different ones"),
    "network_Bps": ("network speed", "the files give different bytes per second"),
    "cpu_list": ("processors", "the files give NUMA nodes different ones"),
}
"""What messages call an attribute; others go by their names."""

_PREDICTABLE: Final = re.compile(
    r"(?:rdmap|rocep|ibp|enp|wlp|roceP[0-9]+p|ibP[0-9]+p|enP[0-9]+p)([0-9]+)s[0-9]"
)
"""systemd's predictable names: ``p`` is the PCI bus in decimal (systemd.net-naming-scheme)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two statements that cannot both hold.

    Attributes
    ----------
    about
        The device, link or pair.
    what
        What is at odds, in a sentence.
    evidence
        What each side says.
    """

    about: str
    what: str
    evidence: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = _some(self.evidence, between="; ")
        return f"{self.about}: {self.what}" + (f" ({shown})" if shown else "")


def within(view: View) -> Iterator[Contradiction]:
    """What one file says against itself."""
    yield from _trained_low(view)
    yield from _narrow_bridges(view)
    yield from _gpu_order(view)
    yield from _nic_names(view)


def _trained_low(view: View) -> Iterator[Contradiction]:
    for node, link in view.uplink.items():
        now = (link.get("generation"), link.get("width"))
        best = (link.get("max_generation"), link.get("max_width"))
        low = [
            word
            for word, have, could in zip(("speed", "width"), now, best, strict=True)
            if isinstance(have, int) and isinstance(could, int) and have < could
        ]
        if low:
            could = {"generation": best[0] or now[0], "width": best[1] or now[1]}
            yield Contradiction(
                about=view.called(node),
                what=f"the link above is trained below its capability in {' and '.join(low)}"
                + (" (an idle GPU may save power: read it under load)" if "speed" in low else ""),
                evidence=(f"runs {uplink_text(link)}", f"could run {uplink_text(could)}"),
            )


def _narrow_bridges(view: View) -> Iterator[Contradiction]:
    """Bridges with fewer lanes than a card below: either badly trained, or not the data's way."""
    widest: dict[str, tuple[int, str]] = {}
    for node, link in view.uplink.items():
        width = link.get("width")
        if not isinstance(width, int) or not view.graph.nodes[node]["kind"].is_endpoint:
            continue
        above = view.above[node][0]
        while above in view.above:
            widest[above] = max(widest.get(above, (0, "")), (width, node))
            above = view.above[above][0]
    for bridge, (width, card) in widest.items():
        own = view.uplink.get(bridge, {}).get("width")
        if isinstance(own, int) and own < width:
            yield Contradiction(
                about=view.called(bridge),
                what=f"a link of {own} lanes above a card of {width}: badly trained, or not the "
                "way that data takes",
                evidence=(
                    f"{view.called(bridge)}: {uplink_text(view.uplink[bridge])}",
                    f"{view.called(card)}: {uplink_text(view.uplink[card])}",
                ),
            )


def _gpu_order(view: View) -> Iterator[Contradiction]:
    numbered = []
    for gpu in view.of_kind(NodeKind.GPU):
        index, bus_id = view.get(gpu, "index"), view.get(gpu, "bus_id")
        if isinstance(index, int) and isinstance(bus_id, str) and normal_bus_id(bus_id) == bus_id:
            host = str(view.get(gpu, "host") or "")
            numbered.append((host, index, (host, bus_id_key(bus_id)), bus_id, view.called(gpu)))
    numbered.sort()
    by_address = sorted(numbered, key=lambda entry: entry[2])
    moved = [a for a, b in zip(numbered, by_address, strict=True) if a is not b]
    if moved:
        yield Contradiction(
            about="GPU order",
            what="GPU numbers do not follow PCI addresses, so tools that number by address "
            "(nvidia-smi) mean other GPUs (CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA follow)",
            evidence=tuple(f"{gpu} is {bus_id}" for _, _, _, bus_id, gpu in moved),
        )


def _nic_names(view: View) -> Iterator[Contradiction]:
    odd = []
    for nic in view.of_kind(NodeKind.NIC):
        bus_id = view.get(nic, "bus_id")
        for name in view.get(nic, "net_names") or ():
            match = _PREDICTABLE.match(str(name))
            if match is None or not isinstance(bus_id, str) or ":" not in bus_id:
                continue
            bus = bus_id.split(":")[1]
            if len(match[1]) <= 3 and int(match[1]) != int(bus, 16):
                odd.append(f"{name} is named for bus {int(match[1]):02x} and listed at {bus_id}")
    if odd:
        yield Contradiction(
            about="NIC names",
            what="names that the kernel makes of PCI addresses belong to other addresses",
            evidence=tuple(odd),
        )


def between(first: View, second: View, match: Match) -> Iterator[Contradiction]:
    """What two files about one machine say against each other."""
    yield from _roles(first, second)
    yield from _devices(first, second, match)
    yield from _switches(first, second, match)
    yield from _attributes(first, second, match)
    yield from _uplinks(first, second, match)
    yield from _fabric(first, second, match)
    yield from _classes(first, second, match)
    yield from _peer_access(first, second)


def _roles(first: View, second: View) -> Iterator[Contradiction]:
    clashes = []
    for key, node in first.by_bus.items():
        other = second.by_bus.get(key)
        if other is None:
            continue
        a, b = first.graph.nodes[node]["kind"], second.graph.nodes[other]["kind"]
        if a is not b and (a.is_endpoint or b.is_endpoint):
            clashes.append(f"{key[1]} is a {a} in {first.name} and a {b} in {second.name}")
    if clashes:
        yield Contradiction(
            about="PCI addresses",
            what="one address is two kinds of device",
            evidence=tuple(clashes),
        )


def _devices(first: View, second: View, match: Match) -> Iterator[Contradiction]:
    """Devices that moved; and devices of either file that the other lacks.

    A file that lists fewer is no contradiction: ``lspci -s`` and a job that sees
    some of the GPUs do that.
    """
    moved = []
    for a, b in match.endpoints.items():
        here, there = first.get(a, "bus_id"), second.get(b, "bus_id")
        if here is not None and there is not None and here != there:
            moved.append(
                f"{first.called(a)} is {here} in {first.name} and {there} in {second.name}"
            )
    if moved:
        yield Contradiction(
            about="PCI addresses", what="devices have different addresses", evidence=tuple(moved)
        )
    for kind, word in ((NodeKind.GPU, "GPUs"), (NodeKind.NIC, "NICs")):
        alone = []
        for view, nodes in ((first, match.only_first), (second, match.only_second)):
            these = [_described(view, n) for n in nodes if view.graph.nodes[n]["kind"] is kind]
            if these:
                alone.append(f"only in {view.name}: {_some(these)}")
        if len(alone) > 1:
            counts = [len(view.of_kind(kind)) for view in (first, second)]
            yield Contradiction(
                about=word,
                what=f"the files list different {word}: {counts[0]} in {first.name}, "
                f"{counts[1]} in {second.name}",
                evidence=tuple(alone),
            )


def _switches(first: View, second: View, match: Match) -> Iterator[Contradiction]:
    """The switch above a device, where neither file knows the other's at all."""
    odd = []
    for a, b in match.endpoints.items():
        above = [view.above.get(node, ("",))[0] for view, node in ((first, a), (second, b))]
        if not all(above):
            continue
        here, there = first.get(above[0], "bus_id"), second.get(above[1], "bus_id")
        if here is None or there is None or here == there:
            continue
        host = str(first.get(a, "host") or "")
        if (host, here) not in second.by_bus and (host, there) not in first.by_bus:
            odd.append(
                f"{first.called(a)}: below {here} in {first.name}, below {there} in {second.name}"
            )
    if odd:
        yield Contradiction(
            about="PCIe switches",
            what="the files put devices below different switches",
            evidence=tuple(odd),
        )


def _attributes(first: View, second: View, match: Match) -> Iterator[Contradiction]:
    odd: dict[str, list[str]] = {attribute: [] for attribute in _WORDS}
    pairs = match.nodes | match.parts
    for a, b in pairs.items():
        mine = first.graph.nodes[a]
        whole = (first.lists_processors(a), second.lists_processors(b))
        for attribute in mine:
            here, there = first.get(a, attribute), second.get(b, attribute)
            if here is None or there is None or attribute in _NOT_COMPARED:
                continue
            if attribute == "cpu_list" and isinstance(here, str) and isinstance(there, str):
                agree = processors_agree(here, there, whole=whole)
            else:
                agree = same_value(attribute, here, there)
            if not agree and not (attribute == "index" and a in match.parts):
                odd.setdefault(attribute, []).append(
                    f"{first.called(a)}: {here} in {first.name}, {there} in {second.name}"
                )
    for attribute, evidence in odd.items():
        if evidence:
            about, what = _WORDS.get(
                attribute, (attribute.replace("_", " "), "the files give different values")
            )
            yield Contradiction(about=about, what=what, evidence=tuple(evidence))


def _uplinks(first: View, second: View, match: Match) -> Iterator[Contradiction]:
    """Speed and width of the PCIe links above the same devices."""
    odd = []
    for a, b in match.nodes.items():
        here, there = first.uplink.get(a, {}), second.uplink.get(b, {})
        pairs = [(here.get(word), there.get(word)) for word in ("generation", "width")]
        if any(None not in (one, two) and one != two for one, two in pairs):
            odd.append(
                f"{first.called(a)}: {uplink_text(here)} in {first.name}, "
                f"{uplink_text(there)} in {second.name}"
            )
    if odd:
        yield Contradiction(
            about="PCIe links",
            what="the files give different speeds or widths",
            evidence=tuple(odd),
        )


def _fabric(first: View, second: View, match: Match) -> Iterator[Contradiction]:
    odd = []
    for a, b in match.endpoints.items():
        here, there = first.fabric_count.get(a), second.fabric_count.get(b)
        links, listed = first.get(a, "nvlinks"), second.get(b, "nvlinks")
        # GPUs may have links to processors besides, which a matrix of GPUs does not show.
        fewer = (isinstance(listed, int) and here is not None and listed < here) or (
            isinstance(links, int) and there is not None and links < there
        )
        if fewer or (here is not None and there is not None and here != there):
            one, two = (links if here is None else here), (listed if there is None else there)
            odd.append(f"{first.called(a)}: {one} in {first.name}, {two} in {second.name}")
    if odd:
        yield Contradiction(
            about="GPU links",
            what="the files give GPUs different numbers of NVLink or xGMI links",
            evidence=tuple(odd),
        )


def _classes(first: View, second: View, match: Match) -> Iterator[Contradiction]:
    """How far apart the same pairs are, in one file and in the other."""
    found = compare_distances(first, second, match)
    if found is None:
        return
    odd: dict[tuple[str, str], list[str]] = defaultdict(list)
    for i, j in np.argwhere(found.odd):
        words = (PathClass(found.here[i, j]).name, PathClass(found.there[i, j]).name)
        pair = sorted((first.called(found.endpoints[k]) for k in (i, j)), key=natural_key)
        odd[words].append("-".join(pair))
    for (stated, other), names in sorted(odd.items()):
        names.sort(key=natural_key)
        yield Contradiction(
            about=f"{len(names)} pairs" if len(names) > 1 else names[0],
            what=f"{stated} in {first.name}, {other} in {second.name}",
            evidence=tuple(names) if len(names) > 1 else (),
        )


def _peer_access(first: View, second: View) -> Iterator[Contradiction]:
    here, there = (view.graph.graph.get("peer_access") for view in (first, second))
    if here is not None and there is not None and here != there:
        words = {True: "direct copies", False: "no direct copies"}
        yield Contradiction(
            about="peer access",
            what="the files disagree on copies between GPUs",
            evidence=(f"{first.name}: {words[here]}", f"{second.name}: {words[there]}"),
        )


def _some(texts: Sequence[str], *, between: str = ", ") -> str:
    """The first few of many texts."""
    more = len(texts) - _SHOWN
    return between.join([*texts[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _described(view: View, node: str) -> str:
    bus_id = view.get(node, "bus_id")
    return view.called(node) if bus_id is None else f"{view.called(node)} at {bus_id}"
