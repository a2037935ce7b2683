"""Several nodes and the network between them, as one topology.

Each function takes the nodes' own topologies (one file read once may stand many
times: ``[node] * 16``), plugs their NICs into switches, and returns the whole.
The ids of node ``k`` begin with ``node<k>/``.

Network links carry what their slower end allows: a port what ``port_Bps`` says,
else the NIC's own ``network_Bps``; an uplink what the ports below it add up to,
divided by the oversubscription and the number of uplinks.  What nothing says
stays unknown.

References
----------
C. E. Leiserson, Fat-trees, IEEE Transactions on Computers C-34, 1985,
doi:10.1109/TC.1985.6312192.  J. Kim et al., Technology-driven, highly-scalable
dragonfly topology, ISCA 2008, doi:10.1109/ISCA.2008.19.  NVIDIA DGX SuperPOD
reference architecture (rail-optimised fat tree).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import InputError, TopologyError
from topocal.topo.renaming import with_prefix
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

__all__ = ["dragonfly", "fat_tree", "plain_switch", "rails"]


def plain_switch(
    nodes: Sequence[Topology],
    *,
    port_Bps: float | None = None,
    nics: Sequence[str] | None = None,
    name: str = "",
) -> Topology:
    """All NICs on one switch that passes whatever its ports do.

    Parameters
    ----------
    nodes
        The nodes' topologies, in order.
    port_Bps
        Bytes per second of a NIC's port in one direction.
    nics
        Which nodes of a node's topology are plugged in; all its NICs unless told.
    name
        What the whole is called.

    Raises
    ------
    InputError
        When there are no nodes, or a number is not positive.
    TopologyError
        When a node has no NIC.
    """
    site = _Site(nodes, port_Bps, nics, name or _name(nodes, "on one switch"))
    switch = site.switch("switch0")
    for ports in site.ports:
        for port in ports:
            site.plug(port, switch)
    return site.build.build()


def rails(
    nodes: Sequence[Topology],
    *,
    spines: int = 0,
    nodes_per_leaf: int | None = None,
    oversubscription: float = 1.0,
    port_Bps: float | None = None,
    nics: Sequence[str] | None = None,
    name: str = "",
) -> Topology:
    """Rail-optimised: the k-th NIC of every node on a leaf of rail k.

    Parameters
    ----------
    spines
        Switches that join all leaves; with none, rails do not meet.
    nodes_per_leaf
        Nodes on one leaf; a rail has as many leaves as it needs.  All on one unless told.
    oversubscription
        Capacity into a leaf over capacity out of it.
    nodes, port_Bps, nics, name
        As for :func:`plain_switch`.

    Raises
    ------
    InputError, TopologyError
        As :func:`plain_switch`; also when rails have several leaves and no spine joins them.
    """
    _positive(oversubscription=oversubscription)
    site = _Site(nodes, port_Bps, nics, name or _name(nodes, "on rails"))
    per_leaf = len(nodes) if nodes_per_leaf is None else nodes_per_leaf
    _positive(nodes_per_leaf=per_leaf)
    blocks = -(-len(nodes) // per_leaf)
    if blocks > 1 and spines < 1:
        raise InputError("leaves of one rail that no spine joins", remedy="give spines=1 or more")
    tops = [site.switch(f"spine{k}") for k in range(spines)]
    for rail in range(max(map(len, site.ports))):
        for block in range(blocks):
            leaf = f"rail{rail}" if blocks == 1 else f"rail{rail}-leaf{block}"
            members = site.ports[block * per_leaf : (block + 1) * per_leaf]
            ports = [on_node[rail] for on_node in members if rail < len(on_node)]
            if ports:
                site.leaf(leaf, ports, tops, oversubscription, {"rail": rail})
    return site.build.build()


def fat_tree(
    nodes: Sequence[Topology],
    *,
    nodes_per_leaf: int,
    spines: int,
    leaves_per_pod: int | None = None,
    cores: int = 0,
    oversubscription: float = 1.0,
    port_Bps: float | None = None,
    nics: Sequence[str] | None = None,
    name: str = "",
) -> Topology:
    """Leaves under spines, and where there are several pods, spines under cores.

    Parameters
    ----------
    nodes_per_leaf
        Nodes whose NICs are all on one leaf.
    spines
        Spines of one pod; each is joined to every leaf of its pod.
    leaves_per_pod
        Leaves of one pod; all are in one pod, without cores, unless told.
    cores
        Core switches for each spine of a pod; core ``s*cores+c`` joins spine ``s`` of all pods.
    oversubscription
        Capacity into a switch from below over capacity out of it upwards.
    nodes, port_Bps, nics, name
        As for :func:`plain_switch`.

    Raises
    ------
    InputError, TopologyError
        As :func:`plain_switch`; also when there are several pods and no cores.
    """
    _positive(nodes_per_leaf=nodes_per_leaf, spines=spines, oversubscription=oversubscription)
    site = _Site(nodes, port_Bps, nics, name or _name(nodes, "on a fat tree"))
    leaves = -(-len(nodes) // nodes_per_leaf)
    per_pod = leaves if leaves_per_pod is None else leaves_per_pod
    _positive(leaves_per_pod=per_pod)
    pods = -(-leaves // per_pod)
    if pods > 1 and cores < 1:
        raise InputError("pods that no core joins", remedy="give cores=1 or more")
    for pod in range(pods):
        prefix = f"pod{pod}-" if pods > 1 else ""
        tops = [site.switch(f"{prefix}spine{k}") for k in range(spines)]
        into: float | None = 0.0
        for leaf in range(pod * per_pod, min((pod + 1) * per_pod, leaves)):
            members = site.ports[leaf * nodes_per_leaf : (leaf + 1) * nodes_per_leaf]
            ports = [port for on_node in members for port in on_node]
            up = site.leaf(f"leaf{leaf}", ports, tops, oversubscription)
            into = None if up is None or into is None else into + up
        if pods > 1:
            out = None if into is None else into / (oversubscription * cores)
            for k, top in enumerate(tops):
                for core in range(k * cores, (k + 1) * cores):
                    site.wire(top, site.switch(f"core{core}"), out)
    return site.build.build()


def dragonfly(
    nodes: Sequence[Topology],
    *,
    nodes_per_router: int,
    routers_per_group: int,
    local_Bps: float | None = None,
    global_Bps: float | None = None,
    port_Bps: float | None = None,
    nics: Sequence[str] | None = None,
    name: str = "",
) -> Topology:
    """Groups of routers, all joined within a group, and one link between any two groups.

    The links to other groups are dealt out to a group's routers in turn.

    Parameters
    ----------
    nodes_per_router
        Nodes whose NICs are all on one router.
    routers_per_group
        Routers of one group.
    local_Bps, global_Bps
        Bytes per second in one direction of a link within a group, and between two.
    nodes, port_Bps, nics, name
        As for :func:`plain_switch`.

    Raises
    ------
    InputError, TopologyError
        As :func:`plain_switch`.
    """
    _positive(nodes_per_router=nodes_per_router, routers_per_group=routers_per_group)
    site = _Site(nodes, port_Bps, nics, name or _name(nodes, "on a dragonfly"))
    routers = -(-len(nodes) // nodes_per_router)
    groups = -(-routers // routers_per_group)
    members = [
        [
            site.switch(f"group{group}-router{k}", group=group)
            for k in range(min(routers_per_group, routers - group * routers_per_group))
        ]
        for group in range(groups)
    ]
    flat = [router for group in members for router in group]
    for k, on_node in enumerate(site.ports):
        for port in on_node:
            site.plug(port, flat[k // nodes_per_router])
    for routers_of_group in members:
        for a, b in combinations(routers_of_group, 2):
            site.wire(a, b, local_Bps)
    used = [0] * groups
    for pair in combinations(range(groups), 2):
        ends = [members[group][used[group] % len(members[group])] for group in pair]
        site.wire(ends[0], ends[1], global_Bps)
        for group in pair:
            used[group] += 1
    return site.build.build()


class _Site:
    """The nodes, prefixed, in one builder, and what their NICs pass."""

    def __init__(
        self,
        nodes: Sequence[Topology],
        port_Bps: float | None,
        nics: Sequence[str] | None,
        name: str,
    ) -> None:
        if not nodes:
            raise InputError("no nodes to join", remedy="give at least one")
        if port_Bps is not None:
            _positive(port_Bps=port_Bps)
        self.build = TopologyBuilder(name)
        self.ports: list[list[str]] = []
        self._rate: dict[str, float | None] = {}
        for k, node in enumerate(nodes):
            prefix = f"node{k}/"
            self.build.include(_on_host(with_prefix(node, prefix), f"node{k}"))
            plugs = _plugs(node, nics)
            for plug in plugs:
                own = node.graph.nodes[plug].get("network_Bps")
                self._rate[prefix + plug] = own if port_Bps is None else port_Bps
            self.ports.append([prefix + plug for plug in plugs])
        self._keep_peer_access(nodes)

    def _keep_peer_access(self, nodes: Sequence[Topology]) -> None:
        """One answer for all nodes where they agree, else the pairs of those that say no."""
        said = [node.graph.graph.get("peer_access") for node in nodes]
        if len(set(said)) == 1:
            self.build.peer_access = said[0]
            return
        for k, node in enumerate(nodes):
            if said[k] is False:
                pairs = combinations(node.accelerators, 2)
                self.build.no_peer_pairs += [[f"node{k}/{a}", f"node{k}/{b}"] for a, b in pairs]

    def switch(self, id: str, **attributes: Any) -> str:
        """Id of a network switch, made on first use."""
        if id not in self.build:
            self.build.node(id, NodeKind.NET_SWITCH, **attributes)
        return id

    def wire(self, a: str, b: str, rate: float | None) -> None:
        self.build.connect(a, b, LinkKind.NET, nominal_Bps=rate)

    def plug(self, port: str, switch: str) -> None:
        self.wire(port, switch, self._rate[port])

    def leaf(
        self,
        id: str,
        ports: Sequence[str],
        tops: Sequence[str],
        oversubscription: float,
        attributes: dict[str, Any] | None = None,
    ) -> float | None:
        """A leaf with ports below and switches above; what one uplink passes."""
        leaf = self.switch(id, **(attributes or {}))
        rates = [self._rate[port] for port in ports]
        for port in ports:
            self.plug(port, leaf)
        known = [rate for rate in rates if rate is not None]
        up = None
        if tops and len(known) == len(rates):
            up = sum(known) / (oversubscription * len(tops))
        for top in tops:
            self.wire(leaf, top, up)
        return up


def _plugs(node: Topology, nics: Sequence[str] | None) -> list[str]:
    """The ports of a node: those named, or its NICs that are in no network yet."""
    graph = node.graph
    if nics is not None:
        for name in nics:
            if name not in graph:
                raise TopologyError(f"{node.name} has no node {name}", remedy="name its NICs")
        return list(nics)
    found = [
        name
        for name in node.endpoints
        if graph.nodes[name]["kind"] is NodeKind.NIC
        and not any(kind is LinkKind.NET for _, _, kind in graph.out_edges(name, data="kind"))
    ]
    if not found:
        raise TopologyError(
            f"{node.name or 'the node'} has no NIC to plug in",
            remedy="add its NICs, or name the nodes to plug in",
        )
    return found


def _on_host(node: Topology, host: str) -> Topology:
    graph = node.graph.copy()
    for data in graph.nodes.values():
        data["host"] = host
    return Topology(graph)


def _name(nodes: Sequence[Topology], how: str) -> str:
    names = list(dict.fromkeys(node.name for node in nodes))
    return f"{len(nodes)} × {', '.join(names[:3])} {how}" if nodes else how


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InputError(f"{name} is {value}", remedy="give a number above 0")
