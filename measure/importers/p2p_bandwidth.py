"""CUDA's (and HIP's) p2pBandwidthLatencyTest.

What the figures are (Samples/5_Domain_Specific/p2pBandwidthLatencyTest in
NVIDIA/cuda-samples): a unidirectional cell is the rate from the row's GPU to the column's
(``P2P Reads``: from the column's to the row's); a bidirectional cell is the bytes of both
directions over the time until both are done, so the sum, and both cells of a pair are
repeats of one thing.  The diagonal counts reads and writes of a GPU's own memory and is
no transfer.  Latencies become alphas; where the tool prints two tables, the one that the
GPU's clock measured.  Sizes are not printed.

Devices are numbered within ``CUDA_VISIBLE_DEVICES``: where the paste shows how that was set,
they get the numbers of the machine.  Runs of different GPUs are used together, of several
runs of the same ones one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from topocal.measure.importers.imported import Draft, Imported, Latency
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.pair_table import pair_samples
from topocal.measure.importers.text_matrix import Matrix, header_names, read_matrix
from topocal.measure.importers.visible_devices import VisibleDevices
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.errors import UnitError
from topocal.topo.naming import natural_key
from topocal.topo.readers.class_matrix import some
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import format_rate, rate_unit_Bps

__all__ = ["P2P_BANDWIDTH", "looks_like_p2p_bandwidth", "parse_p2p_bandwidth"]

TITLE: Final = "p2pBandwidthLatencyTest"

_BANDWIDTH: Final = re.compile(
    r"(Uni|Bi)directional\s{1,4}P2P=(Enabled|Disabled)\s{1,4}Bandwidth"
    r"(?:\s{0,4}\(P2P\s{1,4}(Writes|Reads)\))?(?:\s{1,4}Matrix)?\s{0,4}\(([^()]{1,16})\)",
    re.IGNORECASE,
)
_LATENCY: Final = re.compile(
    r"P2P=(Enabled|Disabled)\s{1,4}Latency(?:\s{0,4}\(P2P\s{1,4}(Writes|Reads)\))?"
    r"(?:\s{1,4}Matrix)?\s{0,4}\((us|ns|ms)\)",
    re.IGNORECASE,
)
_CONNECTIVITY: Final = re.compile(r"P2P\s{1,4}Connectivity\s{1,4}Matrix", re.IGNORECASE)
_ACCESS: Final = re.compile(
    r"\s{0,8}Device=([0-9]{1,4})\s{1,4}CANNOT\s{1,4}Access\s{1,4}Peer\s{1,4}Device=([0-9]{1,4})",
    re.IGNORECASE,
)
_DEVICE: Final = re.compile(
    r"\s{0,8}Device:\s{0,4}([0-9]{1,4}),\s{0,4}([^,]{1,100}),\s{0,4}pciBusID:\s{0,4}([0-9a-f]{1,4}),"
    r"\s{0,4}pciDeviceID:\s{0,4}([0-9a-f]{1,4}),\s{0,4}pciDomainID:\s{0,4}([0-9a-f]{1,8})",
    re.IGNORECASE,
)
_BANNER: Final = re.compile(r"\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]", re.IGNORECASE)
_KERNEL_COPY: Final = re.compile(r"p2pBandwidthLatencyTest\b.{0,200}--sm_copy")
_SLOWER: Final = 0.8
"""Rate with peer access over the one without from which on the difference is no noise."""

_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}


@dataclass(slots=True)
class _State:
    """Where in the paste a line stands."""

    run: int = 1
    seen: set[tuple[str, ...]] = field(default_factory=set)
    kernel: bool = False
    visible: VisibleDevices = field(default_factory=VisibleDevices)
    cannot: set[tuple[str, str]] = field(default_factory=set)
    buses: dict[int, set[str]] = field(default_factory=dict)
    most_devices: int = 0

    def begin(self, what: tuple[str, ...], *, banner: bool = False) -> None:
        """A table, or the tool's first line; one that was there before begins a new run."""
        if banner or what in self.seen:
            if self.seen:
                self.run += 1
            self.seen = set()
        if not banner:
            self.seen.add(what)

    def called(self, number: str) -> str:
        """The endpoint that the tool's number stands for."""
        return canonical_endpoint(self.visible.of(number))

    def name(self, matrix: Matrix) -> None:
        """Give a table the names of its endpoints."""
        self.most_devices = max(self.most_devices, len(matrix.columns))
        matrix.columns = [self.called(c) for c in matrix.columns]
        for row in matrix.rows:
            row.name = self.called(row.name)


def looks_like_p2p_bandwidth(text: str) -> bool:
    """Whether a text has one of the tool's tables, or its first line."""
    return any(p.search(text) for p in (_BANDWIDTH, _LATENCY, _BANNER))


def parse_p2p_bandwidth(text: str, *, file: str) -> Imported:
    """The tables of one paste, whatever stands around them.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure in one is no rate.
    """
    draft = Draft(kind="p2p", title=TITLE, file=file)
    lines = plain_lines(text)
    state = _State()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if title := _BANDWIDTH.search(line):
            state.begin(("bandwidth", title[1].lower(), title[2].lower(), title[3] or ""))
            found = _table_below(lines, at, file)
            if found is not None:
                matrix, at = found
                _add_bandwidth(draft, title, matrix, state, at)
        elif title := _LATENCY.search(line):
            state.begin(("latency", title[1].lower(), title[2] or ""))
            at = _add_latencies(draft, title, lines, at, state)
        elif _CONNECTIVITY.search(line):
            found = _table_below(lines, at, file)
            if found is not None:
                matrix, at = found
                state.name(matrix)
                state.cannot |= {
                    (row.name, column)
                    for row in matrix.rows
                    for column, cell in zip(matrix.columns, row.cells, strict=True)
                    if cell == 0 and row.name != column
                }
        elif _BANNER.search(line):
            state.begin((), banner=True)
        elif access := _ACCESS.match(line):
            state.cannot.add((state.called(access[1]), state.called(access[2])))
        elif device := _DEVICE.match(line):
            name = state.called(device[1])
            domain, bus, slot = (int(device[k], 16) for k in (5, 3, 4))
            bus_id = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
            draft.devices[name] = {"model": device[2].strip(), "bus_id": bus_id}
            state.buses.setdefault(state.run, set()).add(bus_id)
        elif not state.visible.read(line) and _KERNEL_COPY.search(line):
            state.kernel = True
    if not draft.groups and state.most_devices == 1:
        raise draft.fail(
            "is of one GPU, which copies to none", remedy="run it on a machine with several GPUs"
        )
    draft.no_peer.extend(sorted(state.cannot))
    apart = {"-".join(sorted(pair, key=natural_key)) for pair in state.cannot}
    if apart:
        names = sorted(apart, key=natural_key)
        draft.note(
            f"no peer access between {some(names)}: what they copy goes through the host, "
            "whatever a table's title says"
        )
    _note_slower_peers(draft)
    draft.prefer_one_run()
    if any("run" in g.conditions for g in draft.groups):
        _note_other_gpus(draft, state)
    _prefer_peer_access(draft)
    return draft.done()


def _table_below(lines: Sequence[str], at: int, file: str) -> tuple[Matrix, int] | None:
    """The table that begins within the next few lines."""
    for here in range(at, min(at + 4, len(lines))):
        if header_names(lines[here]) is not None:
            return read_matrix(lines, here, file=file)
        if lines[here].strip():
            return None
    return None


def _add_bandwidth(
    draft: Draft, title: re.Match[str], matrix: Matrix, state: _State, end: int
) -> None:
    way, enabled = title[1].lower(), title[2].lower() == "enabled"
    reads = (title[3] or "").lower() == "reads"
    label = f"P2P {title[2].lower()}, {'uni' if way == 'uni' else 'bi'}directional"
    if reads:
        label += ", reads"
    conditions = {
        "run": str(state.run),
        "p2p": "on" if enabled else "off",
        "direction": "one way" if way == "uni" else "both ways",
    }
    if title[3]:
        conditions["operation"] = "read" if reads else "write"
    if state.kernel and enabled:
        conditions["engine"] = "kernel"
    try:
        unit = rate_unit_Bps(title[4].strip())
    except UnitError as error:
        raise UnitError(error.what, where=draft.where(end), remedy=error.remedy) from error
    for sentence in matrix.damage(f"the table {label!r}"):
        draft.note(sentence)
    state.name(matrix)
    samples = pair_samples(draft, matrix, unit, both_ways=way == "bi", backwards=reads)
    draft.add(label, samples, conditions=conditions)


def _add_latencies(
    draft: Draft, title: re.Match[str], lines: Sequence[str], at: int, state: _State
) -> int:
    """Add the latency tables below a title; returns the line after them."""
    unit = _SECONDS[title[3].lower()]
    conditions = {"run": str(state.run), "p2p": "on" if title[1].lower() == "enabled" else "off"}
    reads = (title[2] or "").lower() == "reads"
    for _ in range(2):
        found = _table_below(lines, at, draft.file)
        if found is None:
            return at
        matrix, at = found
        by_cpu = lines[matrix.line - 1].split()[:1] == ["CPU"]
        label = f"P2P {title[1].lower()}, latency" + (" on the host's clock" if by_cpu else "")
        for sentence in matrix.damage(f"the table {label!r}"):
            draft.note(sentence)
        state.name(matrix)
        latencies = [
            Latency(
                source=canonical_endpoint(column if reads else row.name),
                destination=canonical_endpoint(row.name if reads else column),
                seconds=cell * unit,
                where=draft.where(row.line),
            )
            for row in matrix.rows
            for column, cell in zip(matrix.columns, row.cells, strict=True)
            if column != row.name and cell and 0 < cell * unit < 1e3
        ]
        draft.add(label, latencies=latencies, conditions=conditions, default=not by_cpu)
    return at


def _note_other_gpus(draft: Draft, state: _State) -> None:
    """Runs of other GPUs that have the same numbers."""
    buses = list(state.buses.values())
    if any(one != other for one, other in pairwise(buses)):
        draft.note(
            "the runs are of different GPUs, each counted from 0: say which in a line "
            "CUDA_VISIBLE_DEVICES=… before each run, or give each run its own file"
        )


def _note_slower_peers(draft: Draft) -> None:
    """Say so where peer access makes copies slower."""
    rates: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for g in draft.groups:
        if g.conditions.get("direction") == "one way" and g.conditions.get("operation") != "read":
            of_group = rates.setdefault((g.conditions["run"], g.conditions["p2p"]), {})
            of_group |= {s.pattern.pairs[0]: s.throughput_Bps for s in g.measurements.samples}
    denied = {pair for a, b in draft.no_peer for pair in ((a, b), (b, a))}
    for (run, p2p), direct in rates.items():
        without = rates.get((run, "off"), {})
        both = [pair for pair in direct if pair in without and pair not in denied]
        if p2p == "off" or not both:
            continue
        if median(direct[pair] / without[pair] for pair in both) < _SLOWER:
            fast, slow = (
                format_rate(median(of[pair] for pair in both)) for of in (without, direct)
            )
            draft.note(
                f"with peer access copies between GPUs run at {slow}, without it at {fast}: "
                "something on the direct way holds them back, as PCIe access control (ACS), an "
                "IOMMU or virtualisation does"
            )


def _prefer_peer_access(draft: Draft) -> None:
    """A fit uses the tables with peer access where there are any."""
    usable = [g for g in draft.groups if g.default and g.measurements.samples]
    if not any(g.conditions.get("p2p") == "on" for g in usable):
        return
    draft.leave_out(lambda g: g.conditions.get("p2p") == "off")


P2P_BANDWIDTH: Final = Importer(
    name="p2p",
    title=TITLE,
    looks_like=looks_like_p2p_bandwidth,
    parse=parse_p2p_bandwidth,
)
"""The importer that the registry lists."""
