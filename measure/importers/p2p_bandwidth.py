"""CUDA's (and HIP's) p2pBandwidthLatencyTest.

What the figures are (Samples/5_Domain_Specific/p2pBandwidthLatencyTest in
NVIDIA/cuda-samples): a unidirectional cell is the rate from the row's GPU to the column's
(``P2P Reads``: from the column's to the row's); a bidirectional cell is the bytes of both
directions over the time until both are done, so the sum, and both cells of a pair are
repeats of one thing.  The diagonal counts reads and writes of a GPU's own memory and is
no transfer.  Latencies become alphas; where the tool prints two tables, the one that the
GPU's clock measured.  Sizes are not printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.imported import Draft, Imported, Latency
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.pair_table import pair_samples
from topocal.measure.importers.text_matrix import Matrix, header_names, read_matrix
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.errors import UnitError
from topocal.topo.readers.matrix_text import plain_lines
from topocal.topo.units import rate_unit_Bps

__all__ = ["P2P_BANDWIDTH", "looks_like_p2p_bandwidth", "parse_p2p_bandwidth"]

TITLE: Final = "p2pBandwidthLatencyTest"

_BANDWIDTH: Final = re.compile(
    r"(Uni|Bi)directional\s{1,4}P2P=(Enabled|Disabled)\s{1,4}Bandwidth"
    r"(?:\s{0,4}\(P2P\s{1,4}(Writes|Reads)\))?\s{1,4}Matrix\s{0,4}\(([^()]{1,16})\)",
    re.IGNORECASE,
)
_LATENCY: Final = re.compile(
    r"P2P=(Enabled|Disabled)\s{1,4}Latency(?:\s{0,4}\(P2P\s{1,4}(Writes|Reads)\))?"
    r"\s{1,4}Matrix\s{0,4}\((us|ns|ms)\)",
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
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}


@dataclass(slots=True)
class _State:
    """Where in the paste a line stands."""

    run: int = 1
    seen: set[tuple[str, ...]] = field(default_factory=set)
    kernel: bool = False
    cannot: set[tuple[str, str]] = field(default_factory=set)

    def begin(self, what: tuple[str, ...], *, banner: bool = False) -> None:
        """A table, or the tool's first line; one that was there before begins a new run."""
        if banner or what in self.seen:
            if self.seen:
                self.run += 1
            self.seen = set()
        if not banner:
            self.seen.add(what)


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
                state.cannot |= {
                    (row.name, column)
                    for row in matrix.rows
                    for column, cell in zip(matrix.columns, row.cells, strict=True)
                    if cell == 0 and row.name != column
                }
        elif _BANNER.search(line):
            state.begin((), banner=True)
        elif access := _ACCESS.match(line):
            state.cannot.add((str(int(access[1])), str(int(access[2]))))
        elif device := _DEVICE.match(line):
            name = canonical_endpoint(device[1])
            domain, bus, slot = (int(device[k], 16) for k in (5, 3, 4))
            draft.devices[name] = {
                "model": device[2].strip(),
                "bus_id": f"{domain:04x}:{bus:02x}:{slot:02x}.0",
            }
        elif _KERNEL_COPY.search(line):
            state.kernel = True
    draft.no_peer.extend(
        (canonical_endpoint(a), canonical_endpoint(b)) for a, b in sorted(state.cannot)
    )
    if state.cannot:
        draft.note(
            f"{len(state.cannot)} pairs have no peer access: their bytes go through the host, "
            "whatever a table's title says"
        )
    draft.prefer_one_run()
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
    samples = pair_samples(draft, matrix, unit, both_ways=way == "bi", backwards=reads)
    for sentence in matrix.damage(f"the table {label!r}"):
        draft.note(sentence)
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
        for sentence in matrix.damage(f"the table {label!r}"):
            draft.note(sentence)
        draft.add(label, latencies=latencies, conditions=conditions, default=not by_cpu)
    return at


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
