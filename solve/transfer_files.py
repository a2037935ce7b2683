"""Transfers as people and programs write them down, read by meaning.

::

    flows     CSV or JSON of topocal simulate: source, destination, size
    segments  DeepSpeed's TransferPlan.to_dict(): shape, source [rank, ...], target [rank, ...];
              one plan or any nesting of them, sizes in elements
    pairs     {"0->4": bytes, ...}, {"0": {"4": bytes}}, or a square matrix, senders in rows
    totals    sent and received bytes by process: two lists, two tables, a list of rows,
              or CSV with the columns process, sent, received

In JSON a whole number is a process number.  In CSV a bare number is a GPU's where
endpoints are called gpu0, gpu1 and so on, as everywhere, and else a process number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from topocal.solve.transfers import SAME, Flows, Gathered, Totals, bytes_of
from topocal.topo.columns import Tell, close_name, is_note, know_columns, plain_name
from topocal.topo.errors import FlowError, FormatError, InputError, Where, one_line
from topocal.topo.flow_files import parse_flows
from topocal.topo.io import read_bytes
from topocal.topo.strict_json import decode_json
from topocal.topo.user_table import table_rows
from topocal.topo.user_text import user_text

__all__ = ["parse_transfers", "read_transfers"]

Floats = NDArray[np.float64]

_SOURCE: Final = ("source_rank", "src_rank", "source", "src", "from", "sender", "holder")
_TARGET: Final = (
    "target_rank", "dst_rank", "dest_rank", "destination_rank",
    "target", "destination", "dst", "dest", "to", "receiver",
)  # fmt: skip
_BYTES: Final = ("bytes", "nbytes", "size_bytes", "num_bytes", "moved_bytes", "size")
_ELEMENTS: Final = ("elements", "numel", "num_elements", "moved_elements")
_ELEMENT_SIZE: Final = ("element_size", "itemsize", "bytes_per_element")
_DTYPE_BYTES: Final = {
    "float64": 8, "double": 8, "int64": 8, "float32": 4, "float": 4, "fp32": 4, "int32": 4,
    "bfloat16": 2, "bf16": 2, "float16": 2, "half": 2, "fp16": 2, "int16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "fp8": 1, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_PROCESS: Final = ("rank", "process", "endpoint", "location")
_BY: Final = r"(?:_bytes)?(?:_(?:by|per)_\w+)?"
_SENT: Final = re.compile(
    r"(?:bytes_|total_)?(?:sent|sends?|egress|outgoing|outbound)" + _BY + r"|(?:out|tx)_bytes|"
    r"bytes_(?:out|tx)"
)
_RECEIVED: Final = re.compile(
    r"(?:bytes_|total_)?(?:received|receives?|recv|ingress|incoming|inbound)" + _BY + r"|"
    r"(?:in|rx)_bytes|bytes_(?:in|rx)"
)
_TOTALS: Final = (*_PROCESS, "sent", "received")
"""Names by which columns of totals are mostly called."""
_PAIR: Final = re.compile(r"\(?\s*([^,>\s]+?)\s*(?:->|→|,)\s*([^,>\s]+?)\s*\)?")
_OF_FLOW: Final = (
    *_SOURCE,
    *_TARGET,
    *_BYTES,
    *_ELEMENTS,
    *_ELEMENT_SIZE,
    "dtype",
    "shape",
    "start",
)
_ALIKE: Final = {
    name: names for names in (_SOURCE, _TARGET, _BYTES, _ELEMENTS, _ELEMENT_SIZE) for name in names
}
_DEEPEST: Final = 50
_REMEDY: Final = (
    "give flows (source, destination, size), a transfer plan, or sent and received bytes by process"
)


def read_transfers(
    path: str | Path,
    endpoints: Sequence[str],
    *,
    element_size: int | None = None,
    tell: Tell | None = None,
) -> list[Flows] | Totals:
    """What a file says is to be moved.

    Parameters
    ----------
    endpoints
        Endpoint of each process.
    element_size
        Bytes of an element, for plans that count elements and do not say it.
    tell
        Is told in sentences what is passed over: columns of notes.

    Returns
    -------
    list of Flows, or Totals
        Several only where a flow file has several patterns.

    Raises
    ------
    InputError
        When the file cannot be read, or says nothing that can be priced.
    """
    return parse_transfers(
        read_bytes(path), endpoints, file=str(path), element_size=element_size, tell=tell
    )


def parse_transfers(
    content: bytes,
    endpoints: Sequence[str],
    *,
    file: str,
    element_size: int | None = None,
    tell: Tell | None = None,
) -> list[Flows] | Totals:
    """As :func:`read_transfers`, from bytes."""
    where = Where(file=file)
    text = user_text(content, file=file, remedy=_REMEDY)
    try:
        if text.lstrip()[:1] in ("{", "["):
            return _from_json(text, endpoints, file, element_size, tell)
        if element_size is not None:
            _refuse_element_size(element_size)
        if _is_totals_table(text, file):
            return _totals_table(text, endpoints, file, tell)
        return _from_flow_file(text, endpoints, file, tell)
    except InputError as error:
        error.where = error.where or where
        raise


def _from_flow_file(
    text: str, endpoints: Sequence[str], file: str, tell: Tell | None
) -> list[Flows]:
    """Flows as topocal simulate reads them.

    Raises
    ------
    InputError
        As :func:`topocal.topo.flow_files.parse_flows`; also where flows start later.
    """
    aliases = {}
    if not any(re.fullmatch(r"gpu\d+", e) for e in endpoints):
        aliases = {f"gpu{k}": name for k, name in enumerate(endpoints)}
    found = []
    for pattern in parse_flows(text, [*endpoints, *aliases], file=file, tell=tell):
        if any(flow.start_s for flow in pattern.flows):
            raise FlowError(
                "has flows that start later, and a price is of what starts together",
                remedy="leave out the starts, or use topocal simulate",
            )
        gathered = Gathered(endpoints, None)
        for flow in pattern.flows:
            ends = (aliases.get(e, e) for e in (flow.source, flow.destination))
            gathered.add("flows", map(endpoints.index, ends), flow.size_bytes)
        (one,) = gathered.flows()
        found.append(
            Flows(moved=one.moved, local_bytes=one.local_bytes, flows=one.flows, name=pattern.name)
        )
    return found


def _is_totals_table(text: str, file: str) -> bool:
    _, cells = next(table_rows(text, file=file), (None, []))
    kinds = {_total_of(plain_name(cell)) for cell in cells}
    return "process" in kinds and not kinds.isdisjoint(("sent", "received"))


def _totals_table(text: str, endpoints: Sequence[str], file: str, tell: Tell | None) -> Totals:
    """Sent and received bytes in CSV.

    Raises
    ------
    InputError
        With the line of what cannot be read.
    """
    gathered = Gathered(endpoints, None)
    header: list[str] = []
    for where, cells in table_rows(text, file=file):
        if not header:
            names = [*map(plain_name, cells), *_TOTALS]
            known = {name: _total_of(name) for name in names if _total_of(name)}
            header = know_columns(cells, known, where=where, tell=tell)
            continue
        try:
            _add_row(gathered, {k: v for k, v in zip(header, cells, strict=True) if k})
        except InputError as error:
            error.where = where
            raise
    found = gathered.totals()
    if found is None:
        raise FormatError("has no rows", remedy=_REMEDY)
    return found


def _total_of(name: str) -> str:
    """What a column of totals is; empty where it is none."""
    if name in _PROCESS:
        return "process"
    return "sent" if _SENT.fullmatch(name) else "received" if _RECEIVED.fullmatch(name) else ""


def _add_row(gathered: Gathered, row: Mapping[str, Any]) -> bool:
    """Sent and received bytes of one process; whether the row said any."""
    key = next((k for k in _PROCESS if k in row), None)
    if key is None:
        return False
    found = False
    for pattern, side in ((_SENT, gathered.sent), (_RECEIVED, gathered.received)):
        for name, value in row.items():
            if pattern.fullmatch(name.lower()) and not isinstance(value, dict | list):
                k = gathered.place(row[key])
                if k in side:
                    raise FlowError(f"process {one_line(row[key])} stands twice", remedy="sum up")
                side[k] = bytes_of(value.strip() if isinstance(value, str) else value)
                found = True
                break
    return found


def _from_json(
    text: str,
    endpoints: Sequence[str],
    file: str,
    element_size: int | None,
    tell: Tell | None,
) -> list[Flows] | Totals:
    """By meaning, from any nesting.

    Raises
    ------
    InputError
        When it is not JSON, or says nothing that can be priced.
    """
    document = decode_json(text, file=file, remedy=_REMEDY)
    gathered = Gathered(endpoints, element_size)
    has_patterns = _has_patterns(document)
    if not has_patterns:
        _walk(gathered, document, {}, 0)
    if element_size is not None and not gathered.counts_elements:
        _refuse_element_size(element_size)
    if has_patterns:
        return _from_flow_file(text, endpoints, file, tell)
    totals = gathered.totals()
    if not gathered.pairs:
        if totals is None:
            raise FormatError("says nothing that can be priced", remedy=_REMEDY)
        return totals
    (found,) = gathered.flows()
    _check_totals(found, totals, len(endpoints))
    return [found]


def _has_patterns(document: Any) -> bool:
    """Whether it is a flow file with patterns or starts of its own."""
    items = document.get("flows") if isinstance(document, dict) else document
    return isinstance(items, list) and any(
        isinstance(i, dict) and ("pattern" in i or "start" in i or "start_s" in i) for i in items
    )


def _walk(gathered: Gathered, value: Any, around: Mapping[str, Any], depth: int) -> None:
    """Gather what an object, and all in it, say; ``around`` is what encloses it."""
    if depth > _DEEPEST:
        raise FormatError("is nested too deep", remedy=_REMEDY)
    if isinstance(value, list):
        _refuse_halves(value)
        for item in value:
            if isinstance(item, dict | list):
                _walk(gathered, item, around, depth + 1)
        return
    if not isinstance(value, dict) or _add_pairs(gathered, value):
        return
    source, target = _first(value, _SOURCE), _first(value, _TARGET)
    if source is not None and target is not None and not isinstance(source, dict):
        _refuse_near_misses(value, _OF_FLOW)
        ends = [e[0] if _is_address(e) else e for e in (source, target)]
        gathered.add("flows", ends, _size(gathered, value, around))
        return
    if _add_row(gathered, value):
        _refuse_near_misses(value, _TOTALS)
        return
    known = {**around, **{k: value[k] for k in (*_ELEMENT_SIZE, "dtype") if k in value}}
    for name, item in value.items():
        for pattern, side in ((_SENT, gathered.sent), (_RECEIVED, gathered.received)):
            if pattern.fullmatch(str(name).lower()) and isinstance(item, dict | list):
                for who, size in item.items() if isinstance(item, dict) else enumerate(item):
                    side[gathered.place(_number(who))] = bytes_of(size)
                break
        else:
            if not _add_matrix(gathered, str(name), item):
                if isinstance(item, dict) and re.fullmatch(r"\d{1,9}", str(name)):
                    item = {"rank": int(name)} | item if not _first(item, _PROCESS) else item
                _walk(gathered, item, known, depth + 1)


def _is_flow(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and _first(item, _TARGET) is not None
        and _first(item, _SOURCE) is not None
    )


def _refuse_halves(items: list[Any]) -> None:
    """Where one item of a list is a flow, all are: none is passed over in silence.

    Raises
    ------
    FormatError
        When one is not.
    """
    whole = list(map(_is_flow, items))
    if any(whole) and not all(whole):
        k = whole.index(False)
        raise FormatError(
            f"item {k} of {len(items)} names no source and target: {one_line(items[k])}",
            remedy="give every flow both, or leave the item out",
        )


def _refuse_near_misses(record: Mapping[str, Any], known: Sequence[str]) -> None:
    """Plans say much that is no matter here; what is nearly a field that matters is a slip.

    Raises
    ------
    FormatError
        When there is one.
    """
    for name in record:
        plain = plain_name(name)
        if plain in known or is_note(name) or _total_of(plain):
            continue
        close = close_name(name, known)
        if close and _first(record, _ALIKE.get(close, (close,))) is None:
            raise FormatError(
                f"unknown field {one_line(name)!r}",
                remedy=f"did you mean {close}? A field called note may say anything",
            )


def _is_address(end: Any) -> bool:
    """Whether it is ``[rank, offset, strides]``, where a segment begins or ends."""
    return isinstance(end, list) and len(end) == 3 and isinstance(end[2], list)


def _number(who: Any) -> Any:
    return int(who) if isinstance(who, str) and re.fullmatch(r"\d{1,9}", who) else who


def _first(record: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((record[k] for k in keys if record.get(k) is not None), None)


def _size(gathered: Gathered, flow: Mapping[str, Any], around: Mapping[str, Any]) -> float:
    """Bytes of a flow or segment.

    Raises
    ------
    InputError
        When it counts elements and nothing says how large they are.
    """
    stated = _first(flow, _BYTES)
    if stated is not None:
        return bytes_of(stated)
    elements, shape = _first(flow, _ELEMENTS), flow.get("shape")
    if elements is None and isinstance(shape, list):
        if not all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in shape):
            raise FormatError(f"{one_line(shape)} is not a shape", remedy="give whole numbers")
        elements = math.prod(shape)
    if elements is None:
        raise FormatError("a flow says no bytes", remedy=_REMEDY)
    return bytes_of(elements) * _element_size(gathered, flow, around)


def _refuse_element_size(element_size: int) -> NoReturn:
    """What counts bytes has no elements: somebody means another file.

    Raises
    ------
    InputError
        Always.
    """
    raise InputError(
        f"counts no elements, and they are said to have {element_size} bytes",
        remedy="leave out the element size",
    )


def _element_size(gathered: Gathered, flow: Mapping[str, Any], around: Mapping[str, Any]) -> int:
    """Bytes of an element, by what the file or the caller says.

    Raises
    ------
    FormatError
        When neither does, or both do and differ.
    """
    gathered.counts_elements = True
    stated = _stated_element_size(flow) or _stated_element_size(around)
    found = stated or gathered.element_size
    if found is None:
        raise FormatError(
            "counts elements and does not say how large they are",
            remedy="say it: --element-size 2 for bfloat16",
        )
    if gathered.element_size is not None and gathered.element_size != found:
        raise FormatError(
            f"says that an element has {found} bytes, and you say {gathered.element_size}",
            remedy="leave out the element size",
        )
    return found


def _stated_element_size(record: Mapping[str, Any]) -> int | None:
    stated = _first(record, _ELEMENT_SIZE)
    if isinstance(stated, int) and not isinstance(stated, bool) and 0 < stated <= 64:
        return stated
    return _DTYPE_BYTES.get(str(record.get("dtype", "")).rpartition(".")[2].lower())


def _add_pairs(gathered: Gathered, item: Any) -> bool:
    """A table such as ``{"0->4": 1024}``, ``{"(0, 4)": 1024}`` or ``{"0": {"4": 1024}}``."""
    if not isinstance(item, dict) or not item:
        return False
    named = [(_PAIR.fullmatch(str(name)), size) for name, size in item.items()]
    if all(match is not None for match, _ in named):
        for match, size in named:
            if match is not None:
                gathered.add("pairs", map(_number, match.groups()), bytes_of(size))
        return True
    if not all(
        _is_number(name) and isinstance(row, dict) and row and all(map(_is_number, row))
        for name, row in item.items()
    ):
        return False
    for source, row in item.items():
        for destination, size in row.items():
            gathered.add("pairs", (int(source), int(destination)), bytes_of(size))
    return True


def _is_number(name: Any) -> bool:
    return re.fullmatch(r"\d{1,9}", str(name)) is not None


def _add_matrix(gathered: Gathered, name: str, item: Any) -> bool:
    """A square of bytes, senders in rows, under a name that says so."""
    n = len(gathered.endpoints)
    if "matrix" not in name.lower() or not isinstance(item, list):
        return False
    if len(item) != n or any(not isinstance(row, list) or len(row) != n for row in item):
        raise FlowError(f"its {one_line(name)} is not {n} × {n}", remedy="give a row per process")
    for a, row in enumerate(item):
        for b, size in enumerate(row):
            gathered.add("matrix", (a, b), bytes_of(size))
    return True


def _check_totals(found: Flows, totals: Totals | None, n: int) -> None:
    """What flows add up to must be the totals beside them, with local copies or without.

    Raises
    ------
    FlowError
        When it is not.
    """
    if totals is None:
        return
    square = found.moved.reshape(n, n)
    for words, stated, own in _sides(totals, square):
        if stated is None:
            continue
        off = np.abs(stated - own) > SAME * np.maximum(stated, own) + 0.5
        # Totals may count what stays, which pairs keep apart; then they are larger.
        if off.any() and not (found.local_bytes > 0 and np.all(stated >= own - 0.5)):
            k = int(np.argmax(off))
            raise FlowError(
                f"process {k} {words} {own[k]:.0f} bytes by its flows "
                f"and {stated[k]:.0f} by its totals",
                remedy="keep what is right",
            )


def _sides(totals: Totals, square: Floats) -> Iterator[tuple[str, Floats | None, Floats]]:
    yield "sends", totals.sent, square.sum(axis=1)
    yield "receives", totals.received, square.sum(axis=0)
