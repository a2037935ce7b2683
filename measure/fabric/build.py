"""Builds a fabric around this process, which is in a new and empty network namespace."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from topocal.measure.fabric.blueprint import INTERFACE, Blueprint
from topocal.measure.fabric.namespaces import inside_network, make_network
from topocal.measure.fabric.shaping import (
    change_rate,
    limit_device,
    redirect_both_ways,
    redirect_ingress,
)
from topocal.measure.fabric.wiring import (
    bridge_lines,
    device_of,
    endpoint_lines,
    limits_in_the_middle,
    middle_lines,
    own_limit,
    pool_device,
)

__all__ = ["build", "change"]

_SETTINGS: Final = {
    "ipv4/tcp_congestion_control": "reno",
    # Receiving far above sending: gloo runs both directions of a pair on one connection, and
    # equal buffers cost thousands of retransmissions.
    "ipv4/tcp_wmem": "4096 524288 524288",
    "ipv4/tcp_rmem": "4096 16777216 16777216",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv4/tcp_no_metrics_save": "1",
}
"""Below /proc/sys/net, for every endpoint.  Reno because a new namespace may not choose cubic."""

_QUIET: Final = ("ipv6/conf/all/disable_ipv6", "ipv6/conf/default/disable_ipv6")


def build(blueprint: Blueprint) -> list[int]:
    """Build everything, and return the file descriptor of every rank's network namespace.

    Raises
    ------
    OSError
        When the kernel or one of the programs refuses.
    """
    _settle({})
    networks = []
    for _ in blueprint.endpoints:
        network = make_network()
        networks.append(network)
        with inside_network(network):
            _settle(_SETTINGS)
    _run("ip", middle_lines(blueprint, networks), networks)
    _run("bridge", bridge_lines(blueprint))
    addresses = [blueprint.address(k) for k in range(len(blueprint.endpoints))]
    lines: list[str] = []
    for pool in blueprint.pools:
        lines += redirect_both_ways(
            _middle_end(blueprint, pool.link), pool_device(blueprint, pool.id)
        )
    for device, rate in limits_in_the_middle(blueprint).items():
        lines += limit_device(device, rate, addresses)
    _run("tc", lines)
    for rank, endpoint in enumerate(blueprint.endpoints):
        with inside_network(networks[rank]):
            _run("ip", endpoint_lines(blueprint, rank))
            lines = []
            own = own_limit(blueprint, endpoint)
            if own is not None:
                lines += limit_device(INTERFACE, own, [addresses[rank]])
            hidden = blueprint.ingress_of(endpoint)
            if hidden is not None:
                sources = [addresses[blueprint.rank[name]] for name in hidden.sources]
                lines += redirect_ingress(INTERFACE, "in0", sources)
                lines += limit_device("in0", hidden.capacity_Bps, addresses)
            _run("tc", lines)
    return networks


def change(blueprint: Blueprint, networks: list[int], id: str, capacity_Bps: float) -> None:
    """Change the capacity of a link or pool while traffic runs.

    Raises
    ------
    OSError
        When it is neither, has no limit that could change, or ``tc`` refuses.
    """
    if id in {pool.id for pool in blueprint.pools}:
        _run("tc", [change_rate(pool_device(blueprint, id), capacity_Bps)])
        return
    link = blueprint.link.get(id)
    pooled = {pool.link for pool in blueprint.pools}
    if link is None or link.capacity_Bps is None or pooled & {link.id, link.reverse}:
        raise OSError(f"{id} has no capacity of its own")
    line = change_rate(device_of(blueprint, id), capacity_Bps)
    if link.tail in blueprint.single:
        with inside_network(networks[blueprint.rank[link.tail]]):
            _run("tc", [line])
    else:
        _run("tc", [line])


def _middle_end(blueprint: Blueprint, link: str) -> str:
    """The interface of a connection's end that is in the middle."""
    known = blueprint.link[link]
    at = known.reverse if known.tail in blueprint.single else link
    return f"l{blueprint.number[at]}"


def _settle(settings: dict[str, str]) -> None:
    root = Path("/proc/sys/net")
    for name in _QUIET:
        if (root / name).exists():
            (root / name).write_text("1")
    for name, value in settings.items():
        (root / name).write_text(value)


def _run(program: str, lines: list[str], inherit: list[int] | None = None) -> None:
    """Let a program of iproute2 read its lines; the first that it refuses is the error."""
    if not lines:
        return
    try:
        done = subprocess.run(
            [program, "-batch", "-"],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            pass_fds=inherit or (),
            check=False,
        )
    except FileNotFoundError as error:
        raise OSError(f"the program {program} is missing; install iproute2") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise OSError(f"{program}: {said or f'exit status {done.returncode}'}")
