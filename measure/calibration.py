"""calibration.json: every raw timing, and where it comes from.

Nothing is averaged or thrown away: warm-ups and failed timings are kept too, marked
as set aside.  Patterns and sizes stand once, in tables; timings stand in columns that
point into them, so that a hundred thousand of them take a few megabytes::

    {"format": "topocal/calibration", "version": 1, "digest": "sha256:…",
     "runs": [{
       "provenance": {"backend": "nccl", …},
       "endpoints":  ["gpu0", "gpu1", "gpu2"],
       "patterns":   [{"kind": "fan-in", "flows": [[1, 0], [2, 0]]}],
       "scenarios":  [{"pattern": 0, "size_bytes": 4096.0}],
       "samples":    {"scenario": [0, 0], "seconds": [1.2e-05, 1.1e-05],
                      "repeat": [0, 1], "round": 3, "issue": "group",
                      "flow_finish_s": [[1.1e-05, 1.2e-05], [1.0e-05, 1.1e-05]]}}]}

A size or start is one number where all flows have the same, else a list in the order
of the flows; a column is one value where all samples have the same.  The digest is
that of the text of ``runs``; without one, nothing is compared.

History of the schema: 1 (2026-11) first version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from topocal.measure.calibration_decoder import REMEDY, RunDecoder
from topocal.measure.calibration_schema import (
    FORMAT,
    VERSION,
    Columns,
    PatternEntry,
    RunEntry,
    ScenarioEntry,
    is_endpoint_name,
)
from topocal.measure.patterns import kind_of, notation
from topocal.measure.provenance import check_provenance
from topocal.measure.samples import Measurements, Run, Sample
from topocal.topo.digest import digest_of_bytes
from topocal.topo.errors import FormatError, InputError, Where, one_line
from topocal.topo.flow import Flow, Pattern
from topocal.topo.io import read_bytes, write_atomically
from topocal.topo.naming import natural_key
from topocal.topo.strict_json import refuse_repeated_fields

__all__ = [
    "decode_calibration",
    "encode_calibration",
    "read_calibration",
    "write_calibration",
]

Value = TypeVar("Value")


class _Head(msgspec.Struct, frozen=True):
    format: Any = None
    version: Any = None


class _File(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    format: str
    version: int
    digest: str | None = None
    runs: msgspec.Raw


def read_calibration(path: str | Path) -> Measurements:
    """Read calibration.json.

    Raises
    ------
    InputError
        When the file cannot be read.
    FormatError
        When it is of another kind, newer than this release, or damaged.
    """
    return decode_calibration(read_bytes(path), file=str(path))


def write_calibration(measurements: Measurements, path: str | Path) -> None:
    """Write calibration.json atomically.

    Raises
    ------
    InputError
        When it cannot be written, or a provenance is not valid.
    """
    write_atomically(path, encode_calibration(measurements))


def decode_calibration(content: bytes, *, file: str) -> Measurements:
    """The measurements in the bytes of a calibration.json.

    Raises
    ------
    FormatError
        When it is of another kind, newer than this release, damaged, or names a field twice.
    """
    where = Where(file=file)
    entries = _entries(content, where)
    samples: list[Sample] = []
    runs: list[Run] = []
    for number, entry in enumerate(entries):
        try:
            check_provenance(entry.provenance)
        except InputError as error:
            raise FormatError(error.what, where=where, remedy=error.remedy) from error
        samples += RunDecoder(entry, number, where).samples()
        runs.append(Run(provenance=entry.provenance, source=file))
    return Measurements.of(samples, [file], runs)


def _entries(content: bytes, where: Where) -> list[RunEntry]:
    """The runs of a file whose kind, version and digest are right."""
    try:
        head = msgspec.json.decode(content, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(
            f"not a JSON object: {one_line(error)}", where=where, remedy=f"give a {FORMAT} file"
        ) from error
    if head.format != FORMAT:
        found = one_line(head.format) if head.format else "something else"
        raise FormatError(
            f"is not a {FORMAT} file but {found}",
            where=where,
            remedy=f"give a file that topocal wrote as {FORMAT}",
        )
    found_version = head.version
    if type(found_version) is not int or not 1 <= found_version <= VERSION:
        raise FormatError(
            f"has version {one_line(found_version)} of {FORMAT}; "
            f"this release reads up to {VERSION}",
            where=where,
            remedy="update topocal, or write the file again with this release",
        )
    try:
        whole = msgspec.json.decode(content, type=_File)
        if whole.digest is not None and whole.digest != digest_of_bytes(bytes(whole.runs)):
            raise FormatError(
                "damaged calibration: its content does not match its digest",
                where=where,
                remedy=f'{REMEDY}; if you changed it on purpose, remove "digest"',
            )
        # Runs that are what their digest says are as they were written, and may be large.
        runs = bytes(whole.runs)
        as_written = whole.digest is not None and runs.startswith(b"[")
        rest = content.replace(runs, b"[]") if as_written else content
        refuse_repeated_fields(rest, file=where.file)
        return msgspec.json.decode(whole.runs, type=list[RunEntry])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(
            f"damaged calibration: {one_line(error)}", where=where, remedy=REMEDY
        ) from error


def _bare_pattern(pairs: Iterable[tuple[str, str]]) -> Pattern:
    return Pattern(flows=tuple(Flow(source=s, destination=d, size_bytes=0.0) for s, d in pairs))


def encode_calibration(measurements: Measurements) -> bytes:
    """The bytes of calibration.json, runs and samples in canonical order.

    Raises
    ------
    InputError
        When a provenance is not valid, or a sample belongs to a run that is not listed.
    """
    by_run: dict[int | None, list[Sample]] = {k: [] for k in range(len(measurements.runs))}
    for sample in (*measurements.samples, *measurements.set_aside):
        _check_sample(sample, len(measurements.runs))
        by_run.setdefault(sample.run, []).append(sample)
    entries = []
    for number, samples in by_run.items():
        provenance = {} if number is None else dict(measurements.runs[number].provenance)
        check_provenance(provenance)
        entries.append(_encode_run(samples, provenance))
    runs = b"[\n" + b",\n".join(msgspec.json.encode(e) for e in entries) + b"\n]"
    whole = _File(
        format=FORMAT, version=VERSION, digest=digest_of_bytes(runs), runs=msgspec.Raw(runs)
    )
    return msgspec.json.encode(whole) + b"\n"


def _check_sample(sample: Sample, runs: int) -> None:
    """Refuse what would not come back from the file."""
    if sample.run is not None and not 0 <= sample.run < runs:
        raise InputError(
            f"a sample of {one_line(sample.name)} belongs to run {sample.run}, which is not listed",
            remedy="give the runs to Measurements.of",
            about=sample,
        )
    times = sample.flow_finish_s, sample.endpoint_start_s, sample.endpoint_end_s
    if not (
        math.isfinite(sample.seconds)
        and all(t is None or all(map(math.isfinite, t)) for t in times)
    ):
        raise InputError(
            f"a sample of {one_line(sample.name)} has a time that is not finite",
            remedy="set it aside with 0 seconds and the reason",
            about=sample,
        )


def _encode_run(samples: Sequence[Sample], provenance: dict[str, Any]) -> RunEntry:
    used = {id(s.pattern): s.pattern for s in samples}.values()
    names = sorted({name for p in used for pair in p.pairs for name in pair}, key=natural_key)
    for name in names:
        if not is_endpoint_name(name):
            raise InputError(
                f"an endpoint is called {one_line(name)!r}",
                remedy="give it a printable name without blanks around it",
                about=name,
            )
    endpoints = {name: k for k, name in enumerate(names)}
    patterns: dict[tuple[tuple[tuple[int, int], ...], str], int] = {}
    scenarios: dict[tuple[int, tuple[float, ...], tuple[float, ...]], int] = {}
    seen: dict[int, int] = {}
    for sample in samples:
        if id(sample.pattern) in seen:
            continue
        flows = sample.pattern.flows
        pairs = tuple((endpoints[f.source], endpoints[f.destination]) for f in flows)
        pattern = patterns.setdefault((pairs, sample.pattern.name), len(patterns))
        key = (pattern, tuple(f.size_bytes for f in flows), tuple(f.start_s for f in flows))
        seen[id(sample.pattern)] = scenarios.setdefault(key, len(scenarios))
    table = []
    for pairs, name in patterns:
        named = [(names[s], names[d]) for s, d in pairs]
        kind = str(kind_of(_bare_pattern(named))) if named else None
        own = None if named and name == notation(named) else name
        table.append(PatternEntry(flows=list(pairs), kind=kind, name=own))
    return RunEntry(
        provenance=provenance,
        endpoints=names,
        patterns=table,
        scenarios=[
            ScenarioEntry(
                pattern=p, size_bytes=_one_or_all(sizes), start_s=_one_or_all(starts) or None
            )
            for p, sizes, starts in scenarios
        ],
        samples=Columns(
            scenario=[seen[id(s.pattern)] for s in samples],
            seconds=[s.seconds for s in samples],
            size_known=_constant_or_all(samples, lambda s: s.size_known, True),
            repeat=_constant_or_all(samples, lambda s: s.repeat, 0),
            round=_constant_or_all(samples, lambda s: s.round, None),
            issue=_constant_or_all(samples, lambda s: s.issue, None),
            iterations=_constant_or_all(samples, lambda s: s.iterations, 1),
            flow_finish_s=_times(samples, lambda s: s.flow_finish_s),
            endpoint_start_s=_times(samples, lambda s: s.endpoint_start_s),
            endpoint_end_s=_times(samples, lambda s: s.endpoint_end_s),
            set_aside=_constant_or_all(samples, lambda s: s.set_aside, None),
        ),
    )


def _one_or_all(values: tuple[float, ...]) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else list(values)


def _constant_or_all(
    samples: Sequence[Sample], get: Callable[[Sample], Value], default: Value
) -> Value | list[Value]:
    values = [get(s) for s in samples]
    if not values:
        return default
    return values[0] if all(v == values[0] for v in values) else values


def _times(
    samples: Sequence[Sample], get: Callable[[Sample], tuple[float, ...] | None]
) -> list[list[float] | None] | None:
    values = [get(s) for s in samples]
    if all(v is None for v in values):
        return None
    return [None if v is None else list(v) for v in values]
