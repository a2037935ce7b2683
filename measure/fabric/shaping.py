"""Lines for ``tc -batch`` that make a device pass a known rate of payload.  Pure functions.

A rate is a token bucket (HTB) on the sending side of a link.  Under it every source has a
queue of its own, so that flows share it equally whatever their round trips are.  Pure
acknowledgements pass it by: they are no payload, and where they queue behind data the other
direction loses rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["change_rate", "limit_device", "redirect_both_ways", "redirect_ingress"]

_FRAME_BYTES: Final = 1514
_PAYLOAD_BYTES: Final = 1448
"""Of a full frame at an MTU of 1500: 14 bytes Ethernet, 20 IP, 32 TCP with timestamps.  The
bucket counts frames, the truth counts payload."""

_BURST_BYTES: Final = 8000
"""A larger bucket flatters short transfers by 1 to 2 %."""

_QUANTUM_BYTES: Final = 65636
"""One segment at its largest (64 KiB and headers): queues take turns by whole segments."""

_ACK_BYTES: Final = 52
"""IP and TCP header with timestamps, no payload.  Only this length with only the ACK flag may
pass by: any larger packet would let data overtake data."""

_FIRST_QUEUE: Final = 0x10


def limit_device(device: str, rate_Bps: float, addresses: Sequence[str]) -> list[str]:
    """Lines that limit what a device sends.

    Parameters
    ----------
    device
        Name of the interface.
    rate_Bps
        Payload bytes per second.
    addresses
        Of all sources; each gets an equal share.
    """
    of_device = f"dev {device} parent 1:"
    lines = [
        f"qdisc add dev {device} root handle 1: htb default 0 direct_qlen 10000",
        f"class add {of_device} classid 1:1 {_bucket(rate_Bps)}",
        f"filter add {of_device} protocol ip prio 1 u32 match u16 {_ACK_BYTES} 0xffff at 2 "
        "match u8 0x10 0xff at 33 classid 1:0",
    ]
    least = max(1, _bits(rate_Bps) // 1000)
    for k, address in enumerate(addresses):
        queue = f"{_FIRST_QUEUE + k:x}"
        lines += [
            f"class add dev {device} parent 1:1 classid 1:{queue} htb rate {least}bit "
            f"ceil 100gbit burst {_QUANTUM_BYTES} cburst {_QUANTUM_BYTES} quantum {_QUANTUM_BYTES}",
            f"qdisc add dev {device} parent 1:{queue} handle {queue}: bfifo limit 64mb",
            f"filter add {of_device} protocol ip prio 2 u32 match ip src {address} "
            f"classid 1:{queue}",
        ]
    return lines


def change_rate(device: str, rate_Bps: float) -> str:
    """The line that changes the rate of a limited device while it is in use."""
    return f"class change dev {device} parent 1: classid 1:1 {_bucket(rate_Bps)}"


def redirect_ingress(device: str, to: str, sources: Sequence[str] = ()) -> list[str]:
    """Lines that lead what a device receives through another, where it can be limited.

    Parameters
    ----------
    sources
        Addresses: only what comes from these; everything where there are none.
    """
    matches = [f"ip src {address}" for address in sources] or ["u32 0 0"]
    return [
        f"qdisc add dev {device} clsact",
        *(_redirect(device, "ingress", m, to) for m in matches),
    ]


def redirect_both_ways(device: str, to: str) -> list[str]:
    """Lines that lead what a device receives and what it sends through one other."""
    return [*redirect_ingress(device, to), _redirect(device, "egress", "u32 0 0", to)]


def _redirect(device: str, side: str, match: str, to: str) -> str:
    return (
        f"filter add dev {device} {side} protocol ip u32 match {match} "
        f"action mirred egress redirect dev {to}"
    )


def _bits(rate_Bps: float) -> int:
    return round(8 * rate_Bps * _FRAME_BYTES / _PAYLOAD_BYTES)


def _bucket(rate_Bps: float) -> str:
    rate = f"{_bits(rate_Bps)}bit"
    return f"htb rate {rate} ceil {rate} burst {_BURST_BYTES} cburst {_BURST_BYTES}"
