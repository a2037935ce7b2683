"""``amd-smi topology``, as JSON of either form, in words and as CSV.

CSV has a row for each GPU and a column for each table and other GPU (``weight_gpu_3``); a row for
each pair is read as well, its columns called as the JSON's keys.

References
----------
AMD SMI changelog, ROCm 6.1.1: the form with ``links`` and the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.amd_pairs import AmdGpu, AmdPair, build_amd_topology, whole_number
from topocal.topo.readers.class_matrix import MAX_DEVICES
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.pci import normal_bus_id
from topocal.topo.readers.reader import Reader
from topocal.topo.topology import Topology

__all__ = ["AMD_SMI", "looks_like_amd_smi", "parse_amd_smi"]

_JSON: Final = re.compile(r'"(?:num_hops|link_accessibility|link_status|link_type)"\s*:')
_TEXT: Final = re.compile(r"^\s{0,8}(?:ACCESS|WEIGHT|HOPS|LINK TYPE|NUMA BW) TABLE:", re.M)
_TITLE: Final = re.compile(r"\s{0,8}([A-Z][A-Z \-]{1,40}) TABLE:\s*")
_SPAN: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_CSV: Final = re.compile(
    r"^\s{0,8}gpu,(?:[\w ]{1,40},){0,8}?"
    r"(?:(?:link_accessibility|weight|hops|link_type|numa_bandwidth)_gpu_[0-9]{1,4}|\w{0,20}(?:num_hops|link_type|link_status))\b",
    re.M,
)
_CSV_COLUMN: Final = re.compile(r"([a-z_]{1,40})_gpu_([0-9]{1,4})")
_OTHER_GPU: Final = ("links_gpu", "link_gpu", "dst_gpu", "gpu2", "gpu_2", "peer_gpu", "to_gpu")
_OLD_KEY: Final = re.compile(r"gpu_([0-9]{1,4})")
_TABLES: Final = {
    "ACCESS": "link_status",
    "WEIGHT": "weight",
    "HOPS": "num_hops",
    "LINK TYPE": "link_type",
    "NUMA BW": "bandwidth",
}
_OLD_TABLES: Final = {
    "link_accessibility": "link_status",
    "weight": "weight",
    "hops": "num_hops",
    "link_type": "link_type",
    "numa_bandwidth": "bandwidth",
}
_REMEDY: Final = "give the output of amd-smi topology --json as it was printed"


def looks_like_amd_smi(text: str) -> bool:
    """Whether a text is of ``amd-smi topology``."""
    return any(pattern.search(text) is not None for pattern in (_JSON, _TEXT, _CSV))


def parse_amd_smi(text: str, *, file: str) -> Topology:
    """The GPUs that ``amd-smi topology`` describes.

    Raises
    ------
    FormatError
        When it describes none, or is damaged.
    """
    gpus: dict[int, AmdGpu] = {}
    pairs: dict[tuple[int, int], AmdPair] = {}
    if _JSON.search(text):
        said = _from_json(text, gpus, file)
    else:
        said = _from_text(text, gpus) if _TEXT.search(text) else _from_csv(text, gpus)
    for a, b, what, value in said:
        if a == b:
            continue
        pair = pairs.setdefault((min(a, b), max(a, b)), AmdPair())
        _set(pair, what, value)
    if not gpus or len(gpus) > MAX_DEVICES:
        raise FormatError(
            f"describes {len(gpus) or 'no'} GPUs", where=Where(file=file), remedy=_REMEDY
        )
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: amd-smi topology")
    place = {number: k for k, number in enumerate(sorted(gpus))}
    placed = {
        (place[a], place[b]): pair for (a, b), pair in pairs.items() if a in place and b in place
    }
    if len(placed) < len(pairs):
        builder.note("links to GPUs that the output does not list are left out")
    listed = [gpus[number] for number in sorted(gpus)]
    return build_amd_topology(builder, listed, placed, file=file, tool="amd-smi")


def _set(pair: AmdPair, what: str, value: object) -> None:
    """One fact; both directions of a pair say the same, or the first counts."""
    word = str(value).strip()
    if what == "link_type":
        if word.upper() not in ("N/A", "SELF", "NOT_APPLICABLE") and pair.link_type is None:
            pair.link_type = word.upper()
    elif what == "link_status":
        on = {"ENABLED": True, "TRUE": True, "DISABLED": False, "FALSE": False}.get(word.upper())
        if on is not None:
            pair.accessible = on and pair.accessible is not False
    elif what == "bandwidth":
        if span := _SPAN.fullmatch(word):
            pair.least_MBps, pair.most_MBps = int(span[1]), int(span[2])
    elif (number := whole_number(value)) is not None:
        if what == "weight":
            pair.weight = number
        elif what == "num_hops":
            pair.hops = number


# JSON


def _from_json(
    text: str, gpus: dict[int, AmdGpu], file: str
) -> Iterator[tuple[int, int, str, object]]:
    begin = min((k for k in map(text.find, "[{") if k >= 0), default=len(text))
    try:
        document = msgspec.json.decode(text[begin:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(
            f"damaged JSON: {one_line(error)}", where=Where(file=file), remedy=_REMEDY
        ) from error
    for entry in _entries(document):
        number = whole_number(entry.get("gpu"))
        if number is None or number < 0:
            raise FormatError("an entry has no GPU number", where=Where(file=file), remedy=_REMEDY)
        bus_id = normal_bus_id(str(entry.get("bdf", "")))
        gpus[number] = AmdGpu(number=number, bus_id=bus_id)
        links = entry.get("links")
        for link in links if isinstance(links, list) else ():
            other = whole_number(link.get("gpu")) if isinstance(link, dict) else None
            for key in set(_TABLES.values()) & set(link) if other is not None else ():
                yield number, other or 0, key, _plain(link[key])
        for key, table in entry.items():
            for name, value in table.items() if isinstance(table, dict) else ():
                old = _OLD_KEY.fullmatch(str(name))
                if old and key in _OLD_TABLES:
                    yield number, int(old[1]), _OLD_TABLES[key], _plain(value)


def _entries(document: object) -> Iterable[dict[str, Any]]:
    """GPU entries: the list itself, or the list that an outer object holds."""
    for value in (document, *(document.values() if isinstance(document, dict) else ())):
        if isinstance(value, list):
            found = [entry for entry in value if isinstance(entry, dict) and "gpu" in entry]
            if found:
                return found
    return ()


def _plain(value: object) -> object:
    """A bare value; newer forms wrap one with its unit."""
    return value.get("value") if isinstance(value, dict) else value


# Words


def _from_text(text: str, gpus: dict[int, AmdGpu]) -> Iterator[tuple[int, int, str, object]]:
    """Tables with PCI addresses as names; a GPU's number is its place."""
    what = ""
    columns: list[str] = []
    number: dict[str, int] = {}
    for line in plain_lines(text):
        if title := _TITLE.fullmatch(line):
            what, columns = _TABLES.get(title[1], ""), []
            continue
        words = line.split()
        names = [normal_bus_id(word) for word in words]
        if not words or names[0] is None:
            continue
        if all(names):
            columns = [name for name in names if name]
            continue
        for name in (names[0], *columns):
            if name not in number and len(number) <= MAX_DEVICES:
                number[name] = len(number)
                gpus[number[name]] = AmdGpu(number=number[name], bus_id=name)
        for column, word in zip(columns, words[1:], strict=False):
            if what and column in number and names[0] in number:
                yield number[names[0]], number[column], what, word


# CSV


def _from_csv(text: str, gpus: dict[int, AmdGpu]) -> Iterator[tuple[int, int, str, object]]:
    """Rows of GPUs, or of pairs."""
    keys = _OLD_TABLES | {key: key for key in _TABLES.values()}
    columns: list[str] = []
    for line in plain_lines(text):
        cells = [cell.strip() for cell in line.split(",")]
        if cells[0] == "gpu":
            columns = cells
            continue
        number = whole_number(cells[0]) if len(cells) == len(columns) > 1 else None
        if number is None or number < 0 or len(gpus) > MAX_DEVICES:
            continue
        row = dict(zip(columns, cells, strict=True))
        address = next((row[key] for key in ("bdf", "gpu_bdf") if key in row), "")
        gpus[number] = AmdGpu(number=number, bus_id=normal_bus_id(address))
        other = next((whole_number(row[key]) for key in _OTHER_GPU if key in row), None)
        for column, cell in row.items():
            of_table = _CSV_COLUMN.fullmatch(column)
            if of_table is not None and of_table[1] in keys:
                yield number, int(of_table[2]), keys[of_table[1]], cell
            elif other is not None and (key := column.removeprefix("links_")) in keys:
                yield number, other, keys[key], cell


AMD_SMI: Final = Reader(
    name="amd-smi",
    title="amd-smi topology, best with --json",
    looks_like=looks_like_amd_smi,
    parse=parse_amd_smi,
)
"""The reader that the registry lists."""
