"""The topology that TransferBench prints when it starts: GPU pairs, and NICs where it has them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.amd_pairs import AmdGpu, AmdPair, build_amd_topology, whole_number
from topocal.topo.readers.class_matrix import MAX_DEVICES, MatrixDevice
from topocal.topo.readers.paste import MAX_LINES
from topocal.topo.readers.pci import normal_bus_id
from topocal.topo.readers.reader import Reader
from topocal.topo.resource import NodeKind
from topocal.topo.topology import Topology

__all__ = ["TRANSFERBENCH", "looks_like_transferbench", "parse_transferbench"]

_HEADER: Final = re.compile(r"\bGPU 0*0 \|.{0,8000}PCIe Bus ID")
_GPU: Final = re.compile(r"GPU 0*([0-9]{1,4})")
_CELL: Final = re.compile(r"([A-Z]{2,16})(?:-([0-9]{1,3}))?")
_REMEDY: Final = "give the table that TransferBench prints before its measurements"


@dataclass(slots=True)
class _Table:
    """Names of columns, and the cells of each row by them, with the row's line."""

    columns: list[str]
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


def looks_like_transferbench(text: str) -> bool:
    """Whether a text has TransferBench's table of GPUs."""
    return _HEADER.search(text) is not None


def parse_transferbench(text: str, *, file: str) -> Topology:
    """The GPUs and NICs that TransferBench lists.

    Raises
    ------
    FormatError
        When there is no such table, or a cell of it makes no sense.
    """
    tables = _tables(text)
    gpu_table = next((t for t in tables if "PCIe Bus ID" in t.columns and _numbers(t)), None)
    if gpu_table is None or not gpu_table.rows:
        raise FormatError("has no table of GPUs", where=Where(file=file), remedy=_REMEDY)
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: TransferBench")
    gpus, pairs = _read_gpus(gpu_table, builder, file)
    # As with the GPUs, the first: an output may be pasted twice.
    nic_table = next((t for t in tables if "Device Name" in t.columns), None)
    nics = [] if nic_table is None else _read_nics(nic_table)
    return build_amd_topology(builder, gpus, pairs, nics=nics, file=file, tool="TransferBench")


def _tables(text: str) -> list[_Table]:
    """All tables with ``|`` between their cells, by the line of dashes below their header."""
    tables: list[_Table] = []
    before: list[str] = []
    current: _Table | None = None
    for number, line in enumerate(text.split("\n", MAX_LINES)[:MAX_LINES], 1):
        if "|" not in line:
            rule = line.strip()
            if len(rule) > 3 and not rule.strip("-+") and before:
                current = _Table(columns=before)
                tables.append(current)
            else:
                current = None
            before = []
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if current is None:
            before = cells
        else:
            current.rows.append((number, cells))
    return tables


def _numbers(table: _Table) -> list[tuple[int, int]]:
    """``(place, GPU number)`` of the columns that are GPUs."""
    found = [(k, _GPU.fullmatch(name)) for k, name in enumerate(table.columns)]
    return [(k, int(match[1])) for k, match in found if match]


def _read_gpus(
    table: _Table, builder: TopologyBuilder, file: str
) -> tuple[list[AmdGpu], dict[tuple[int, int], AmdPair]]:
    columns = _numbers(table)
    gpus = {number: AmdGpu(number=number) for _, number in columns}
    if len(gpus) > MAX_DEVICES:
        raise FormatError(
            f"lists {len(gpus)} GPUs", where=Where(file=file), remedy="give one machine's table"
        )
    place = {number: k for k, number in enumerate(sorted(gpus))}
    pairs: dict[tuple[int, int], AmdPair] = {}
    for line, cells in table.rows:
        label = _GPU.fullmatch(cells[0])
        if label is None or int(label[1]) not in gpus:
            continue
        number = int(label[1])
        named = dict(zip(table.columns, cells, strict=False))
        _read_details(gpus[number], named)
        if len(cells) < len(table.columns):
            builder.note(f"line {line}: the row of GPU {number} is cut off")
        for k, other in columns:
            word = cells[k] if k < len(cells) else ""
            if other == number or word in ("", "-", "N/A"):
                continue
            found = _CELL.fullmatch(word)
            if found is None:
                raise FormatError(
                    f"cell {one_line(word)!r} of GPU {number} is no link type",
                    where=Where(file=file, line=line),
                    remedy=_REMEDY,
                )
            a, b = sorted((place[number], place[other]))
            pairs.setdefault((a, b), AmdPair(link_type=found[1], hops=whole_number(found[2] or "")))
    return [gpus[number] for number in sorted(gpus)], pairs


def _read_details(gpu: AmdGpu, named: dict[str, str]) -> None:
    gpu.bus_id = normal_bus_id(named.get("PCIe Bus ID", ""))
    gpu.numa = whole_number(named.get("Closest NUMA", named.get("NUMA", "")))
    units = whole_number(named.get("#CUs", ""))
    if units is not None:
        gpu.attributes["compute_units"] = units
    engines = [word for word in named.get("DMA engines", "").split(",") if word.strip().isdecimal()]
    if engines:
        gpu.attributes["dma_engines"] = len(engines)


def _read_nics(table: _Table) -> list[MatrixDevice]:
    nics: list[MatrixDevice] = []
    for _, cells in table.rows[:MAX_DEVICES]:
        named = dict(zip(table.columns, cells, strict=False))
        index = whole_number(cells[0])
        if index is None or any(nic.id == f"nic{index}" for nic in nics):
            continue
        stated: dict[str, Any] = {"index": index}
        if bus_id := normal_bus_id(named.get("PCIe Bus ID", "")):
            stated["bus_id"] = bus_id
        name = named.get("Device Name", "")
        if name:
            stated["net_names"] = [name]
        numa = whole_number(named.get("NUMA", ""))
        nics.append(
            MatrixDevice(
                id=f"nic{index}",
                kind=NodeKind.NIC,
                label=name,
                numa=() if numa is None else (numa,),
                attributes=stated,
            )
        )
    return nics


TRANSFERBENCH: Final = Reader(
    name="transferbench-topology",
    title="the topology that TransferBench prints",
    looks_like=looks_like_transferbench,
    parse=parse_transferbench,
)
"""The reader that the registry lists."""
