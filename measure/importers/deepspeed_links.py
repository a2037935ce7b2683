"""Raw samples of DeepSpeed's ``calibrate_links``, schema 2.

The layout of these files is not described in public, so it is read by meaning.  A record is
an object that says

* its pattern: ``peer``, ``both_ways``, ``relay``, ``fan_in`` or ``fan_out``, in a field
  (``pattern``, ``kind`` …) or as the name of the list that it stands in;
* its ends: ``src`` and ``dst``; ``root`` and ``peers``; or, of a relay, the ranks in order of
  the ring, or the shift among all ``world_size`` ranks;
* the bytes of one message (``bytes``, ``nbytes``, ``size`` …);
* seconds (``seconds``, ``root_seconds``, ``time_us`` …): a number, a list of repeats, or
  the seconds of each rank, of which the longest counts.

Ranks are GPUs of one machine, or ``node0/gpu0`` where ``local_world_size`` says how many a
node has.  Records that say less are left out and counted.  Schema 1 is refused: what its
figures are is not said in the file, and a guess would be silently wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from topocal.measure.importers.figures import is_rate, moved, number
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.json_text import begins_json, find_json
from topocal.measure.samples import Sample
from topocal.topo.errors import one_line

__all__ = ["DEEPSPEED_LINKS", "looks_like_deepspeed_links", "parse_deepspeed_links"]

TITLE: Final = "DeepSpeed calibrate_links"
SCHEMA: Final = 2

_PATTERNS: Final = {
    "peer": "peer", "p2p": "peer", "pair": "peer", "peers": "peer",
    "both_ways": "both_ways", "bidirectional": "both_ways", "duplex": "both_ways",
    "relay": "relay", "ring": "relay", "shift": "relay",
    "fan_in": "fan_in", "fanin": "fan_in", "fan_out": "fan_out", "fanout": "fan_out",
    "local": "local", "local_copy": "local", "copy": "local",
}  # fmt: skip
_KIND_KEYS: Final = ("pattern", "kind", "case", "type", "op", "scenario", "name")
_SOURCE: Final = ("src", "source", "src_rank", "source_rank", "sender", "from")
_DESTINATION: Final = ("dst", "destination", "dst_rank", "dest_rank", "receiver", "to")
_BYTES: Final = (
    "bytes",
    "nbytes",
    "num_bytes",
    "size_bytes",
    "message_bytes",
    "size",
    "bytes_per_flow",
)
_SECONDS: Final = re.compile(
    r"(root_)?(?:rank_|per_rank_|finish_|elapsed_)?"
    r"(?:seconds|secs|times?|elapsed|durations?|samples)(?:_(s|ms|us|ns))?"
)
_UNIT: Final = {None: 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SCHEMA_KEYS: Final = ("schema", "schema_version", "raw_schema", "version")
_MOST_RECORDS: Final = 200_000
_MOST_RANKS: Final = 4_096
_DEEPEST: Final = 20
_REMEDY: Final = "give the raw file of a calibrate_links run of schema 2"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Endpoint of each rank."""

    world: int
    local: int

    def of(self, rank: Any) -> str | None:
        value = number(rank)
        if value is None or value != int(value) or not 0 <= value < (self.world or _MOST_RANKS):
            return None
        r = int(value)
        return f"gpu{r}" if not self.local else f"node{r // self.local}/gpu{r % self.local}"


def looks_like_deepspeed_links(text: str) -> bool:
    """Whether a text is JSON that names the tool, or has its patterns beside a schema."""
    if not begins_json(text) or '"topocal/' in text[:10_000]:
        return False
    if "calibrate_links" in text[:100_000]:
        return True
    return '"schema' in text[:100_000] and any(
        word in text for word in ('"root_seconds"', '"fan_in"', '"both_ways"', '"relay"')
    )


def parse_deepspeed_links(text: str, *, file: str) -> Imported:
    """The records of one file.

    Raises
    ------
    FormatError
        When it is of another schema, or no record says what it measured.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="deepspeed-links", title=TITLE, file=file)
    documents, cuts = find_json(text, file=file)
    for sentence in cuts:
        draft.note(sentence)
    for document, line in documents:
        _check_schema(draft, document, line)
        _add_document(draft, document, line)
    return draft.done()


def _check_schema(draft: Draft, document: Mapping[str, Any], line: int) -> None:
    stated = next((document[k] for k in _SCHEMA_KEYS if k in document), None)
    schema = number(stated)
    if schema == SCHEMA:
        return
    if schema is None:
        raise draft.fail("names no schema", line=line, remedy=_REMEDY)
    if schema < SCHEMA:
        raise draft.fail(
            f"is of schema {one_line(stated)}, which does not say for each figure which flows ran "
            "and what was timed, so that it cannot be read without guessing",
            line=line,
            remedy="measure again with a release that writes schema 2",
        )
    raise draft.fail(
        f"is of schema {one_line(stated)}, newer than {SCHEMA}",
        line=line,
        remedy="use a newer release of topocal",
    )


def _add_document(draft: Draft, document: dict[str, Any], line: int) -> None:
    world, local = (
        number(_first(document, keys) or _first(_sub(document), keys))
        for keys in (("world_size", "nranks"), ("local_world_size", "ranks_per_node"))
    )
    sizes = [int(n) if n and 0 < n <= _MOST_RANKS else 0 for n in (world, local)]
    names = _Names(world=sizes[0], local=sizes[1] if 0 < sizes[1] < sizes[0] else 0)
    groups: dict[str, list[Sample]] = {}
    left_out = 0
    for count, (kind, record) in enumerate(_records(document, "", 0)):
        if count >= _MOST_RECORDS:
            raise draft.fail("has too many records", line=line, remedy="give one run")
        found = _samples(draft, kind, record, names, line)
        if found:
            groups.setdefault(kind, []).extend(found)
        elif kind != "local":
            left_out += 1
    if left_out:
        draft.note(
            f"{left_out} records do not say all of pattern, ends, bytes and seconds: left out"
        )
    backend = _first(document, ("backend",)) or _first(_sub(document), ("backend",))
    _add_conditions(draft, names, backend)
    for kind, samples in groups.items():
        conditions = {"pattern": kind}
        if isinstance(backend, str):
            conditions["backend"] = backend[:40]
        draft.add(kind.replace("_", " "), samples, conditions=conditions)


def _add_conditions(draft: Draft, names: _Names, backend: Any) -> None:
    """Group and backend, unless two documents of a text say different ones."""
    found: dict[str, Any] = {}
    if names.world > 1:
        found["ranks"] = [names.of(rank) for rank in range(names.world)]
    if isinstance(backend, str) and backend.strip():
        found["backend"] = backend.strip()[:40]
    if not draft.groups:
        draft.provenance = found
    else:
        draft.provenance = {k: v for k, v in draft.provenance.items() if found.get(k) == v}


def _sub(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where a document keeps what is said once."""
    for key in ("meta", "metadata", "config", "environment", "group"):
        if isinstance(document.get(key), dict):
            found: Mapping[str, Any] = document[key]
            return found
    return {}


def _first(record: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((record[k] for k in keys if record.get(k) is not None), None)


def _kind(word: Any) -> str:
    return _PATTERNS.get(word.lower().replace("-", "_"), "") if isinstance(word, str) else ""


def _records(value: Any, kind: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object that has seconds, with the pattern it is of."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _records(item, kind, depth + 1)
    elif isinstance(value, dict):
        own = next((k for key in _KIND_KEYS if (k := _kind(value.get(key)))), kind)
        if own and any(_SECONDS.fullmatch(k) and not _holds_records(v) for k, v in value.items()):
            yield own, value
            return
        for key, item in value.items():
            if isinstance(item, list | dict):
                yield from _records(item, _kind(key) or own, depth + 1)


def _holds_records(value: Any) -> bool:
    """Whether a field such as ``samples`` is a list of records and not of seconds."""
    return isinstance(value, list) and any(isinstance(v, dict) for v in value)


def _samples(
    draft: Draft, kind: str, record: Mapping[str, Any], names: _Names, line: int
) -> list[Sample]:
    pairs = _pairs(kind, record, names)
    size = number(_first(record, _BYTES))
    if not pairs or size is None or not 0 < size < 1e15:
        return []
    warm_up = record.get("warmup") is True or record.get("is_warmup") is True
    found = []
    for repeat, seconds in enumerate(_repeats(record)):
        if not 0 < seconds < 1e6 or not is_rate(len(pairs) * size / seconds):
            continue
        sample = moved(
            pairs,
            len(pairs) * size / seconds,
            where=draft.where(line),
            size_bytes=size,
            repeat=repeat,
        )
        found.append(msgspec.structs.replace(sample, set_aside="a warm-up") if warm_up else sample)
    return found


def _pairs(kind: str, record: Mapping[str, Any], names: _Names) -> list[tuple[str, str]]:
    """Flows of a record; none when it does not say them."""
    if kind in ("peer", "both_ways"):
        ends = [_first(record, _SOURCE), _first(record, _DESTINATION)]
        both = _first(record, ("ranks", "pair", "peers"))
        if None in ends and isinstance(both, list) and len(both) == 2:
            ends = both
        a, b = (names.of(e) for e in ends)
        if a is None or b is None or a == b:
            return []
        return [(a, b)] if kind == "peer" else [(a, b), (b, a)]
    if kind in ("fan_in", "fan_out"):
        root = names.of(_first(record, ("root", "root_rank")))
        given = _first(record, ("peers", "peer_ranks", "ranks", "senders", "receivers"))
        peers = [names.of(p) for p in given] if isinstance(given, list) else []
        members = [p for p in peers if p is not None and p != root]
        if root is None or not members or len(set(members)) < len(members) or None in peers:
            return []
        return [(p, root) if kind == "fan_in" else (root, p) for p in members]
    if kind == "relay":
        given = _first(record, ("ring", "ranks", "order"))
        shift = number(record.get("shift", 1))
        ring = (
            [names.of(r) for r in given]
            if isinstance(given, list)
            else [names.of(r) for r in range(names.world)]
        )
        members = [r for r in ring if r is not None]
        n = len(members)
        if n < 2 or len(set(members)) < n or None in ring or shift is None or int(shift) % n == 0:
            return []
        return [(members[k], members[(k + int(shift)) % n]) for k in range(n)]
    return []


def _repeats(record: Mapping[str, Any]) -> list[float]:
    """Seconds of each repeat: the root's where they are said, else the longest of all ranks."""
    fields = [(m, v) for k, v in record.items() if (m := _SECONDS.fullmatch(k)) is not None]
    fields.sort(key=lambda item: item[0][1] is None)
    if not fields:
        return []
    match, value = fields[0]
    unit = _UNIT[match[2]]
    return [s * unit for s in _longest(value, of_ranks="rank" in match[0])]


def _longest(value: Any, *, of_ranks: bool) -> list[float]:
    one = number(value)
    if one is not None:
        return [one]
    if isinstance(value, dict):
        columns = [_longest(v, of_ranks=False) for v in value.values()]
    elif isinstance(value, list) and any(isinstance(v, list) for v in value):
        rows = [_longest(v, of_ranks=False) for v in value]
        return [max(r) for r in rows if r]
    elif isinstance(value, list):
        numbers = [n for v in value if (n := number(v)) is not None]
        return [max(numbers)] if of_ranks and numbers else numbers
    else:
        return []
    count = min((len(c) for c in columns), default=0)
    return [max(c[k] for c in columns) for k in range(count)]


DEEPSPEED_LINKS: Final = Importer(
    name="deepspeed-links",
    title=TITLE,
    looks_like=looks_like_deepspeed_links,
    parse=parse_deepspeed_links,
)
"""The importer that the registry lists."""
