"""``nvidia-smi -L`` and ``nvidia-smi nvlink``: which GPUs there are, and their NVLinks.

Neither ``-L`` nor ``-s`` tells what is connected to what: the topology has the GPUs, and what
is said of each as node attributes, for a merge with a file that has the links.  ``nvlink -R``
names the device at the far end of each link: where all GPUs name the same ones, those are the
switches that join them, and are read as ``topo -m`` is, as one.  Several
lists of one machine (``-s``, ``-c``, ``-info`` one below the other) are read as one; of two
lists of states the first counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, UnitError, Where
from topocal.topo.readers.class_matrix import MAX_DEVICES, some
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.reader import Reader
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology
from topocal.topo.units import format_rate, parse_rate

__all__ = ["NVIDIA_LISTS", "looks_like_nvidia_list", "parse_nvidia_list"]

_GPU: Final = re.compile(r"\s{0,8}GPU ([0-9]{1,4}): ([^()]{1,200})(?:\(UUID:([^)]{0,100})\))?\s*")
_LIST: Final = re.compile(r"^\s{0,8}GPU [0-9]{1,4}: [^()\n]{1,200}\(UUID:", re.M)
_MIG: Final = re.compile(r"\s{1,8}MIG\s{1,8}(\S{1,40})\s{1,40}Device\s{1,8}[0-9]{1,4}:.*")
_LINK: Final = re.compile(r"\s{0,16}Link ([0-9]{1,3}): (.{1,60})")
_CUT: Final = re.compile(r"\s{0,16}\[?\s{0,2}(?:\.{2,}|\u2026)\s{0,2}\]?\s*")
"""A line by which somebody shortened a list."""

_REMOTE: Final = re.compile(r"remote device:?\s{0,4}([0-9a-f:.]{5,20})", re.IGNORECASE)
"""What ``nvlink -R`` has in place of a rate."""

_IN_MIG: Final = re.compile(r"not supported for devices in MIG mode", re.IGNORECASE)
_ALL_INACTIVE: Final = re.compile(r"all links are inactive", re.IGNORECASE)


@dataclass(slots=True)
class _Gpu:
    number: int
    model: str
    uuid: str
    mig: list[str] = field(default_factory=list)
    rates_Bps: list[float] = field(default_factory=list)
    inactive: int = 0
    without_links: bool = False
    hidden_links: bool = False
    seen_links: set[int] = field(default_factory=set)
    cut: bool = False
    remote: dict[int, str] = field(default_factory=dict)
    """Far end of each link, by its number."""


def looks_like_nvidia_list(text: str) -> bool:
    """Whether a text has lines of ``nvidia-smi -L``, which ``nvlink -s`` has, too."""
    return _LIST.search(text) is not None


def parse_nvidia_list(text: str, *, file: str, alone: bool = True) -> Topology:
    """The GPUs that a list names, with MIG instances and NVLinks as attributes.

    Attributes of a GPU: ``mig`` (profiles), ``nvlinks`` and ``nvlinks_inactive``
    (counts), ``nvlink_Bps`` (bytes per second of one link in one direction, where
    all are equal) and ``nvlink_total_Bps`` (of all active ones).

    Parameters
    ----------
    alone
        Whether nothing else tells how the GPUs are connected, which a note then says.

    Raises
    ------
    FormatError
        When it names no GPU, or one twice.
    """
    gpus: dict[int, _Gpu] = {}
    last: _Gpu | None = None
    for number, line in enumerate(plain_lines(text), 1):
        if found := _GPU.fullmatch(line):
            named = _Gpu(int(found[1]), found[2].strip(), (found[3] or "").strip())
            last = _listed(gpus, named, Where(file=file, line=number))
        elif last is not None:
            _read_detail(line, last, Where(file=file, line=number))
    if not gpus:
        raise FormatError(
            "names no GPU",
            where=Where(file=file),
            remedy="give the output of nvidia-smi -L or nvidia-smi nvlink -s",
        )
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: nvidia-smi -L or nvlink -s")
    for gpu in gpus.values():
        builder.node(
            f"gpu{gpu.number}",
            NodeKind.GPU,
            label=gpu.model,
            index=gpu.number,
            model=gpu.model,
            **_attributes(gpu),
        )
        _note(builder, gpu)
    if not _join_at_switches(builder, list(gpus.values())) and alone:
        builder.note(
            "what the GPUs are connected to is not in this output: give nvidia-smi topo -m"
        )
    return builder.build()


def _join_at_switches(builder: TopologyBuilder, gpus: list[_Gpu]) -> bool:
    """Join the GPUs at the switches that the far ends of their links are, if they are any.

    A GPU is no far end of its own links, so what all of them name is none of them.
    """
    ends = {frozenset(gpu.remote.values()) for gpu in gpus}
    if len(gpus) < 2 or len(ends) != 1 or not next(iter(ends)) or any(g.cut for g in gpus):
        return False
    switch = builder.node("nvswitch0", NodeKind.NVSWITCH, label="NVSwitch")
    for gpu in gpus:
        rates = set(gpu.rates_Bps)
        known = len(rates) == 1 and not gpu.inactive
        builder.connect(
            f"gpu{gpu.number}",
            switch,
            LinkKind.NVLINK,
            count=len(gpu.remote),
            nominal_Bps=len(gpu.remote) * rates.pop() if known else None,
            source="nvidia-smi nvlink -s" if known else "",
        )
    return True


def _listed(gpus: dict[int, _Gpu], named: _Gpu, where: Where) -> _Gpu:
    """The GPU that a line names: a new one, or one of which another list says more."""
    if named.number not in gpus:
        if len(gpus) >= MAX_DEVICES:
            raise FormatError(
                f"lists more than {MAX_DEVICES} GPUs",
                where=where,
                remedy="give the output of one machine",
            )
        gpus[named.number] = named
    known = gpus[named.number]
    if (known.model, known.uuid) != (named.model, named.uuid):
        raise FormatError(
            f"lists GPU {named.number} twice, with different names",
            where=where,
            remedy="give the output of one machine",
        )
    return known


def _read_detail(line: str, gpu: _Gpu, where: Where) -> None:
    """A line below a GPU's."""
    if found := _MIG.fullmatch(line):
        gpu.mig.append(found[1])
    elif found := _LINK.fullmatch(line):
        what = found[2].strip()
        if remote := _REMOTE.match(what):
            gpu.remote[int(found[1])] = remote[1].lower().rstrip(":")
            return
        if int(found[1]) in gpu.seen_links:
            return
        gpu.seen_links.add(int(found[1]))
        if "inactive" in what.lower():
            gpu.inactive += 1
            return
        try:
            gpu.rates_Bps.append(parse_rate(what))
        except UnitError as error:
            raise FormatError(
                f"NVLink {found[1]} of GPU {gpu.number} has no rate: {error.what}",
                where=where,
                remedy="give the output of nvidia-smi nvlink -s as it was printed",
            ) from error
    elif _IN_MIG.search(line):
        gpu.hidden_links = True
    elif _ALL_INACTIVE.search(line):
        gpu.without_links = True
    elif _CUT.fullmatch(line) and (gpu.seen_links or gpu.remote):
        gpu.cut = True


def _attributes(gpu: _Gpu) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if gpu.mig:
        found["mig"] = gpu.mig
    if (gpu.rates_Bps or gpu.inactive or gpu.without_links) and not gpu.cut:
        found["nvlinks"] = len(gpu.rates_Bps)
        if gpu.inactive:
            found["nvlinks_inactive"] = gpu.inactive
        if gpu.rates_Bps:
            found["nvlink_total_Bps"] = sum(gpu.rates_Bps)
    if len(set(gpu.rates_Bps)) == 1:
        found["nvlink_Bps"] = gpu.rates_Bps[0]
    return found


def _note(builder: TopologyBuilder, gpu: _Gpu) -> None:
    name = f"gpu{gpu.number}"
    if gpu.mig:
        counted = [
            profile if (n := len(list(group))) == 1 else f"{n}x {profile}"
            for profile, group in groupby(gpu.mig)
        ]
        builder.note(
            f"{name} is split into MIG instances ({some(counted, shown=8)}): they are no endpoints "
            f"of their own, as all share the links of {name}"
        )
    if gpu.hidden_links:
        builder.note(f"{name} is in MIG mode, which hides its NVLinks: unknown, not none")
    if gpu.cut:
        builder.note(
            f"the list of the NVLinks of {name} is cut after {len(gpu.seen_links)}: how many there "
            "are is unknown"
        )
    elif gpu.inactive:
        builder.note(
            f"{gpu.inactive} of the {gpu.inactive + len(gpu.rates_Bps)} NVLinks of {name} "
            + ("is inactive" if gpu.inactive == 1 else "are inactive")
        )
    if len(set(gpu.rates_Bps)) > 1:
        shown = ", ".join(format_rate(rate) for rate in sorted(set(gpu.rates_Bps)))
        builder.note(f"the NVLinks of {name} run at different rates ({shown})")


NVIDIA_LISTS: Final = Reader(
    name="nvidia-list",
    title="nvidia-smi -L and nvidia-smi nvlink",
    looks_like=looks_like_nvidia_list,
    parse=parse_nvidia_list,
)
"""The reader that the registry lists."""
