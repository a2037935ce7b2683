"""caps.json: caps on disk, small, stable, and with a digest of their content.

The digest (:mod:`topocal.topo.digest`) is not optional here: processes with the same digest
hold the same caps.  Who reads a file of ours checks it.

History of the format: 1 (2026-11) first version.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from topocal.measure.provenance import check_provenance
from topocal.solve.caps import Cap, Caps
from topocal.solve.caps_tables import ProcessTable, sender_counts
from topocal.solve.conditions import Conditions
from topocal.solve.fading import Fading
from topocal.solve.rectangles import Block, members_of, ranges_of
from topocal.topo.digest import DIGEST, check_digest, digest_of
from topocal.topo.errors import FormatError, InputError, TopocalError, Where, one_line
from topocal.topo.io import decode_document, read_bytes, write_atomically

__all__ = [
    "FORMAT",
    "VERSION",
    "caps_digest",
    "caps_from_document",
    "caps_to_document",
    "encode_caps",
    "read_caps",
    "require_digest",
    "write_caps",
]

FORMAT: Final = "topocal/caps"
VERSION: Final = 1

_REMEDY: Final = "write it again with topocal caps"
_MOST_PROCESSES: Final = 1 << 14
_MOST_WEIGHT: Final = 1e6
_MOST_LOADS: Final = 10**8
"""Loads of pairs in all, a bound on memory: ten for each pair of three thousand processes."""


def caps_to_document(caps: Caps) -> dict[str, Any]:
    """The caps as JSON values, digest included."""
    document = _content(caps)
    return {"format": FORMAT, "version": VERSION, "digest": digest_of(document), **_body(document)}


def caps_digest(caps: Caps) -> str:
    """Digest of the content: the same for the same caps, on every machine."""
    return digest_of(_content(caps))


def _content(caps: Caps) -> dict[str, Any]:
    calibration = caps.calibration
    table = caps.processes
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine": caps.machine,
        "calibration": {
            "group_size": calibration.group_size,
            "backend": calibration.backend,
            "settings": None if calibration.settings is None else dict(calibration.settings),
            "more": dict(calibration.more),
        },
        "noise": caps.noise,
        "start_up": {"offset_s": caps.offset_s, "least_s": caps.least_s},
        "fading": _fading_entry(caps.fading),
        "undecided": {
            "receiving": ranges_of(caps.undecided[0]),
            "sending": ranges_of(caps.undecided[1]),
        },
        "endpoints": list(caps.endpoints),
        "sets": [ranges_of(members) for members in caps.sets],
        "resources": [_resource(cap) for cap in caps.resources],
        "unreachable": [[a, b] for a, b, _ in caps.unreachable],
        "pairs": {
            "alone_Bps": [list(block) for block in caps.alone],
            "both_ways_Bps": [list(block) for block in caps.both_ways],
        },
        "processes": msgspec.to_builtins(table),
    }


def _fading_entry(fading: Fading | None) -> dict[str, Any]:
    """What many flows lose; nothing where the data does not demand it."""
    if fading is None:
        return {"loss": 0.0, "error": 0.0, "by": "pattern", "most_flows": None}
    return {
        "loss": fading.loss,
        "error": fading.error,
        "by": str(fading.by),
        "most_flows": fading.most_flows,
    }


def _body(document: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k not in ("format", "version", "digest")}


def _resource(cap: Cap) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": cap.id,
        "label": cap.label,
        "sharing": str(cap.sharing),
        "status": str(cap.status),
        "cap_Bps": cap.cap_Bps,
        "interval_Bps": [cap.low_Bps, cap.high_Bps],
        "loads": [[a, b, int(w) if w.is_integer() else w] for a, b, w in cap.loads],
    }
    if cap.kappa is not None:
        found["kappa"] = cap.kappa
        found["kappa_interval"] = [cap.kappa_low, cap.kappa_high]
    return found


def encode_caps(caps: Caps) -> bytes:
    """The file's bytes: one line for each resource, set and process, so that it can be read.

    Raises
    ------
    TopocalError
        When a figure is not finite.
    """
    try:
        document = caps_to_document(caps)
        return _pretty(document).encode("ascii")
    except ValueError as error:
        raise TopocalError(f"caps cannot be written: {one_line(error)}") from error


def _pretty(document: dict[str, Any]) -> str:
    lines = []
    for key, value in document.items():
        many = isinstance(value, list) and value and isinstance(value[0], list | dict)
        if many:
            inner = ",\n".join(f"  {_compact(item)}" for item in value)
            lines.append(f" {_compact(key)}: [\n{inner}\n ]")
        elif isinstance(value, dict) and key in ("pairs", "processes"):
            inner = ",\n".join(f"  {_compact(k)}: {_compact(v)}" for k, v in value.items())
            lines.append(f" {_compact(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {_compact(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def write_caps(caps: Caps, path: str | Path) -> None:
    """Write caps.json atomically.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    write_atomically(path, encode_caps(caps))


def read_caps(path: str | Path, *, digest: str | None = None) -> Caps:
    """Read caps.json and check its digest.

    Parameters
    ----------
    digest
        The digest that it must have: what the other processes hold.

    Raises
    ------
    InputError
        When the file cannot be read, is of another kind or version, is damaged, or has
        another digest.
    """
    file = str(path)
    document = decode_document(read_bytes(path), format=FORMAT, version=VERSION, file=file)
    return caps_from_document(document, file=file, digest=digest)


def caps_from_document(document: dict[str, Any], *, file: str, digest: str | None = None) -> Caps:
    """The caps that :func:`caps_to_document` wrote.

    Raises
    ------
    FormatError
        When the content is not what its digest says, or not caps.
    """
    where = Where(file=file)
    check_digest(document, where=where, remedy=_REMEDY, required=True)
    if digest is not None:
        _require(digest, str(document[DIGEST]), where)
    try:
        return _caps(document)
    except (KeyError, TypeError, ValueError, msgspec.ValidationError, InputError) as error:
        what = error.what if isinstance(error, InputError) else one_line(error)
        raise FormatError(
            f"damaged caps: {type(error).__name__} {what}", where=where, remedy=_REMEDY
        ) from error


def require_digest(caps: Caps, digest: str, *, file: str) -> None:
    """Refuse caps with another digest than the other processes hold.

    Raises
    ------
    FormatError
        When it is another, or none.
    """
    _require(digest, caps_digest(caps), Where(file=file))


def _require(wanted: str, found: str, where: Where) -> None:
    """The digest wanted, or its first 8 digits or more, must be this one."""
    digits = wanted.removeprefix("sha256:").lower()
    if not re.fullmatch(r"[0-9a-f]{8,64}", digits):
        raise FormatError(
            f"{one_line(wanted)[:80]!r} is no digest",
            remedy="give sha256: and its digits, or the first 8 of these or more",
        )
    if not found[7:].startswith(digits):
        raise FormatError(
            f"holds other caps: digest {found[:15]}… where {one_line(wanted)[:15]} is wanted",
            where=where,
            remedy="give every process the same file",
        )


def _caps(document: dict[str, Any]) -> Caps:
    """The caps; everything that a computation relies on is checked.

    Raises
    ------
    KeyError, TypeError, ValueError, msgspec.ValidationError, InputError
        When something is missing or impossible.
    """
    endpoints = msgspec.convert(document["endpoints"], tuple[str, ...])
    n = len(endpoints)
    if not 2 <= n <= _MOST_PROCESSES or len(set(endpoints)) < n:
        raise ValueError(f"it has {n} endpoints, or one twice")
    sets = tuple(
        members_of(ranges, n) for ranges in msgspec.convert(document["sets"], list[list[list[int]]])
    )
    start_up = msgspec.convert(document["start_up"], dict[str, float])
    pairs = document["pairs"]
    undecided = msgspec.convert(document["undecided"], dict[str, list[list[int]]])
    resources = tuple(_cap(entry, len(sets)) for entry in document["resources"])
    if len({cap.id for cap in resources}) < len(resources):
        raise ValueError("a resource stands twice")
    if sum(len(sets[a]) * len(sets[b]) for cap in resources for a, b, _ in cap.loads) > _MOST_LOADS:
        raise ValueError("its resources have more loads than any group of processes")
    return Caps(
        machine=msgspec.convert(document["machine"], str),
        endpoints=endpoints,
        calibration=_conditions(document["calibration"]),
        noise=_number(document["noise"], least=0.0),
        offset_s=_number(start_up["offset_s"]),
        least_s=_number(start_up["least_s"]),
        undecided=(members_of(undecided["receiving"], n), members_of(undecided["sending"], n)),
        sets=sets,
        resources=resources,
        unreachable=_blocks([(a, b, 1.0) for a, b in document["unreachable"]], len(sets)),
        alone=_blocks(pairs["alone_Bps"], len(sets)),
        both_ways=_blocks(pairs["both_ways_Bps"], len(sets)),
        processes=_processes(document["processes"], n),
        fading=_fading(document["fading"]),
    )


def _conditions(value: Any) -> Conditions:
    found = msgspec.convert(value, Conditions)
    check_provenance(found.more)
    return found


def _fading(value: Any) -> Fading | None:
    if _number(value["loss"], 0.0, 1.0) == 0.0:
        return None
    found = msgspec.convert({**value, "advantage": 0.0}, Fading)
    _number(found.error, 0.0, 100.0)
    return found


def _number(value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    found = msgspec.convert(value, float)
    if not (math.isfinite(found) and least <= found <= most):
        raise ValueError(f"{found} is not a possible figure")
    return found


def _optional(value: Any, least: float = 0.0, most: float = math.inf) -> float | None:
    return None if value is None else _number(value, least, most)


def _blocks(value: Iterable[Any], sets: int) -> tuple[Block, ...]:
    found = []
    for senders, receivers, number in msgspec.convert(list(value), list[tuple[int, int, float]]):
        if not (0 <= senders < sets and 0 <= receivers < sets):
            raise ValueError(f"[{senders}, {receivers}] names a set that is not there")
        found.append((senders, receivers, _number(number, 0.0)))
    return tuple(found)


def _cap(entry: Any, sets: int) -> Cap:
    low, high = (_optional(v) for v in msgspec.convert(entry["interval_Bps"], list[Any]))
    kappa_low, kappa_high = (
        _optional(v) for v in msgspec.convert(entry.get("kappa_interval", [None, None]), list[Any])
    )
    found = msgspec.convert(
        {
            **{name: entry[name] for name in ("id", "label", "sharing", "status")},
            "cap_Bps": _optional(entry["cap_Bps"]),
            "low_Bps": low,
            "high_Bps": high,
            "kappa": _optional(entry.get("kappa"), most=1.0),
            "kappa_low": kappa_low,
            "kappa_high": kappa_high,
        },
        Cap,
    )
    loads = _blocks(entry["loads"], sets)
    if any(not 0 < weight <= _MOST_WEIGHT for _, _, weight in loads):
        raise ValueError(f"{found.id} has a weight that is none")
    if (found.sharing == "time-shared") != (found.kappa is not None and found.kappa > 0):
        raise ValueError(f"{found.id} is {found.sharing} and has kappa {found.kappa}")
    return replace(found, loads=loads)


def _processes(value: Any, n: int) -> ProcessTable:
    found = msgspec.convert(value, ProcessTable)
    columns: Sequence[Sequence[Any]] = (
        found.send_Bps,
        found.receive_Bps,
        found.receive_least_Bps,
        found.receive_most_Bps,
        found.enough_senders,
    )
    if found.senders != sender_counts(n) or any(len(c) != n for c in columns):
        raise ValueError(f"its table of processes is not of {n}")
    if any(len(r) != len(found.senders) for c in columns[2:4] for r in c):
        raise ValueError("its table of senders has rows of other lengths")
    return found
