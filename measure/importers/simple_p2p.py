"""CUDA's simpleP2P: one pair of GPUs, and whether what it copies arrives.

What the figure is (Samples/0_Introduction/simpleP2P in NVIDIA/cuda-samples): 100 copies of 64 MiB
that go forth and back in turn, over the time of all.  It is divided by 2**30 and printed as
``GB/s``.  Each direction is booked with it: their mean is what was measured.  The tool then
checks what arrived; where that is wrong, the rate is of nothing and is set aside.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from topocal.measure.importers.figures import alone, in_order, is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.visible_devices import VisibleDevices
from topocal.measure.samples import Sample
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import rate_unit_Bps

__all__ = ["SIMPLE_P2P", "looks_like_simple_p2p", "parse_simple_p2p"]

TITLE: Final = "CUDA simpleP2P"
SIZE_BYTES: Final = 64 * 2**20
"""Of one copy: 64 MiB in every release (simpleP2P.cu)."""

_BANNER: Final = re.compile(r"\[[^\]\n]{0,200}simpleP2P[^\]\n]{0,20}\] - Starting")
_ACCESS: Final = re.compile(
    r"[ \t]{0,8}>?[ \t]{0,4}Peer(?:-to-Peer \(P2P\))? access from (.{1,80}?) \(GPU([0-9]{1,4})\)"
    r" -> (.{1,80}?) \(GPU([0-9]{1,4})\) ?: (Yes|No)"
)
_RATE: Final = re.compile(
    r"cudaMemcpyPeer ?/ ?cudaMemcpy between GPU([0-9]{1,4}) and GPU([0-9]{1,4}): "
    r"([0-9.]{1,12}) ?GB/s"
)
_WRONG: Final = re.compile(r"Verification error @ element")
_REMEDY: Final = "find out why copies go wrong (driver, PCIe access control, IOMMU) first"


def looks_like_simple_p2p(text: str) -> bool:
    """Whether a text has the tool's figure or its first line."""
    return _RATE.search(text) is not None or _BANNER.search(text) is not None


def parse_simple_p2p(text: str, *, file: str) -> Imported:
    """The pairs of one output; of a pair that stands several times, each counts.

    Raises
    ------
    FormatError
        When there is no figure.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="simple-p2p", title=TITLE, file=file)
    visible = VisibleDevices()
    found: list[Sample] = []
    latest: list[int] = []
    denied: set[tuple[str, str]] = set()
    wrong = 0

    def called(number: str) -> str:
        return canonical_endpoint(visible.of(number))

    for line_number, line in enumerate(plain_lines(text), start=1):
        visible.read(line)
        if access := _ACCESS.match(line):
            a, b = called(access[2]), called(access[4])
            for name, model in ((a, access[1]), (b, access[3])):
                draft.devices.setdefault(name, {"model": model.strip()})
            if access[5] == "No":
                denied.add((a, b))
        elif rate := _RATE.search(line):
            samples = _both(draft, called(rate[1]), called(rate[2]), rate[3], line_number)
            latest = list(range(len(found), len(found) + len(samples)))
            found += samples
        elif _WRONG.search(line) and latest:
            wrong = wrong or line_number
            for k in latest:
                found[k] = msgspec.structs.replace(found[k], set_aside="wrong data arrived")
            latest = []
    draft.no_peer.extend(sorted(denied))
    if wrong and all(sample.set_aside for sample in found):
        raise draft.fail("what was copied arrived wrong: the rate is of nothing", line=wrong,
                         remedy=_REMEDY)  # fmt: skip
    if wrong:
        draft.note(f"line {wrong}: what was copied arrived wrong: that rate is set aside")
    if not found and denied:
        raise draft.fail(
            "no two GPUs reach each other's memory, so nothing was copied",
            remedy="measure with p2pBandwidthLatencyTest, which copies through the host as well",
        )
    if found:
        draft.note(
            "the rate is a mean of both directions, and in GiB/s (the tool divides by 2**30 and "
            "prints GB/s)"
        )
    draft.add("copies forth and back in turn", found, conditions={"direction": "one way"})
    return draft.done()


def _both(draft: Draft, a: str, b: str, figure: str, line: int) -> list[Sample]:
    """A sample of each direction."""
    value = to_number(figure)
    rate = 0.0 if value is None else value * rate_unit_Bps("GiB/s")
    if not is_rate(rate) or a == b:
        raise draft.fail(f"{figure} GB/s is no rate", line=line, remedy="check the figure")
    return [
        alone(*pair, rate, where=draft.where(line), size_bytes=SIZE_BYTES)
        for pair in in_order(a, b)
    ]


SIMPLE_P2P: Final = Importer(
    name="simple-p2p",
    title=TITLE,
    looks_like=looks_like_simple_p2p,
    parse=parse_simple_p2p,
)
"""The importer that the registry lists."""
