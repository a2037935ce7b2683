"""Lines that name two devices and a rate: ``GPU 0 -> GPU 1: 24.5 GB/s``.

Many scripts print such lines, and Level Zero's ``ze_peer`` does.  Bytes go where the arrow
points (``<-`` is a read: they come from the right); ``<->`` is the sum of both directions,
as it is below a heading that says *bidirectional*.  Headings that say *write* or *read* tell
who moved the bytes, and a fit uses writes.  Lines with a time in microseconds are
latencies.  ``Device(0)-->Device(1)`` as a heading, with lines of a size and a rate below, is
a sweep.

Lines below a heading that says *parallel* or *at the same time* are readings: which of them
ran at once is not said.

References
----------
``GBPS`` of ``ze_peer`` are 10**9 bytes per second, its MB 2**20 bytes; of a bidirectional
copy both directions count (perf_tests/ze_peer in oneapi-src/level-zero-tests).
``p2p_uni_gpu0_gpu1`` and ``p2p_bi_…``: hipBusBandwidth in ROCm/HIP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from topocal.measure.importers.figures import (
    alone,
    in_order,
    is_rate,
    moved,
    to_number,
    written_number,
)
from topocal.measure.importers.imported import Draft, Group, Imported, Latency, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.sweeps import TELLS_A_RATE, largest_message, start_up
from topocal.measure.samples import Sample
from topocal.topo.errors import UnitError, one_line
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import parse_bytes, rate_unit_Bps

__all__ = ["PAIR_LINES", "looks_like_pair_lines", "parse_pair_lines"]

TITLE: Final = "lines of pairs and rates"

_GPU: Final = (
    r"(?:GPU|Device|Dev|NPU|XPU|HPU|DCU|HCU|MLU|CUDA|HIP|MUSA|Rank|Card|Tile)"
    r"[ _]{0,2}[(\[#:]?[ ]?([0-9]{1,4})[)\]]?"
)
_HOST: Final = r"(CPU[ ]?(?:NUMA[ ]?)?[0-9]{0,3}|Host|Sysmem|DRAM)"
_END: Final = rf"(?:{_GPU}|{_HOST})"
_ARROW: Final = r"(?P<arrow><-{1,2}>|-{1,2}>|<-{1,2}|=>|<=>|↔|→|←|\bto\b)"
_PAIR: Final = re.compile(rf"{_END}[ \t]{{0,8}}{_ARROW}[ \t]{{0,8}}{_END}", re.I)
_BARE: Final = re.compile(
    r"[ \t]{0,40}\(?([0-9]{1,4})\)?[ \t]{0,8}(?P<arrow><-{1,2}>|-{1,2}>|=>|<=>|↔|→)"
    r"[ \t]{0,8}\(?([0-9]{1,4})\)?[ \t]{0,8}[:=|\t ]"
)
"""Numbers alone name devices where a line begins with them."""

_AND_MORE: Final = re.compile(
    r"[ \t]{0,4}[,+&][ \t]{0,4}(?:[0-9]{1,4}[ \t]{0,4}[,:+]|" + _END + ")", re.I
)
"""Behind a pair: it is the beginning of a fan or of flows at once."""

_PREDICTED: Final = re.compile(r"per flow: .{1,60} in all\b")
"""As ``topocal predict`` prints a prediction, which is no measurement."""

_PAGE: Final = re.compile(r"\s{0,80}<(?:!doctype\s|html\b)", re.I)
_MOSTLY_OTHER: Final = 4
"""Other lines for each that was read, from which it is said which ones those were."""

_FIGURE: Final = r"(?<![\w.])(?<![0-9],)([0-9]{1,9}(?:[.,][0-9]{1,12}){0,4})[ \t]{0,4}"
_RATE: Final = re.compile(_FIGURE + r"([KMGT]i?(?:[Bb]|bits?|bytes?))(?:/s(?:ec)?|ps|PS)\b")
_LATENCY: Final = re.compile(_FIGURE + r"(us|uS|µs|μs)\b")
_SIZED: Final = re.compile(r"\bSize:[ \t]{1,8}([0-9]{1,9})[ \t]{0,4}(B|KB|MB|GB)\b")
_BOTH: Final = re.compile(r"bi-?directional|both ways|full.?duplex", re.I)
_ONE: Final = re.compile(r"uni-?directional|one.?way", re.I)
_READ: Final = re.compile(r"\bread\b", re.I)
_WRITE: Final = re.compile(r"\bwrite\b", re.I)
_TOGETHER: Final = re.compile(
    r"parallel|concurrent|simultaneous|at the same time|at once|all.?to.?all|aggregate", re.I
)
_HIP: Final = re.compile(
    r"\s{0,12}p2p_(uni|bi)_gpu([0-9]{1,3})_gpu([0-9]{1,3})\s{1,12}\+?0{0,3}([0-9]{1,9})(By|kB|MB)\s{1,8}"
    r"GB/sec\s{1,8}([0-9.]{1,16})\b"
)
_HIP_BYTES: Final = {"By": 1, "kB": 1024, "MB": 1024**2}
_BINARY: Final = {"B": "B", "KB": "KiB", "MB": "MiB", "GB": "GiB"}
_LONGEST: Final = 400
_BACK: Final = ("<-", "<--", "←")
_BOTH_ARROWS: Final = ("<->", "<-->", "<=>", "↔")


@dataclass(frozen=True, slots=True)
class _Heading:
    """What the lines below it are of."""

    both: bool = False
    operation: str = ""
    together: bool = False
    pair: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    """A pair with its arrow, and what stands behind it."""

    a: str
    b: str
    arrow: str
    rate_Bps: float | None
    seconds: float | None
    size_bytes: float | None


def looks_like_pair_lines(text: str) -> bool:
    """Whether some line names two devices and a rate; prose of a page is none."""
    if _PAGE.match(text) is not None:
        return False
    for line in plain_lines(text):
        if _HIP.match(line) is not None:
            return True
        pair = _pair(line)
        if (
            pair is not None
            and _PREDICTED.search(line) is None
            and (_RATE.search(line) is not None or _is_heading_of_sweep(line))
        ):
            return True
    return False


def parse_pair_lines(text: str, *, file: str) -> Imported:
    """The lines of one text.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="pair-lines", title=TITLE, file=file)
    heading = _Heading()
    samples: dict[tuple[str, str], list[Sample]] = {}
    latencies: list[Latency] = []
    readings: list[Reading] = []
    for number, line in enumerate(plain_lines(text), 1):
        if (hip := _HIP.match(line)) is not None:
            _take_hip(draft, samples, hip, number)
            continue
        found = _read(line, heading, draft, number)
        if found is None:
            heading = _heading(line, heading)
            continue
        if found.rate_Bps is None:
            if found.seconds:
                a, b = _ends(found)
                latencies.append(
                    Latency(
                        source=a,
                        destination=b,
                        seconds=found.seconds,
                        where=draft.where(number),
                    )
                )
            continue
        both = found.arrow in _BOTH_ARROWS or heading.both
        operation = heading.operation or ("read" if found.arrow in _BACK else "")
        if heading.together:
            readings.append(
                Reading(
                    what=one_line(line.strip()[:80]),
                    value=found.rate_Bps,
                    unit="B/s",
                    reason="several ran at once, and which is not said",
                    where=draft.where(number),
                )
            )
            continue
        key = ("both ways" if both else "one way", operation)
        samples.setdefault(key, []).append(_sample(draft, found, both, number))
    for (way, operation), found_samples in samples.items():
        conditions = {"direction": way} | ({"operation": operation} if operation else {})
        telling, small = _by_pair(found_samples)
        draft.add(
            ", ".join(word for word in (way, operation) if word),
            telling,
            conditions=conditions,
            readings=small,
        )
    _say_which(draft, samples, text)
    draft.add("latencies", latencies=latencies, default=False)
    draft.add("several at once", readings=readings, default=False)
    if any(g.conditions.get("operation") == "write" for g in draft.groups):
        if any(g.conditions.get("operation") == "read" for g in draft.groups):
            draft.note("writes are used, not reads, which differ: name the group to use those")
        draft.leave_out(partial(_is_of, operation="read"))
    return draft.done()


def _say_which(draft: Draft, samples: dict[tuple[str, str], list[Sample]], text: str) -> None:
    """Name the lines where most of a text is something else."""
    taken = sorted(
        {s.where.line for found in samples.values() for s in found if s.where and s.where.line}
    )
    others = len(text.splitlines()) - len(taken)
    if taken and others > _MOSTLY_OTHER * len(taken):
        shown = ", ".join(map(str, taken[:5])) + (" …" if len(taken) > 5 else "")
        many = len(taken) > 1
        draft.note(
            f"line{'s' * many} {shown} name{'s' * (not many)} two devices and a rate and "
            f"{'are' if many else 'is'} read as measured; the other {others} are passed over"
        )


def _by_pair(samples: Sequence[Sample]) -> tuple[list[Sample], list[Reading]]:
    """Samples of pairs with a message that tells a rate, and readings of the others."""
    pairs: dict[str, list[Sample]] = {}
    for sample in samples:
        pairs.setdefault(sample.name, []).append(sample)
    telling = [
        s for found in pairs.values() if largest_message(found) >= TELLS_A_RATE for s in found
    ]
    small = [s for found in pairs.values() if largest_message(found) < TELLS_A_RATE for s in found]
    return telling, [start_up(s) for s in small]


def _is_of(group: Group, *, operation: str) -> bool:
    return group.conditions.get("operation") == operation


def _name(number: str | None, host: str | None) -> str:
    if number is not None:
        return f"gpu{int(number)}"
    digits = re.search(r"[0-9]{1,3}", host or "")
    return f"cpu{int(digits[0])}" if digits is not None else "cpu0"


def _pair(line: str) -> tuple[str, str, str] | None:
    """Both ends and the arrow between them."""
    found = _PAIR.search(line[:_LONGEST])
    if found is not None and _AND_MORE.match(line, found.end()) is not None:
        return None
    if found is None:
        bare = _BARE.match(line[:_LONGEST])
        if bare is None or int(bare[1]) == int(bare[3]):
            return None
        return f"gpu{int(bare[1])}", bare["arrow"], f"gpu{int(bare[3])}"
    groups = [g for k, g in enumerate(found.groups(), 1) if k != found.re.groupindex["arrow"]]
    a, b = _name(groups[0], groups[1]), _name(groups[2], groups[3])
    return None if a == b else (a, found["arrow"], b)


def _is_heading_of_sweep(line: str) -> bool:
    return line.rstrip().endswith(")") and "andwidth" in line


def _read(line: str, heading: _Heading, draft: Draft, line_number: int) -> _Line | None:
    """A line with a figure of a pair; the heading's pair where it names none of its own."""
    text = line[:_LONGEST]
    rate, latency = _RATE.search(text), _LATENCY.search(text)
    if (rate is None and latency is None) or _PREDICTED.search(text) is not None:
        return None
    pair = _pair(text) or (heading.pair if _SIZED.search(text) is not None else None)
    if pair is None:
        return None
    sized = _SIZED.search(text)
    value = None
    if rate is not None:
        number = _number(draft, rate[1], line_number)
        try:
            value = number * rate_unit_Bps(_in_short(rate[2]) + "/s")
        except UnitError:
            value = None
        if value is None or not is_rate(value):
            return None
    seconds = _number(draft, latency[1], line_number) if latency is not None else None
    return _Line(
        a=pair[0],
        arrow=pair[1].lower(),
        b=pair[2],
        rate_Bps=value,
        seconds=None if seconds is None else seconds * 1e-6,
        size_bytes=None if sized is None else _bytes(sized[1], sized[2]),
    )


def _number(draft: Draft, text: str, line: int) -> float:
    value = written_number(text)
    if value is None:
        raise draft.fail(
            f"{text} may be a decimal comma or thousands",
            line=line,
            remedy="write figures with a point, and without marks between thousands",
        )
    return value


def _in_short(unit: str) -> str:
    """A unit of amount with ``b`` for bits and ``B`` for bytes."""
    return re.sub("bits?$", "b", re.sub("bytes?$", "B", unit))


def _bytes(number: str, unit: str) -> float | None:
    try:
        return parse_bytes(f"{number}{_BINARY[unit]}") or None
    except UnitError:
        return None


def _heading(line: str, before: _Heading) -> _Heading:
    """What a line without a figure says of those below it; most say nothing."""
    text = line[:_LONGEST]
    both, one = _BOTH.search(text) is not None, _ONE.search(text) is not None
    read, write = _READ.search(text) is not None, _WRITE.search(text) is not None
    together = _TOGETHER.search(text) is not None
    pair = _pair(text) if _is_heading_of_sweep(text) else None
    if not (both or one or read or write or together or pair):
        return before
    operation = "" if read == write else "read" if read else "write"
    heading = _Heading(both=both and not one, operation=operation, together=together)
    return replace(heading, pair=pair)


def _ends(line: _Line) -> tuple[str, str]:
    return (line.b, line.a) if line.arrow in _BACK else (line.a, line.b)


def _sample(draft: Draft, line: _Line, both: bool, number: int) -> Sample:
    a, b = _ends(line)
    assert line.rate_Bps is not None
    where = draft.where(number)
    if not both:
        return alone(a, b, line.rate_Bps, where=where, size_bytes=line.size_bytes)
    pairs = in_order(a, b)
    return moved(
        pairs,
        line.rate_Bps,
        where=where,
        size_bytes=line.size_bytes,
        repeat=int(pairs[0] != (a, b)),
    )


def _take_hip(
    draft: Draft,
    samples: dict[tuple[str, str], list[Sample]],
    hip: re.Match[str],
    number: int,
) -> None:
    a, b = f"gpu{int(hip[2])}", f"gpu{int(hip[3])}"
    value = to_number(hip[6])
    size = float(int(hip[4]) * _HIP_BYTES[hip[5]])
    if a == b or not value or not is_rate(value * 1e9) or size < 1:
        return
    both = hip[1] == "bi"
    pairs: Sequence[tuple[str, str]] = in_order(a, b) if both else [(a, b)]
    samples.setdefault(("both ways" if both else "one way", ""), []).append(
        moved(pairs, value * 1e9, where=draft.where(number), size_bytes=size)
    )


PAIR_LINES: Final = Importer(
    name="pair-lines",
    title=TITLE,
    looks_like=looks_like_pair_lines,
    parse=parse_pair_lines,
)
"""The importer that the registry lists."""
