"""comm_scope: benchmark JSON of copies and kernel accesses between two devices.

What the figures are (c3sr/comm_scope, on google-benchmark): one record per repetition with
the bytes and the time of one operation, and aggregates of the repetitions.  Repetitions
are the samples; aggregates are used only where there are none.  Which record fields name
the ends depends on the benchmark: ``src_id``/``dst_id`` (or ``src_gpu``, ``dst_numa`` …),
or the owner of the memory and the device that reads or writes it, so that a *write* moves
bytes to the owner and a *read* away from it.  ``…Memcpy…`` runs on copy engines,
``implicit_…`` is a kernel.
"""

from __future__ import annotations

import re
from typing import Any, Final

from topocal.measure.importers.figures import alone, is_rate, number
from topocal.measure.importers.imported import Draft, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.json_text import begins_json, find_json
from topocal.measure.samples import Sample
from topocal.topo.errors import one_line
from topocal.topo.units import format_bytes

__all__ = ["COMM_SCOPE", "looks_like_comm_scope", "parse_comm_scope"]

TITLE: Final = "comm_scope"

_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_END: Final = re.compile(r"(src|dst|own|wr|rd)_(id|gpu|numa|host|cpu)")
_HOST_WORDS: Final = re.compile(r"(Pinned|Pageable|Host|NUMA|Managed)", re.IGNORECASE)
_AGGREGATES: Final = ("median", "mean")
_MOST_RECORDS: Final = 200_000


def looks_like_comm_scope(text: str) -> bool:
    """Whether a text is google-benchmark JSON with names of comm_scope."""
    return begins_json(text) and '"benchmarks"' in text and '"Comm_' in text


def parse_comm_scope(text: str, *, file: str) -> Imported:
    """The records of one file.

    Raises
    ------
    FormatError
        When there is none, or the JSON is damaged.
    InputError
        When a rate is not possible.
    """
    draft = Draft(kind="comm-scope", title=TITLE, file=file)
    documents, cuts = find_json(text, file=file)
    for sentence in cuts:
        draft.note(sentence)
    for document, line in documents:
        records = document.get("benchmarks")
        if isinstance(records, list):
            _add_records(draft, [r for r in records[:_MOST_RECORDS] if isinstance(r, dict)], line)
    return draft.done()


def _add_records(draft: Draft, records: list[dict[str, Any]], line: int) -> None:
    samples: dict[str, list[Sample]] = {}
    local: list[Reading] = []
    repeated = {_text(r, "run_name") for r in records if _text(r, "run_type") == "iteration"}
    for record in records:
        run_name = _text(record, "run_name") or _text(record, "name")
        is_aggregate = _text(record, "run_type") == "aggregate"
        if is_aggregate and (
            run_name in repeated or _text(record, "aggregate_name") not in _AGGREGATES
        ):
            continue
        benchmark = run_name.split("/")[0].removeprefix("Comm_")
        ends = _ends(benchmark, record)
        rate = _rate_Bps(record)
        if ends is None or rate is None or not is_rate(rate):
            draft.note(f"{one_line(run_name)} is left out: it does not say from where to where")
            continue
        size = _size_bytes(record, run_name)
        if ends[0] == ends[1]:
            local.append(
                Reading(
                    what=f"{benchmark} inside {ends[0]}"
                    + (f" at {format_bytes(size)}" if size else ""),
                    value=rate,
                    unit="B/s",
                    reason="the bytes stay inside one device",
                    where=draft.where(line),
                )
            )
            continue
        repeat = number(record.get("repetition_index"))
        samples.setdefault(benchmark, []).append(
            alone(
                *ends,
                rate,
                where=draft.where(line),
                size_bytes=size,
                repeat=int(repeat) if repeat is not None and 0 <= repeat < 1e6 else 0,
            )
        )
    for benchmark, found in samples.items():
        engine = "copy engine" if "memcpy" in benchmark.lower() else "kernel"
        draft.add(benchmark, found, conditions={"engine": engine, "direction": "one way"})
    draft.add("inside one device", readings=local, default=False)


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    return value[:500] if isinstance(value, str) else ""


def _rate_Bps(record: dict[str, Any]) -> float | None:
    """From the bytes and the time of one operation, or as stated."""
    size, time = number(record.get("bytes")), number(record.get("real_time"))
    unit = _SECONDS.get(_text(record, "time_unit"))
    seconds = time * unit if time and unit else 0.0
    if size and size > 0 and seconds > 0:
        return size / seconds
    return number(record.get("bytes_per_second"))


def _size_bytes(record: dict[str, Any], name: str) -> float | None:
    size = number(record.get("bytes"))
    if size is not None and 0 < size <= 1e18:
        return size
    match = re.search(r"log2\(N\):([0-9]{1,2})\b", name)
    return 2.0 ** int(match[1]) if match and int(match[1]) < 60 else None


def _ends(benchmark: str, record: dict[str, Any]) -> tuple[str, str] | None:
    """From where to where bytes go."""
    named: dict[str, str] = {}
    hosts = _HOST_WORDS.findall(benchmark)
    before, _, after = benchmark.partition("To")
    for key, value in record.items():
        match = _END.fullmatch(key)
        index = number(value)
        if match is None or index is None or index != int(index) or not 0 <= index < 10_000:
            continue
        host = match[2] in ("numa", "host", "cpu")
        if match[2] == "id" and hosts:
            host = bool(_HOST_WORDS.search(before if match[1] == "src" else after))
        named[match[1]] = f"{'cpu' if host else 'gpu'}{int(index)}"
    if "src" in named and "dst" in named:
        return named["src"], named["dst"]
    if "own" in named and "wr" in named:
        return named["wr"], named["own"]
    if "own" in named and "rd" in named:
        return named["own"], named["rd"]
    return None


COMM_SCOPE: Final = Importer(
    name="comm-scope",
    title=TITLE,
    looks_like=looks_like_comm_scope,
    parse=parse_comm_scope,
)
"""The importer that the registry lists."""
