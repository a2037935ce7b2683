"""Links between GPUs in NCCL's topology XML: NVLink, xGMI and chip-to-chip.

NCCL takes an NVLink for a figure of its own, so a fitted capacity is as many links as come
closest to it; where nothing is fitted, the links that there are.  Capacities of like GPUs that
differ by less than half a link are one: NCCL searches another graph where counts differ, and no
fit is so exact.  What xGMI passes is RCCL's own figure, and stays so.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low
from typing import TYPE_CHECKING, Any, Final

from topocal.topo.exporters.nccl_host import Host, rate_of
from topocal.topo.exporters.nccl_speeds import capability_of, nccl_nvlink_Bps, nvlink_count
from topocal.topo.exporters.xml_text import attributes
from topocal.topo.naming import natural_key
from topocal.topo.resource import LinkKind, NodeKind

if TYPE_CHECKING:
    from topocal.topo.resource import Link

__all__ = ["fabric_lines"]

_TAG: Final = {LinkKind.NVLINK: "nvlink", LinkKind.XGMI: "xgmi"}
_CLASS: Final = {
    NodeKind.GPU: "0x030200",
    NodeKind.NVSWITCH: "0x068000",
    NodeKind.SOCKET: "0x068001",
}
"""How NCCL tells the other end: a GPU, an NVSwitch, or a processor (POWER9)."""


def fabric_lines(one: Host, gpu: str, indent: str) -> Iterator[str]:
    """An element for each neighbour that a GPU's own links lead to."""
    by_end: dict[tuple[str, LinkKind], list[Link]] = {}
    for _, head, key in one.topology.graph.out_edges(gpu, keys=True):
        link = one.topology.links[key]
        if head in one.nodes and (link.kind in _TAG or link.kind is LinkKind.C2C):
            by_end.setdefault((head, link.kind), []).append(link)
    for head, kind in sorted(by_end, key=lambda end: (natural_key(end[0]), end[1])):
        links = by_end[head, kind]
        if kind is LinkKind.C2C:
            if one.nodes[head]["kind"] is NodeKind.SOCKET:
                yield f"{indent}<c2c{attributes(_c2c(one, links))}/>"
        elif one.nodes[head]["kind"] in _CLASS:
            for found in _targets(one, gpu, head, links):
                yield f"{indent}<{_TAG[kind]}{attributes(found)}/>"


def _c2c(one: Host, links: list[Link]) -> dict[str, Any]:
    """Megabytes per second of each link, and how many there are."""
    count = sum(_physical(one, link) for link in links)
    rate, _ = rate_of(one, links)
    return {"bw": None if rate is None else max(1, round(rate / count / 1e6)), "count": count}


def _targets(one: Host, gpu: str, head: str, links: list[Link]) -> Iterator[dict[str, Any]]:
    """The other end: one address, or several switches that count as one node here."""
    data = one.nodes[head]
    count = sum(_physical(one, link) for link in links)
    rate, fitted = rate_of(one, links)
    if rate is not None and fitted and links[0].kind is LinkKind.NVLINK:
        of_one = nccl_nvlink_Bps(_capability(one, gpu))
        usual = _usual_Bps(one, gpu, head, count)
        count = nvlink_count(
            usual if abs(rate - usual) < of_one / 2 else rate, _capability(one, gpu)
        )
    names = [one.bus_id[head]] if head in one.bus_id else _switch_addresses(one, head, data)
    tclass = data.get("pci_class") if data["kind"] is NodeKind.GPU else None
    for k, name in enumerate(names):
        share = count // len(names) + (k < count % len(names))
        if share:
            yield {"target": name, "count": share, "tclass": tclass or _CLASS[data["kind"]]}


def _capability(one: Host, gpu: str) -> int | None:
    data = one.nodes[gpu]
    return capability_of(data.get("compute_capability"), data.get("model") or data.get("label"))


def _usual_Bps(one: Host, gpu: str, head: str, count: int) -> float:
    """The middle of what so many NVLinks pass, fitted, from like GPUs to ends of that kind."""
    like, kind = _capability(one, gpu), one.nodes[head]["kind"]
    rates = []
    for name in one.of_kind(NodeKind.GPU):
        if _capability(one, name) != like:
            continue
        for end in one.topology.graph.successors(name):
            if end not in one.nodes or one.nodes[end]["kind"] is not kind:
                continue
            links = [link for link in one.links(name, end) if link.kind is LinkKind.NVLINK]
            rate, fitted = rate_of(one, links) if links else (None, False)
            if rate is not None and fitted and sum(_physical(one, k) for k in links) == count:
                rates.append(rate)
    return median_low(rates)


def _switch_addresses(one: Host, head: str, data: dict[str, Any]) -> list[str]:
    stated = data.get("bus_ids") or ([data["bus_id"]] if data.get("bus_id") else [])
    if data["kind"] is NodeKind.NVSWITCH and stated:
        return [str(name) for name in stated]
    one.bus_id[head] = one.address()
    return [one.bus_id[head]]


def _physical(one: Host, link: Link) -> int:
    count = one.topology.graph.edges[link.tail, link.head, link.id].get("count")
    return count if isinstance(count, int) and count > 0 else 1
