"""What one PCIe link passes, from what its two ends say about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from topocal.topo.nominal import pcie_Bps, source_of
from topocal.topo.readers.pci_function import LinkState, PciFunction
from topocal.topo.readers.pci_role import INTEL, VIRTUAL_VENDORS

__all__ = ["Verdict", "judge_link", "line_Bps"]

_WIDTHS: Final = (1, 2, 4, 8, 12, 16, 32)
_LANE_GBps: Final = {
    # hwloc's pci_link_speed per lane: line rate after line coding, in GB/s.
    1: 2.5 * 8 / 10 / 8,
    2: 5 * 8 / 10 / 8,
    3: 8 * 128 / 130 / 8,
    4: 16 * 128 / 130 / 8,
    5: 32 * 128 / 130 / 8,
    6: 64 * 242 / 256 / 8,
}
_ALIKE: Final = 0.03
"""Rates that differ by less are the same link: hwloc's AMD backend divides by 1024 once where
its PCI backend does by 1000.  The nearest two that are not differ by 4 %."""

_FIRST: Final = LinkState(generation=1, width=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is believed of a link.

    Attributes
    ----------
    nominal_Bps
        Payload bytes per second, ``None`` where nothing sure is said.
    source
        Where that comes from.
    attributes
        What goes on the link: ``generation``, ``width``, ``max_generation``, …
    claim_Bps
        What the lower end says, after line coding.
    contradicts
        Whether the two ends say different things.
    finding
        What the user should know, as words that follow the device's name; or empty.
    """

    nominal_Bps: float | None = None
    source: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    claim_Bps: float | None = None
    contradicts: bool = False
    finding: str = ""


def line_Bps(state: LinkState) -> float | None:
    """Bytes per second of a link after line coding, before packet overhead."""
    lane = _LANE_GBps.get(state.generation or 0)
    return None if lane is None or state.width is None else lane * 1e9 * state.width


def judge_link(device: PciFunction, port: PciFunction | None, *, idles: bool) -> Verdict:
    """Weigh what the two ends of a link say.

    Parameters
    ----------
    device, port
        The lower end, and the port above it where there is one.
    idles
        Whether the device is one that lowers its link's speed to save power (a GPU).
    """
    if port is not None and port.vendor in VIRTUAL_VENDORS:
        port = None
    if device.rate_Bps or (port is not None and port.rate_Bps):
        return _judge_rates(device.rate_Bps, None if port is None else port.rate_Bps, idles=idles)
    return _judge_states(device, port, idles=idles)


def _judge_rates(device: float | None, port: float | None, *, idles: bool) -> Verdict:
    """Rates alone: hwloc states the present speed as one number."""
    rate = device or port or 0.0
    text = f"{rate / 1e9:.2f} GB/s"
    if device and port and abs(device - port) > _ALIKE * max(device, port):
        text = f"{device / 1e9:.2f} GB/s at the device, {port / 1e9:.2f} GB/s at the port above"
        return Verdict(
            attributes={"speed_text": text},
            claim_Bps=device,
            contradicts=True,
            finding=f"the two ends of its PCIe link contradict each other ({text}), so its "
            "capacity over PCIe is unknown; where data goes another way (NVLink to the "
            "processor), the file need not show it",
        )
    exact = [
        LinkState(generation=g, width=w)
        for g, lane in _LANE_GBps.items()
        for w in _WIDTHS
        if abs(rate / 1e9 - lane * w) <= 0.005 * lane * w
    ]
    if idles and any(s.generation == 1 and (s.width or 0) <= 16 for s in exact):
        return Verdict(
            attributes={"speed_text": text},
            claim_Bps=rate,
            finding=f"its PCIe link reads {text}, as GPUs do that save power when idle; the "
            "file does not say what it runs at under load, so its capacity is unknown",
        )
    attributes: dict[str, Any] = {"speed_text": text}
    usual = [s for s in exact if s.width in (1, 2, 4, 8, 16)]
    if len(usual) == 1:
        attributes |= {"generation": usual[0].generation, "width": usual[0].width}
    payload = pcie_Bps(usual[0].generation, usual[0].width) if usual else None
    if payload is None:
        share = (pcie_Bps(3, 1) or 0.0) / (_LANE_GBps[3] * 1e9)
        payload = rate * share
    return Verdict(
        nominal_Bps=payload,
        source="link speed as the file states it, less packet overhead (topocal.topo.nominal)",
        attributes=attributes,
        claim_Bps=rate,
    )


def _judge_states(device: PciFunction, port: PciFunction | None, *, idles: bool) -> Verdict:
    ends = [device] if port is None else [device, port]
    # A device that idles may have been read before or after its port: the higher speed is
    # what the link runs at.  Where it matters otherwise, the two agree or are refused below.
    speeds = [e.state.generation for e in ends if e.state.generation is not None]
    widths = [e.state.width for e in ends if e.state.width is not None]
    state = LinkState(generation=max(speeds, default=None), width=max(widths, default=None))
    best = LinkState(
        generation=_least([e.capability.generation for e in ends]),
        width=_least([e.capability.width for e in ends]),
    )
    if device.vendor == INTEL and idles and device.capability == _FIRST:
        return Verdict(
            attributes={"speed_text": str(device.state)},
            finding="Intel GPUs report Gen1 x1 whatever their link is; the port above them "
            "knows better, but the source does not show it, so the capacity is unknown",
        )
    if port is not None and _differ(device.state, port.state, speeds_too=not idles):
        text = f"{device.state} at the device, {port.state} at the port above"
        return Verdict(
            attributes={"speed_text": text},
            claim_Bps=line_Bps(device.state),
            contradicts=True,
            finding=f"the two ends of its PCIe link contradict each other ({text}), so its "
            "capacity over PCIe is unknown",
        )
    return _judge_state(state, best, idles=idles, alone=port is None or not port.capability.known)


def _judge_state(state: LinkState, best: LinkState, *, idles: bool, alone: bool) -> Verdict:
    """A link whose ends agree: ``state`` now, ``best`` what both can do."""
    generation, width = state.generation or best.generation, state.width or best.width
    attributes: dict[str, Any] = {}
    finding = ""
    if state.generation is None and state.width is None and best.known:
        finding = (
            f"only what its PCIe link can do is stated ({best}), and is taken for what it does"
        )
    elif idles and state.generation == 1 and best.generation is None:
        return Verdict(
            attributes={"speed_text": str(state)},
            claim_Bps=line_Bps(state),
            finding=f"its PCIe link reads {state}, as GPUs do that save power when idle; what it "
            "runs at under load is not stated, so its capacity is unknown",
        )
    elif idles and state.generation == 1 and (best.generation or 1) > 1:
        generation = best.generation
        attributes["current_generation"] = 1
        finding = (
            f"its PCIe link reads Gen1 of Gen{best.generation}: idle GPUs save power that way, so "
            f"Gen{best.generation} is taken; read it again under load to be sure"
        )
    slower = generation is not None and best.generation is not None and generation < best.generation
    narrower = width is not None and best.width is not None and width < best.width
    if slower or narrower:
        able = "the device is capable of" if alone else "both ends are capable of"
        words = (
            f"its PCIe link is trained at {LinkState(generation=generation, width=width)}, below "
            f"the {best} that {able}: check the slot, riser and firmware settings"
        )
        finding = f"{finding}; {words}" if finding else words
        if slower:
            attributes["max_generation"] = best.generation
        if narrower:
            attributes["max_width"] = best.width
    if generation is not None:
        attributes["generation"] = generation
    if width is not None:
        attributes["width"] = width
    nominal = pcie_Bps(generation, width)
    return Verdict(
        nominal_Bps=nominal,
        source="" if nominal is None else source_of(f"pcie {generation}"),
        attributes=attributes,
        claim_Bps=line_Bps(LinkState(generation=generation, width=width)),
        finding=finding,
    )


def _differ(a: LinkState, b: LinkState, *, speeds_too: bool) -> bool:
    """Whether two readings of one link exclude each other.

    Speeds read a moment apart may differ where the device idles; widths may not.
    """
    widths = a.width is not None and b.width is not None and a.width != b.width
    speeds = None not in (a.generation, b.generation) and a.generation != b.generation
    return widths or (speeds_too and speeds)


def _least(values: list[int | None]) -> int | None:
    return min((v for v in values if v is not None), default=None)
