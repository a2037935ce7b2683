"""``rocm-smi --showtopo``, in words and as JSON.

Tables are told apart by what stands in their cells, not by their titles: on a
partitioned GPU the tool prints an error where a table should be and the next
table without its title.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.amd_pairs import AmdGpu, AmdPair, build_amd_topology, whole_number
from topocal.topo.readers.class_matrix import MAX_DEVICES, some
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.reader import Reader
from topocal.topo.topology import Topology

__all__ = ["ROCM_SHOWTOPO", "looks_like_showtopo", "parse_showtopo"]

_MARKS: Final = re.compile(
    r"between two (?:GPU|DCU|HCU)s"
    r"|\(Topology\) (?:Numa Node|Numa Affinity|Weight|Hops|Link type)"
)
_ROW: Final = re.compile(r"\s{0,16}(?:GPU|DCU|HCU)([0-9]{1,4})\s{1,400}(\S.*)")
_HEADER: Final = re.compile(
    r"\s{0,16}(?:GPU|DCU|HCU)[0-9]{1,4}(?:\s{1,400}(?:GPU|DCU|HCU)[0-9]{1,4}){0,511}\s*"
)
"""Hygon's ``hy-smi`` prints the same tables of DCUs or HCUs."""

_NUMA: Final = re.compile(
    r"\s{0,16}(?:GPU|DCU|HCU) ?\[?([0-9]{1,4})\]?\s{0,40}:\s{0,8}\(Topology\) Numa "
    r"(Node|Affinity):?\s{0,8}(-?[0-9]{1,4})\s*"
)
_TITLE: Final = re.compile(
    r"\b(weight|hops|type|accessib\w{1,7}|bandwidth) between two (?:gpu|dcu|hcu)s", re.I
)
_PAIR: Final = re.compile(
    r"\(Topology\) (Weight|Hops|Link type|Link accessibility)\s{1,4}between (?:DRM )?devices? "
    r"([0-9]{1,4}) and ([0-9]{1,4})",
    re.IGNORECASE,
)
_CARD: Final = re.compile(r"card([0-9]{1,4})")
_SPAN: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_ERROR: Final = re.compile(r"\s{0,8}ERROR: (.{1,200})")
_TYPE: Final = re.compile(r"[A-Z][A-Z_]{1,15}")
_FEW_HOPS: Final = 9


def looks_like_showtopo(text: str) -> bool:
    """Whether a text is of ``rocm-smi`` and about topology."""
    return _MARKS.search(text) is not None


@dataclass(slots=True)
class _Said:
    """Everything that an output says."""

    gpus: dict[int, AmdGpu] = field(default_factory=dict)
    pairs: dict[tuple[int, int], AmdPair] = field(default_factory=dict)

    def gpu(self, number: int) -> AmdGpu:
        return self.gpus.setdefault(number, AmdGpu(number=number))

    def set(self, a: int, b: int, what: str, word: str) -> bool:
        """Note one cell; returns whether it makes sense."""
        self.gpu(a)
        self.gpu(b)
        if a == b:
            return True
        pair = self.pairs.setdefault((min(a, b), max(a, b)), AmdPair())
        if what == "type":
            if word != "N/A" and pair.link_type is None:
                pair.link_type = word
        elif what == "accessibility":
            if word.lower() in ("true", "false"):
                # A pair is one of peers when both ways are.
                pair.accessible = word.lower() == "true" and pair.accessible is not False
        elif what == "bandwidth":
            span = _SPAN.fullmatch(word)
            if span:
                pair.least_MBps, pair.most_MBps = int(span[1]), int(span[2])
        elif (number := whole_number(word)) is not None:
            if what == "weight":
                pair.weight = number
            else:
                pair.hops = number
        else:
            return word.upper() in ("N/A", "XXXX")
        return True


def parse_showtopo(text: str, *, file: str) -> Topology:
    """The GPUs that ``rocm-smi --showtopo`` describes.

    Raises
    ------
    FormatError
        When it describes no pair and no GPU.
    """
    builder = TopologyBuilder(Path(file).stem or "machine")
    builder.source(f"{Path(file).name}: rocm-smi --showtopo")
    said = _Said()
    if text.lstrip().startswith("{"):
        _read_json(text, said, file)
    else:
        _read_text(text, said, builder, file)
    if not said.gpus or len(said.gpus) > MAX_DEVICES:
        raise FormatError(
            f"describes {len(said.gpus) or 'no'} GPUs",
            where=Where(file=file),
            remedy="give the output of rocm-smi --showtopo of one machine",
        )
    numbers = sorted(said.gpus)
    place = {number: k for k, number in enumerate(numbers)}
    pairs = {(place[a], place[b]): pair for (a, b), pair in said.pairs.items()}
    gpus = [said.gpus[number] for number in numbers]
    missing = [
        name
        for name, there in (
            ("weights", any(p.weight is not None for p in pairs.values())),
            ("hops", any(p.hops is not None for p in pairs.values())),
            ("link types", any(p.link_type for p in pairs.values())),
            ("NUMA nodes", any(g.numa is not None or g.numa_affinity is not None for g in gpus)),
        )
        if not there
    ]
    if missing and len(gpus) > 1:
        builder.note(f"the output has no table of {', '.join(missing)}")
    return build_amd_topology(builder, gpus, pairs, file=file, tool="rocm-smi")


def _read_text(text: str, said: _Said, builder: TopologyBuilder, file: str) -> None:
    title = ""
    columns: list[int] = []
    rows: list[tuple[int, int, list[str]]] = []
    errors: dict[str, None] = {}

    def finish() -> None:
        nonlocal title
        if rows:
            what = _what(title, [cells for _, _, cells in rows])
            labels = columns or [number for number, _, _ in rows]
            for number, line, cells in rows:
                _read_row(said, what, labels, number, line, cells, file)
            title = ""
        rows.clear()
        columns.clear()

    for number, line in enumerate(plain_lines(text), 1):
        if not line:
            continue
        if _HEADER.fullmatch(line) and (not rows or len(line.split()) > 1):
            finish()
            columns = [int(word[3:]) for word in line.split()]
        elif found := _NUMA.fullmatch(line):
            finish()
            _set_numa(said.gpu(int(found[1])), found[2], found[3])
        elif found := _ROW.fullmatch(line):
            rows.append((int(found[1]), number, found[2].split()))
        else:
            finish()
            if found := _TITLE.search(line):
                title = found[1].lower()
            elif found := _ERROR.match(line):
                errors.setdefault(one_line(found[1]))
    finish()
    if errors:
        builder.note(f"rocm-smi itself reports: {some(errors)}")


def _what(title: str, table: list[list[str]]) -> str:
    """What a table is of, by its cells; by its title where those may be either."""
    words = [word for cells in table for word in cells]
    if any(_TYPE.fullmatch(word) for word in words if word not in ("TRUE", "FALSE")):
        return "type"
    if any(word.lower() in ("true", "false") for word in words):
        return "accessibility"
    if any(_SPAN.fullmatch(word) for word in words):
        return "bandwidth"
    if title in ("weight", "hops"):
        return title
    most = max((number for word in words if (number := whole_number(word)) is not None), default=0)
    return "weight" if most > _FEW_HOPS else "hops"


def _read_row(
    said: _Said, what: str, labels: list[int], number: int, line: int, cells: list[str], file: str
) -> None:
    for other, word in zip(labels, cells, strict=False):
        if not said.set(number, other, what, word):
            raise FormatError(
                f"cell {one_line(word)!r} of row GPU{number} is no number",
                where=Where(file=file, line=line),
                remedy="give the output of rocm-smi --showtopo as it was printed",
            )


def _set_numa(gpu: AmdGpu, what: str, word: str) -> None:
    """-1 means that the system has no NUMA node to name."""
    node = whole_number(word)
    if what.lower() == "node":
        gpu.numa = node
    else:
        gpu.numa_affinity = node


def _read_json(text: str, said: _Said, file: str) -> None:
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(
            f"damaged JSON: {one_line(error)}",
            where=Where(file=file),
            remedy="give the output of rocm-smi --showtopo --json as it was printed",
        ) from error
    for name, entries in document.items() if isinstance(document, dict) else ():
        card = _CARD.fullmatch(str(name))
        for key, value in entries.items() if isinstance(entries, dict) else ():
            if pair := _PAIR.match(str(key)):
                what = pair[1].lower().removeprefix("link ")
                said.set(int(pair[2]), int(pair[3]), what, str(value))
            elif card and (numa := re.search(r"Numa (Node|Affinity)", str(key))):
                _set_numa(said.gpu(int(card[1])), numa[1], str(value))


ROCM_SHOWTOPO: Final = Reader(
    name="rocm-showtopo",
    title="rocm-smi --showtopo, also with --json",
    looks_like=looks_like_showtopo,
    parse=parse_showtopo,
)
"""The reader that the registry lists."""
