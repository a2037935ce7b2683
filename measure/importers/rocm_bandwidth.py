"""rocm-bandwidth-test: tables of all pairs, and sweeps over sizes of single pairs.

What the figures are (rocm_bandwidth_test_report.cpp in ROCm/rocm_bandwidth_test): a cell of
the unidirectional table is the best rate of one copy from the row's device to the
column's; a cell of the bidirectional table is the bytes of both directions over the time
until both are done, printed in both cells of the pair.  ``N/A`` is not measurable, not
zero.  Devices are numbered processors first; they become ``cpu0`` … and ``gpu0`` … in
that order.  A list of devices says which is which; without one, a device that has figures
both ways with no other like itself is told by the gaps in the tables, and the notes say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import alone, in_order, is_rate, moved, to_number
from topocal.measure.importers.imported import Draft, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.text_matrix import Matrix, header_names, read_matrix
from topocal.measure.samples import Sample
from topocal.topo.errors import UnitError
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import BYTES_PER_GB, parse_bytes

__all__ = ["ROCM_BANDWIDTH", "looks_like_rocm_bandwidth", "parse_rocm_bandwidth"]

TITLE: Final = "rocm-bandwidth-test"

_TABLE: Final = re.compile(
    r"(Unidirectional|Bi?directional)\s{1,4}(?:copy\s{1,4})?(peak|average)\s{1,4}bandwidth\s{1,4}"
    r"GB/s\s*$",
    re.IGNORECASE,
)
_ACCESS: Final = re.compile(r"(?:Inter-)?Device Access\s*$", re.IGNORECASE)
_GPU_NAME: Final = re.compile(
    r"Radeon|Instinct|\bVega\b|\bNavi|\bMI[0-9]{2,3}|FirePro|\bgfx[0-9]|^Device [0-9a-f]{4}$",
    re.IGNORECASE,
)
"""Names of GPUs, where old versions print neither an id nor an address behind them."""

_DEVICE: Final = re.compile(r"\s{0,40}Device:\s{1,8}([0-9]{1,4}),\s{0,8}([^,]{1,100})(.{0,200})")
_BUS: Final = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])")
_SWEEP: Final = re.compile(
    r"(Src|Dst) Device Id:\s{1,8}([0-9]{1,4})\s{1,8}(?:Src|Dst) Device Type:\s{1,8}(Cpu|Gpu)",
    re.IGNORECASE,
)
_SWEEP_ROW: Final = re.compile(
    r"\s{0,20}([0-9]{1,9})\s{0,20}(KB|MB|GB)((?:\s{1,40}[0-9.]{1,20}){4})\s*", re.IGNORECASE
)
_BANNER: Final = re.compile(r"(Uni|Bi)directional Benchmark Result", re.IGNORECASE)
_BINARY: Final = {"kb": "KiB", "mb": "MiB", "gb": "GiB"}
"""The tool divides by 1024 and prints KB."""

_NUMBER: Final = re.compile(r"[0-9]{1,4}")
_LOOK_AHEAD: Final = 4


@dataclass(slots=True)
class _Devices:
    """Which of the tool's numbers are processors."""

    kinds: dict[str, str] = field(default_factory=dict)
    numbered: dict[str, str] = field(default_factory=dict)

    def is_said(self, number: str, kind: str) -> None:
        """A line says what a device is."""
        self.kinds[number] = kind

    def name(self, number: str) -> str:
        """The endpoint of a device: its place among those of its kind."""
        return self.numbered.get(number, f"device{number}")

    def settle(self) -> None:
        """Name the devices of each kind in the tool's order.

        Where a text leaves out some, how many processors stand before a GPU is not
        known, and the GPU keeps the tool's number; one processor there always is.
        """
        gpus = 0
        ordered = sorted(self.kinds, key=int)
        first = int(ordered[0]) if ordered and "cpu" not in self.kinds.values() else 0
        for place, number in enumerate(ordered, first if first == 1 else 0):
            if self.kinds[number] == "cpu":
                self.numbered[number] = f"cpu{number}"
            elif place == int(number):
                self.numbered[number] = f"gpu{gpus}"
                gpus += 1


def looks_like_rocm_bandwidth(text: str) -> bool:
    """Whether a text has one of the tool's tables."""
    return "RocmBandwidthTest" in text or any(
        _TABLE.search(line) for line in text.split("\n") if "andwidth" in line
    )


def parse_rocm_bandwidth(text: str, *, file: str) -> Imported:
    """The tables and sweeps of one output.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="rocm-bandwidth-test", title=TITLE, file=file)
    lines = plain_lines(text)
    devices = _Devices()
    buses: dict[str, dict[str, str]] = {}
    tables: list[tuple[str, str, Matrix]] = []
    access: Matrix | None = None
    sweeps: list[_Sweep] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if title := _TABLE.search(line):
            found = _table_below(lines, at, file)
            if found is None:
                draft.note(f"line {at}: no table follows")
                continue
            tables.append((title[1].lower(), title[2].lower(), found[0]))
            at = found[1]
        elif _ACCESS.search(line):
            found = _table_below(lines, at, file)
            if found is not None:
                access, at = found
        elif device := _DEVICE.match(line):
            number = str(int(device[1]))
            bus = _BUS.search(device[3])
            gpu = "," in device[3] or _GPU_NAME.search(device[2].strip()) is not None
            devices.is_said(number, "gpu" if gpu else "cpu")
            buses[number] = {"model": device[2].strip()} | (_bus_id(bus) if bus else {})
        elif side := _SWEEP.search(line):
            number = str(int(side[2]))
            devices.is_said(number, side[3].lower())
            if not sweeps or (side[1].lower() == "src" and sweeps[-1].ends):
                sweeps.append(_Sweep())
            sweeps[-1].ends[side[1].lower()] = number
        elif banner := _BANNER.search(line):
            sweeps.append(_Sweep(both=banner[1].lower() == "bi"))
        elif sweeps and (row := _SWEEP_ROW.fullmatch(line)):
            sweeps[-1].rows.append((row, at))
    _settle(draft, devices, tables, sweeps)
    draft.devices.update({devices.name(n): known for n, known in buses.items()})
    for way, statistic, matrix in tables:
        _add_table(draft, devices, way, statistic, matrix)
    _add_sweeps(draft, devices, sweeps)
    _note_access(draft, devices, access)
    return draft.done()


@dataclass(slots=True)
class _Sweep:
    both: bool = False
    ends: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[re.Match[str], int]] = field(default_factory=list)


def _bus_id(bus: re.Match[str]) -> dict[str, str]:
    """The tool prints 83:0.0 where others print 83:00.0."""
    domain, number, slot = (int(bus[k] or "0", 16) for k in (1, 2, 3))
    return {"bus_id": f"{domain:04x}:{number:02x}:{slot:02x}.{bus[4]}"}


def _table_below(lines: Sequence[str], at: int, file: str) -> tuple[Matrix, int] | None:
    for here in range(at, min(at + _LOOK_AHEAD, len(lines))):
        names = header_names(lines[here])
        if names is not None:
            # The tool's devices are numbers; what else there is below is of another one.
            mine = all(_NUMBER.fullmatch(name) for name in names)
            return read_matrix(lines, here, file=file) if mine else None
    return None


def _settle(
    draft: Draft,
    devices: _Devices,
    tables: Sequence[tuple[str, str, Matrix]],
    sweeps: Sequence[_Sweep],
) -> None:
    """Name every device that the tables and sweeps have."""
    named = {c for _, _, matrix in tables for c in matrix.columns}
    named |= {n for s in sweeps for n in s.ends.values()}
    unknown = sorted((n for n in named if n not in devices.kinds), key=int)
    if unknown:
        processors = _processors(tables)
        gpus = [int(n) for n, kind in devices.kinds.items() if kind == "gpu"]
        for n in unknown:
            before = bool(gpus) and int(n) < min(gpus) and not processors
            devices.is_said(n, "cpu" if n in processors or before else "gpu")
        found = [n for n in unknown if devices.kinds[n] == "cpu"]
        draft.note(
            "has no list of devices: "
            + (
                f"{', '.join(found)} are taken to be processors"
                if found
                else "all are taken as GPUs"
            )
        )
    devices.settle()
    kept = [n for n in sorted(named, key=int) if n not in devices.numbered]
    if kept:
        draft.note(
            f"how many processors come before device {', '.join(kept[:8])} is not said: it keeps "
            "the tool's number"
        )


def _processors(tables: Sequence[tuple[str, str, Matrix]]) -> set[str]:
    """Devices at the head of a table that have no figures among themselves.

    The tool copies between processors and GPUs and between GPUs, never between processors.
    """
    for _, _, matrix in tables:
        cells = {
            (row.name, c): cell
            for row in matrix.rows
            for c, cell in zip(matrix.columns, row.cells, strict=True)
        }
        head: list[str] = []
        for name in matrix.columns:
            if any(cells.get((name, other)) for other in [*head, name]):
                break
            head.append(name)
        if 0 < len(head) < len(matrix.columns):
            return set(head)
    return set()


def _add_table(draft: Draft, devices: _Devices, way: str, statistic: str, matrix: Matrix) -> None:
    both = way.startswith("b")
    label = f"{'both ways' if both else 'one way'}, {statistic}"
    for sentence in matrix.damage(f"the table {label!r}"):
        draft.note(sentence)
    samples: list[Sample] = []
    local: list[Reading] = []
    printed: dict[tuple[str, str], float] = {}
    for row in matrix.rows:
        for column, cell in zip(matrix.columns, row.cells, strict=True):
            if not cell or not is_rate(cell * BYTES_PER_GB):
                continue
            a, b = devices.name(row.name), devices.name(column)
            rate, where = cell * BYTES_PER_GB, draft.where(row.line)
            if a == b:
                local.append(
                    Reading(
                        what=f"copy inside {a}",
                        value=rate,
                        unit="B/s",
                        reason="the bytes stay inside one device",
                        where=where,
                    )
                )
            elif not both:
                samples.append(alone(a, b, rate, where=where))
            elif printed.get((b, a)) != cell:
                printed[a, b] = cell
                samples.append(moved(in_order(a, b), rate, where=where))
    draft.add(
        label,
        samples,
        conditions={"direction": "both ways" if both else "one way", "statistic": statistic},
        readings=local,
    )


def _add_sweeps(draft: Draft, devices: _Devices, sweeps: Sequence[_Sweep]) -> None:
    for sweep in sweeps:
        if not sweep.rows or set(sweep.ends) != {"src", "dst"}:
            continue
        a, b = devices.name(sweep.ends["src"]), devices.name(sweep.ends["dst"])
        if a == b:
            continue
        pairs = in_order(a, b) if sweep.both else [(a, b)]
        groups: dict[str, list[Sample]] = {"mean": [], "peak": []}
        for row, line in sweep.rows:
            try:
                size = parse_bytes(f"{row[1]}{_BINARY[row[2].lower()]}")
            except UnitError:
                continue
            slow, mean, quick, peak = (to_number(w) for w in row[3].split())
            for statistic, time, figure in (("mean", slow, mean), ("peak", quick, peak)):
                if not figure or not time or size <= 0:
                    continue
                # Small rates have few digits; of one copy the time says more.
                rate = figure * BYTES_PER_GB if sweep.both else size / (time * 1e-6)
                if is_rate(rate):
                    groups[statistic].append(
                        moved(pairs, rate, where=draft.where(line), size_bytes=size)
                    )
        way = "both ways" if sweep.both else "one way"
        for statistic, samples in groups.items():
            draft.add(
                f"{a}->{b} by size, {statistic}",
                samples,
                conditions={"direction": way, "statistic": statistic},
                default=statistic == "mean",
            )


def _note_access(draft: Draft, devices: _Devices, access: Matrix | None) -> None:
    """GPUs that the tool cannot copy between: unknown, not slow.

    That a processor cannot access a GPU's memory is usual, and hinders no copy.
    """
    if access is None:
        return
    gpus = {number for number, kind in devices.kinds.items() if kind == "gpu"}
    draft.no_peer.extend(
        (devices.name(row.name), devices.name(column))
        for row in access.rows
        for column, cell in zip(access.columns, row.cells, strict=True)
        if cell == 0 and row.name != column and {row.name, column} <= gpus
    )
    if draft.no_peer:
        draft.note(
            f"{len(draft.no_peer)} pairs have no access to each other: the tool cannot measure "
            "them, so their rates are unknown, not zero"
        )


ROCM_BANDWIDTH: Final = Importer(
    name="rocm-bandwidth-test",
    title=TITLE,
    looks_like=looks_like_rocm_bandwidth,
    parse=parse_rocm_bandwidth,
)
"""The importer that the registry lists."""
