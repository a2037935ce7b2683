"""ROCm Validation Suite: what its modules pbqt (between GPUs) and pebb (host and GPU) log.

``GBps`` there are 2**30 bytes per second; of a bidirectional transfer, and where both
``h2d`` and ``d2h`` are true, both directions count (pbqt.so and pebb.so, action_run.cpp, in
ROCm/ROCmValidationSuite).  Lines of ``RESULT`` are of a whole run; those of ``INFO`` are
interim, and used for pairs that have no result.  GPUs carry numbers of the driver's there:
they are counted in the order of their nodes, where the log says these, else as they appear.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import alone, in_order, is_rate, moved, to_number
from topocal.measure.importers.imported import Draft, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.topo.errors import one_line
from topocal.topo.readers.paste import plain_lines

__all__ = ["RVS", "looks_like_rvs", "parse_rvs"]

TITLE: Final = "ROCm Validation Suite"

_GiB: Final = 2.0**30
_LINE: Final = re.compile(
    r"\[(RESULT|INFO)\s{0,4}\]\s{0,4}\[[^\]]{1,30}\]\s{0,4}\[[^\]]{1,80}\]\s{1,4}"
    r"(p2p|pcie)-bandwidth\s{1,4}(?:\[[0-9]{1,6}/[0-9]{1,6}\]\s{1,4})?([0-9]{1,9})\s{1,4}([0-9]{1,9})"
    r"\s{1,8}(bidirectional|h2d):\s{0,4}(true|false)\s{1,8}(?:d2h:\s{0,4}(true|false)\s{1,8})?"
    r"(-?[0-9a-z.]{1,16})\s{1,4}GBps"
)
_PEERS: Final = re.compile(
    r"\]\s{0,4}p2p\s{1,4}([0-9]{1,9})\s{1,4}([0-9]{1,9})\s{1,4}peers:(true|false)"
)
_NODE: Final = re.compile(
    r"\]\s{0,4}pcie-bandwidth\s{1,4}[0-9]{1,4}\s{1,4}([0-9]{1,4})\s{1,4}([0-9]{1,9})\s{1,4}distance:"
)
_LISTED: Final = re.compile(r"\bGPU\s{1,40}([0-9]{1,4})\s{1,40}([0-9]{1,9})\s*$")
_PARALLEL: Final = re.compile(r"\s{0,20}-?\s{0,4}parallel\s{0,4}:\s{0,4}true\b")


@dataclass(frozen=True, slots=True)
class _Line:
    module: str
    a: int
    b: int
    both: bool
    backward: bool
    rate_Bps: float
    number: int


@dataclass(slots=True)
class _Log:
    """What the lines say."""

    results: dict[tuple[str, int, int, bool, bool], _Line] = field(default_factory=dict)
    interim: dict[tuple[str, int, int, bool, bool], _Line] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    peers: list[tuple[int, int]] = field(default_factory=list)
    strangers: list[tuple[int, int]] = field(default_factory=list)
    failed: int = 0
    parallel: bool = False


def looks_like_rvs(text: str) -> bool:
    """Whether a text has a figure of one of the modules."""
    return "-bandwidth" in text and any(map(_LINE.search, plain_lines(text)))


def parse_rvs(text: str, *, file: str) -> Imported:
    """The figures of one log.

    Raises
    ------
    FormatError
        When there is none.
    """
    draft = Draft(kind="rvs", title=TITLE, file=file)
    log = _read(plain_lines(text))
    lines = [
        *log.results.values(),
        *(line for key, line in log.interim.items() if key not in log.results),
    ]
    ids = _ids(log, lines)
    for module in ("p2p", "pcie"):
        for both in (False, True):
            found = [line for line in lines if (line.module, line.both) == (module, both)]
            label = ("between GPUs" if module == "p2p" else "host and GPU") + (
                ", both ways" if both else ", one way"
            )
            _add(draft, label, found, ids, together=log.parallel)
    if any(key not in log.results for key in log.interim):
        draft.note("pairs without a result have their last interim figure")
    if log.failed:
        draft.note(f"{log.failed} figures are no rates (nan, 0): left out")
    if log.parallel:
        draft.note("the configuration says `parallel: true`: pairs ran at once, and are no samples")
    elif lines:
        draft.note("whether pairs ran at once (`parallel`) is not said: each is taken as alone")
    if ids:
        listed = ", ".join(f"gpu{n} is {name}" for name, n in sorted(ids.items(), key=_second)[:8])
        draft.note(f"GPUs are counted from 0: {listed}")
    draft.no_peer.extend((f"gpu{ids[a]}", f"gpu{ids[b]}") for a, b in log.strangers)
    return draft.done()


def _second(item: tuple[int, int]) -> int:
    return item[1]


def _read(lines: Sequence[str]) -> _Log:
    log = _Log()
    for number, line in enumerate(lines, 1):
        if (found := _LINE.search(line)) is not None:
            value = to_number(found[8])
            if value is None or not is_rate(value * _GiB):
                log.failed += 1
                continue
            h2d, d2h = found[6] == "true", found[7] == "true"
            both = h2d if found[5] == "bidirectional" else h2d and d2h
            taken = _Line(
                module=found[2],
                a=int(found[3]),
                b=int(found[4]),
                both=both,
                backward=found[5] == "h2d" and d2h and not h2d,
                rate_Bps=value * _GiB,
                number=number,
            )
            kept = log.results if found[1] == "RESULT" else log.interim
            kept[taken.module, taken.a, taken.b, taken.both, taken.backward] = taken
        elif (found := _PEERS.search(line)) is not None:
            a, b = int(found[1]), int(found[2])
            log.peers.append((a, b))
            if a != b and found[3] == "false":
                log.strangers.append((a, b))
        elif (found := _NODE.search(line) or _LISTED.search(line)) is not None:
            log.nodes.setdefault(int(found[2]), int(found[1]))
        elif _PARALLEL.match(line) is not None:
            log.parallel = True
    return log


def _ids(log: _Log, lines: Sequence[_Line]) -> dict[int, int]:
    """The driver's numbers of the GPUs, and ours."""
    # Every GPU is first of a line in turn, then the others that a cut log still names.
    seen = dict.fromkeys([a for a, _ in log.peers] + [b for _, b in log.peers])
    for line in lines:
        seen |= dict.fromkeys((line.a, line.b) if line.module == "p2p" else (line.b,))
    if all(name in log.nodes for name in seen):
        return {name: n for n, name in enumerate(sorted(log.nodes, key=lambda k: log.nodes[k]))}
    return {name: n for n, name in enumerate(seen)}


def _add(
    draft: Draft, label: str, lines: Sequence[_Line], ids: dict[int, int], *, together: bool
) -> None:
    samples = []
    readings = []
    for line in lines:
        a = f"gpu{ids[line.a]}" if line.module == "p2p" else f"cpu{line.a}"
        b = f"gpu{ids[line.b]}"
        a, b = (b, a) if line.backward else (a, b)
        where = draft.where(line.number)
        if a == b:
            continue
        if together:
            what, reason = one_line(f"{a}->{b}"), "all pairs ran at once"
            readings.append(
                Reading(what=what, value=line.rate_Bps, unit="B/s", reason=reason, where=where)
            )
        elif line.both:
            pairs = in_order(a, b)
            repeat = int(pairs[0] != (a, b))
            samples.append(moved(pairs, line.rate_Bps, where=where, repeat=repeat))
        else:
            samples.append(alone(a, b, line.rate_Bps, where=where))
    way = "both ways" if label.endswith("both ways") else "one way"
    draft.add(label, samples, readings=readings, conditions={"direction": way, "statistic": "mean"})


RVS: Final = Importer(name="rvs", title=TITLE, looks_like=looks_like_rvs, parse=parse_rvs)
"""The importer that the registry lists."""
