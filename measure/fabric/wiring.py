"""Lines for ``ip -batch`` and ``bridge -batch`` that join namespaces.  Pure functions.

Every node that passes traffic on is a bridge in the middle namespace; every connection is a
pair of virtual interfaces, one end at each node.  Bridges learn nothing and flood nothing:
where a frame goes is written down, and so is who has which address.  That keeps a fabric
quiet, and lets it have any shape whose routes depend on the destination alone.
"""

from __future__ import annotations

from topocal.measure.fabric.blueprint import INTERFACE, Blueprint

__all__ = [
    "bridge_lines",
    "device_of",
    "endpoint_lines",
    "limits_in_the_middle",
    "middle_lines",
    "own_limit",
    "pool_device",
]


def device_of(blueprint: Blueprint, link: str) -> str:
    """The interface that sends onto a link; in the endpoint's namespace where its tail is
    :attr:`~topocal.measure.fabric.blueprint.Blueprint.single`."""
    known = blueprint.link[link]
    return INTERFACE if known.tail in blueprint.single else f"l{blueprint.number[link]}"


def pool_device(blueprint: Blueprint, pool: str) -> str:
    """The device that both directions of a pool lead through."""
    return f"p{[p.id for p in blueprint.pools].index(pool)}"


def middle_lines(blueprint: Blueprint, networks: list[int]) -> list[str]:
    """Lines for the namespace in the middle.

    Parameters
    ----------
    networks
        File descriptor of each rank's namespace, as the ``ip`` command will have it.
    """
    bridge = {node: f"b{k}" for k, node in enumerate(blueprint.bridges)}
    lines = [f"link add {name} type bridge mcast_snooping 0" for name in bridge.values()]
    ports: list[tuple[str, str]] = []
    done: set[str] = set()
    for link in blueprint.links:
        if link.id in done:
            continue
        done |= {link.id, link.reverse}
        back = blueprint.link[link.reverse]
        one, other = (link, back) if back.tail in blueprint.single else (back, link)
        # Of the two ends, `one` is surely in the middle; `other` may be an endpoint's own.
        here = f"l{blueprint.number[one.id]}"
        ports.append((here, bridge[one.tail]))
        if other.tail in blueprint.single:
            network = networks[blueprint.rank[other.tail]]
            there = f"{INTERFACE} netns /proc/self/fd/{network}"
        else:
            there = f"l{blueprint.number[other.id]}"
            ports.append((there, bridge[other.tail]))
        lines.append(f"link add {here} type veth peer name {there}")
    for rank, endpoint in enumerate(blueprint.endpoints):
        if endpoint not in blueprint.single:
            peer = f"{INTERFACE} netns /proc/self/fd/{networks[rank]}"
            lines.append(f"link add h{rank} type veth peer name {peer}")
            ports.append((f"h{rank}", bridge[endpoint]))
    for port, name in ports:
        lines += [
            f"link set {port} master {name}",
            f"link set {port} type bridge_slave learning off flood off mcast_flood off "
            "bcast_flood off",
        ]
    pools = [pool_device(blueprint, pool.id) for pool in blueprint.pools]
    lines += [f"link add {name} type ifb" for name in pools]
    return lines + [f"link set {n} up" for n in (*bridge.values(), *(p for p, _ in ports), *pools)]


def bridge_lines(blueprint: Blueprint) -> list[str]:
    """Where each bridge sends what is for an endpoint."""
    lines = []
    for node, destination, link in blueprint.hops:
        if node not in blueprint.single:
            lines.append(_forward(blueprint, destination, f"l{blueprint.number[link]}"))
    for rank, endpoint in enumerate(blueprint.endpoints):
        if endpoint not in blueprint.single:
            lines.append(_forward(blueprint, endpoint, f"h{rank}"))
    return lines


def _forward(blueprint: Blueprint, destination: str, port: str) -> str:
    address = blueprint.hardware_address(blueprint.rank[destination])
    return f"fdb add {address} dev {port} master static"


def endpoint_lines(blueprint: Blueprint, rank: int) -> list[str]:
    """Lines for the namespace of an endpoint."""
    lines = [
        "link set lo up",
        f"link set {INTERFACE} address {blueprint.hardware_address(rank)} mtu 1500",
        f"address add {blueprint.address(rank)}/16 dev {INTERFACE}",
        f"link set {INTERFACE} up",
    ]
    for other in range(len(blueprint.endpoints)):
        if other != rank:
            lines.append(
                f"neighbour add {blueprint.address(other)} "
                f"lladdr {blueprint.hardware_address(other)} dev {INTERFACE} nud permanent"
            )
    if blueprint.ingress_of(blueprint.endpoints[rank]) is not None:
        lines += ["link add in0 type ifb", "link set in0 up"]
    return lines


def limits_in_the_middle(blueprint: Blueprint) -> dict[str, float]:
    """Rate of every device in the middle that is limited."""
    found = {pool_device(blueprint, p.id): p.capacity_Bps for p in blueprint.pools}
    pooled = {p.link for p in blueprint.pools}
    for link in blueprint.links:
        if pooled & {link.id, link.reverse} or link.capacity_Bps is None:
            continue
        if link.tail not in blueprint.single:
            found[device_of(blueprint, link.id)] = link.capacity_Bps
    return found


def own_limit(blueprint: Blueprint, endpoint: str) -> float | None:
    """Rate of an endpoint's own interface; ``None`` where another device limits it."""
    pooled = {p.link for p in blueprint.pools}
    for link in blueprint.links:
        if link.tail == endpoint and endpoint in blueprint.single:
            return None if pooled & {link.id, link.reverse} else link.capacity_Bps
    return None
