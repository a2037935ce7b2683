"""NCCL's topology XML, with the machine's own speeds: a file for ``NCCL_TOPO_FILE``.

NCCL knows a host as NUMA nodes, a tree of PCI devices below each, and links between GPUs.  It
does not measure: a link passes what its words say (:mod:`topocal.topo.exporters.nccl_speeds`).
So fitted capacities are written as the words that NCCL takes for them, and stand beside those in
full (``topocal_down_Bps`` to the device, ``topocal_up_Bps`` from it), which NCCL passes over and
topocal's own reader takes.

A capacity that is only bounded says nothing while the specification is higher: then that stands.
Speeds that nothing says are left out, and NCCL asks the system.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from topocal.topo.exporters.nccl_fabric import fabric_lines
from topocal.topo.exporters.nccl_host import DEVICES, TREE_LINKS, Host, host_of, rate_of, some
from topocal.topo.exporters.nccl_speeds import SPEED_TEXT, pcie_words
from topocal.topo.exporters.xml_text import attributes, comment_lines
from topocal.topo.naming import natural_key
from topocal.topo.readers.nccl_xml import OWN_FIGURES, parse_nccl_xml
from topocal.topo.resource import LinkKind, NodeKind, PathClass

if TYPE_CHECKING:
    from topocal.topo.exporters.figures import Figures
    from topocal.topo.topology import Topology

__all__ = ["NcclFile", "nccl_file", "to_nccl"]

_CLASS: Final = {
    NodeKind.GPU: "0x030200",
    NodeKind.NIC: "0x020000",
    NodeKind.PCIE_SWITCH: "0x060400",
}
"""PCI-SIG class codes: 3D controller, Ethernet controller, PCI bridge."""

_MOST_COMPARED: Final = 256
"""GPUs of one host; more are no machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclFile:
    """The file, and what it does not say, in sentences."""

    text: str
    notes: tuple[str, ...]


def to_nccl(
    topology: Topology, figures: Figures, *, host: str | None = None, notes: Sequence[str] = ()
) -> str:
    """The file; see :func:`nccl_file`."""
    return nccl_file(topology, figures, host=host, notes=notes).text


def nccl_file(
    topology: Topology, figures: Figures, *, host: str | None = None, notes: Sequence[str] = ()
) -> NcclFile:
    """One host as NCCL's topology XML.

    Parameters
    ----------
    figures
        What each resource passes.
    host
        Which host, where there are several.
    notes
        Further sentences for the comment on top.

    Raises
    ------
    InputError
        When there is no GPU, no such host, or nothing says how the machine is wired.
    """
    one = host_of(topology, figures, host)
    lines: list[str] = []
    for socket in one.sockets or [""]:
        lines += [f"  <cpu{attributes(_cpu(one, socket, one.sockets))}>"]
        lines += _below(one, socket, "    ")
        lines += ["  </cpu>"]
    _note_what_is_lost(one)
    body = "\n".join(['<system version="1">', *lines, "</system>"])
    _note_other_classes(one, body)
    told = (*notes, *one.notes)
    head = comment_lines(
        [
            f"{topology.name or 'machine'}: NCCL topology, from topocal. For NCCL_TOPO_FILE.",
            *(f"* {note}" for note in told),
        ]
    )
    return NcclFile(text="\n".join([*head, body]) + "\n", notes=told)


def _cpu(one: Host, socket: str, sockets: list[str]) -> dict[str, Any]:
    """Attributes of a NUMA node."""
    if not socket:
        return {"numaid": -1}
    data = one.nodes[socket]
    numbers = [one.nodes[s].get("numa") for s in sockets]
    usable = None not in numbers and len(set(numbers)) == len(numbers)
    cpus = data.get("cpu_list")
    return {
        "numaid": data["numa"] if usable else sockets.index(socket),
        "affinity": _mask(str(cpus)) if cpus else None,
        "arch": data.get("arch"),
        "vendor": data.get("vendor"),
        "familyid": data.get("cpu_family"),
        "modelid": data.get("cpu_model"),
    }


def _below(one: Host, upper: str, indent: str) -> Iterator[str]:
    """Lines of all that hangs from a socket or switch."""
    for name in _children(one, upper):
        data = one.nodes[name]
        kind = data["kind"]
        found = {
            "busid": one.bus_id[name],
            "class": data.get("pci_class") or _CLASS[kind],
            "vendor": data.get("vendor"),
            "device": data.get("device"),
            **_speed(one, one.above[name], name),
        }
        yield f"{indent}<pci{attributes(found)}>"
        if kind is NodeKind.GPU:
            yield from _gpu(one, name, indent + "  ")
        elif kind is NodeKind.NIC:
            yield from _nic(one, name, indent + "  ")
        else:
            yield from _below(one, name, indent + "  ")
        yield f"{indent}</pci>"


def _children(one: Host, upper: str) -> list[str]:
    """What hangs from a node, by way of host bridges too; switches that lead nowhere left out."""
    found: list[str] = []
    for name in sorted((n for n, a in one.above.items() if a == upper), key=natural_key):
        kind = one.nodes[name]["kind"]
        if kind is NodeKind.HOST_BRIDGE:
            found += _children(one, name)
        elif kind in DEVICES or _leads_somewhere(one, name):
            found.append(name)
    return found


def _leads_somewhere(one: Host, switch: str) -> bool:
    return any(_children(one, switch))


def _speed(one: Host, upper: str, name: str) -> dict[str, Any]:
    """Words and figures of the PCIe link above a device."""
    down, up = (
        [link for link in one.links(*ends) if link.kind in TREE_LINKS]
        for ends in ((upper, name), (name, upper))
    )
    if not down and not up:
        return {}
    rates = [rate_of(one, links) for links in (down, up)]
    known = [rate for rate in rates if rate[0] is not None]
    if not known:
        return {}
    link = (down or up)[0]
    data: dict[str, Any] = one.topology.graph.edges[link.tail, link.head, link.id]
    least = min(rate for rate, _ in known if rate is not None)
    if not any(fitted for _, fitted in known):
        speed, width = SPEED_TEXT.get(data.get("generation", 0)), data.get("width")
        if speed is not None and width is not None:
            return {"link_speed": speed, "link_width": width}
    speed, width = pcie_words(least)
    return {
        "link_speed": speed,
        "link_width": width,
        **dict(zip(OWN_FIGURES, (rate for rate, _ in rates), strict=True)),
    }


def _gpu(one: Host, name: str, indent: str) -> Iterator[str]:
    data = one.nodes[name]
    found = {
        "dev": one.number[name],
        "sm": data.get("compute_capability"),
        "gcn": data.get("architecture"),
        "rank": data.get("rank"),
    }
    inner = list(fabric_lines(one, name, indent + "  "))
    if not inner:
        yield f"{indent}<gpu{attributes(found)}/>"
        return
    yield f"{indent}<gpu{attributes(found)}>"
    yield from inner
    yield f"{indent}</gpu>"


def _nic(one: Host, name: str, indent: str) -> Iterator[str]:
    data = one.nodes[name]
    out = [k for k in one.topology.links.values() if k.tail == name and k.kind is LinkKind.NET]
    rate, _ = rate_of(one, out) if out else (data.get("network_Bps"), False)
    names = [str(n) for n in data.get("net_names") or [data.get("label") or name]]
    yield f"{indent}<nic>"
    for k, port in enumerate(names):
        found = {
            "name": port,
            "dev": one.number[name] if k == 0 else None,
            "speed": None if not rate else max(1, round(rate / len(names) * 8 / 1e6)),
        }
        yield f"{indent}  <net{attributes(found)}/>"
    yield f"{indent}</nic>"


def _note_what_is_lost(one: Host) -> None:
    topology = one.topology
    if topology.graph.graph.get("class_overrides") or topology.graph.graph.get("no_peer_pairs"):
        one.notes.append(
            "pairs without peer access, and path classes that are set: not in the file"
        )
    if any(topology.links[k].kind is LinkKind.SMP for k in topology.links):
        one.notes.append("the hop between sockets: NCCL takes a figure of its own for it")
    hidden = [topology.resources[u.resource].name for u in topology.uses]
    if hidden:
        one.notes.append(
            f"{some(list(dict.fromkeys(hidden)))}: no link shows it, so NCCL is not told"
        )


def _note_other_classes(one: Host, body: str) -> None:
    """Read the file back, and tell which pairs of GPUs it puts nearer or farther."""
    names = one.of_kind(NodeKind.GPU)
    if not 1 < len(names) <= _MOST_COMPARED:
        return
    back = parse_nccl_xml(body, file="the export")
    theirs = back.routes([f"gpu{one.number[name]}" for name in names]).path_class
    ours = one.topology.routes(names).path_class
    # NCCL has no NODE: what nvidia-smi calls so is PHB to it.
    ours = np.where(ours == PathClass.NODE, PathClass.PHB, ours)
    differ = np.argwhere((ours != theirs).reshape(len(names), len(names)))
    if len(differ):
        i, j = differ[0]
        here, there = (PathClass(int(c.reshape(len(names), -1)[i, j])).name for c in (ours, theirs))
        one.notes.append(
            f"{len(differ)} ordered pairs of GPUs are of another class in the file, such as "
            f"{names[i]} to {names[j]}: {here} here, {there} there"
        )


def _mask(cpu_list: str) -> str | None:
    """A list of CPUs as words of 32 bits, most significant first; ``None`` where it is no list.

    >>> _mask("0-23,48-71")
    '000000ff,ffff0000,00ffffff'
    """
    mask = 0
    for part in cpu_list.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part.strip())
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        mask |= (1 << last + 1) - (1 << first) if last >= first else 0
    words: list[str] = []
    while mask or not words:
        words.append(f"{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(reversed(words))
