"""SuperBench's gpu-copy: lines of a name and a rate.

What the figures are (micro_benchmarks/gpu_copy_performance/gpu_copy.cu in
microsoft/superbenchmark): ``a_to_b`` one way; ``a_and_b`` both ways at once, the bytes of
both over the time until both are done; ``gpuN_to_gpu_all`` and ``gpu_all_to_gpuN`` the
bytes that leave or reach GPU N over the time of the slowest; ``gpu_all_to_gpu_all`` the
bytes that each GPU sends to others over the time of the slowest, so per GPU.  ``dma`` is
the copy engine, ``sm`` a kernel; ``under_numaN`` says where the process and its host
memory were: ``cpuN``.  Names may have a prefix and a rank (``gpu_copy_bw/…:0``), and ``uni``
or ``bi`` (both ways) before ``bw``.  The tool's summary (``results-summary.jsonl``) has an
object per node, all in one line: each node is a run.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from topocal.measure.importers.figures import alone, in_order, is_rate, moved, to_number
from topocal.measure.importers.imported import Draft, Group, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.samples import Sample
from topocal.topo.errors import Where
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import BYTES_PER_GB

__all__ = ["SUPERBENCH_COPY", "looks_like_superbench_copy", "parse_superbench_copy"]

TITLE: Final = "SuperBench gpu-copy"

_NAME: Final = (
    r"(cpu|gpu_all|gpu[0-9]{1,4})_(to|and)_(cpu|gpu_all|gpu[0-9]{1,4})(?:_(read|write))?"
    r"_by_(sm|dma)(?:_under_numa([0-9]{1,4}))?"
)
_LINE: Final = re.compile(
    r"[^\sA-Za-z]{0,40}(?:[\w.\-:]{1,80}/)?"
    + _NAME
    + r"(?:_(uni|bi))?(?:_bw)?(?::[0-9]{1,4})?[\"']?[\s:=,]{1,20}([0-9.eE+]{1,20}),?\}?\s*"
)
_SNIFF: Final = re.compile(
    _NAME + r"(?:_(?:uni|bi))?(?:_bw)?(?::[0-9]{1,4})?[\"']?[\s:=,]{1,20}[0-9]"
)
_MEMBER: Final = re.compile(r",\s{0,4}(?=\")")
_NODE: Final = re.compile(r"\"node\":\s{0,4}\"([\w.\-]{1,80})\"")
_ENGINES: Final = {"dma": "copy engine", "sm": "kernel"}
_MOST_GPUS: Final = 64
_FAN_BELOW: Final = 0.9


def looks_like_superbench_copy(text: str) -> bool:
    """Whether a text has a line of the benchmark."""
    return _SNIFF.search(text) is not None


def parse_superbench_copy(text: str, *, file: str) -> Imported:
    """The lines of one log, by what they measure.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="superbench-copy", title=TITLE, file=file)
    rows: list[tuple[re.Match[str], int]] = []
    runs: dict[int, int] = {}
    nodes: list[str] = []
    for k, words in enumerate(plain_lines(text), start=1):
        members = _MEMBER.split(words) if words.lstrip().startswith("{") else [words]
        found = [match for part in members if (match := _LINE.fullmatch(part)) is not None]
        rows += [(match, k) for match in found]
        if found and (node := _NODE.search(words)) is not None:
            nodes.append(node[1])
            runs[k] = len(nodes)
    if len(nodes) > 1:
        listed = ", ".join(f"run {n} is of {node}" for n, node in enumerate(nodes[:8], 1))
        draft.note(listed + (", …" if len(nodes) > 8 else ""))
    named = {e for m, _ in rows for e in (m[1], m[3]) if e[:3] == "gpu" and e != "gpu_all"}
    gpus = sorted({_number(e) for e in named}, key=lambda name: int(name[3:]))
    collected: dict[tuple[str, ...], list[Sample]] = {}
    local: list[Reading] = []
    for match, line in rows:
        figure = to_number(match[8])
        where = draft.where(line)
        if not figure:
            continue
        if not is_rate(figure * BYTES_PER_GB):
            raise draft.fail(f"{figure:g} is no rate", line=line, remedy="check the figure")
        key = (*_key(match), str(runs.get(line, 1)))
        sample = _sample(match, gpus, figure * BYTES_PER_GB, where)
        if sample is None:
            local.append(
                Reading(
                    what=match[0].split()[0],
                    value=figure * BYTES_PER_GB,
                    unit="B/s",
                    reason="the bytes stay inside one GPU, or no other GPU is named",
                    where=where,
                )
            )
        else:
            collected.setdefault(key, []).append(sample)
    for key, samples in collected.items():
        what, way, operation, engine, numa, run = key
        conditions = {"run": run, "engine": engine, "direction": way}
        if operation:
            conditions["operation"] = operation
        if numa:
            conditions["numa"] = numa
        label = ", ".join(k for k in (what, operation, engine) if k)
        label += f", under NUMA node {numa}" if numa else ""
        draft.add(label, samples, conditions=conditions)
    draft.add("no transfers", readings=local, default=False)
    _prefer(draft)
    draft.prefer_one_run()
    return draft.done()


def _key(match: re.Match[str]) -> tuple[str, ...]:
    """What tells one group from another."""
    ends = (match[1], match[3])
    if "gpu_all" in ends:
        what, way = "all at once", "several at once"
    else:
        both = _is_both(match)
        host = "cpu" in ends
        what = ("host" if host else "pairs") + (" both ways" if both else " one way")
        way = "both ways" if both else "one way"
    return (what, way, match[4] or "", _ENGINES[match[5]], str(int(match[6])) if match[6] else "")


def _is_both(match: re.Match[str]) -> bool:
    return match[2] == "and" or match[7] == "bi"


def _sample(match: re.Match[str], gpus: list[str], rate: float, where: Where) -> Sample | None:
    host = f"cpu{int(match[6] or '0')}"
    a, b = (host if e == "cpu" else _number(e) for e in (match[1], match[3]))
    if "gpu_all" in (a, b):
        if not 2 <= len(gpus) <= _MOST_GPUS or host in (a, b):
            return None
        senders = gpus if a == "gpu_all" else [a]
        receivers = gpus if b == "gpu_all" else [b]
        pairs = [(s, r) for s in senders for r in receivers if s != r]
        each = len(gpus) if a == b else 1
        return moved(pairs, rate * each, where=where)
    if a == b:
        return None
    if _is_both(match):
        pairs = in_order(a, b)
        return moved(pairs, rate, where=where, repeat=int(pairs[0] != (a, b)))
    # The copy goes from the first to the second; read and write say which of them does it.
    return alone(a, b, rate, where=where)


def _number(name: str) -> str:
    return name if name == "gpu_all" else f"gpu{int(name[3:])}"


def _prefer(draft: Draft) -> None:
    """A fit uses copy engines and writes; a fan that contradicts the pairs is named."""
    together = {"direction": "several at once"}.items()
    for key, wanted in (("engine", "copy engine"), ("operation", "write")):
        if any(
            g.conditions.get(key) == wanted and not together <= g.conditions.items()
            for g in draft.groups
        ):
            draft.leave_out(partial(_differs, key=key, wanted=wanted))
    kernel_writes = [
        g
        for g in draft.groups
        if g.conditions.get("engine") == "kernel" and g.conditions.get("operation") == "write"
    ]
    alone_Bps = {
        s.pattern.pairs[0]: s.throughput_Bps
        for g in kernel_writes
        if not together <= g.conditions.items()
        for s in g.measurements.pairs
    }
    for g in kernel_writes:
        for s in g.measurements.samples if together <= g.conditions.items() else ():
            least = min((alone_Bps.get(p, 0.0) for p in s.pattern.pairs), default=0.0)
            if s.throughput_Bps < _FAN_BELOW * least:
                draft.note(
                    f"{s.name} moves {s.throughput_Bps / BYTES_PER_GB:.4g} GB/s in all, less than "
                    f"each of its flows alone ({least / BYTES_PER_GB:.4g} GB/s or more): the log "
                    "contradicts itself, or its lines are from different machines"
                )


def _differs(group: Group, *, key: str, wanted: str) -> bool:
    return group.conditions.get(key, wanted) != wanted


SUPERBENCH_COPY: Final = Importer(
    name="superbench-copy",
    title=TITLE,
    looks_like=looks_like_superbench_copy,
    parse=parse_superbench_copy,
)
"""The importer that the registry lists."""
