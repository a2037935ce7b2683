"""nccl-tests (and rccl-tests), as text and as JSON.

What a row is (src/*.cu, src/util.cu and doc/PERFORMANCE.md in NVIDIA/nccl-tests): the
average time of one operation until all ranks have done it.  Where the operation itself
says which bytes go where, that is a sample:

=========  ==================================================================
sendrecv   every rank sends ``size`` to the next and receives as much
alltoall   every rank sends ``size / ranks`` to every other
gather     every rank sends ``size / ranks`` to the root
scatter    the root sends ``size / ranks`` to every rank
=========  ==================================================================

All others (all_reduce, broadcast …) run as rings, trees or in switches as the library
sees fit; their bus bandwidth is kept as a reading.  Out-of-place figures are used,
in-place ones kept beside them.  Rows with wrong results are set aside.

Posts lose the command line and the ``#`` before the head, so the test's name is looked for
in all that stands above a table.  Where nothing names it, rows may: sendrecv and alltoall
alone have no check of what they leave in place (``N/A`` where the other column has a count),
and their bus bandwidth is the one of the algorithm, or n - 1 of n parts of it.  A build
without MPI runs once per process, each counting from rank 0: its figures cross no process,
and rows of several run into one another.  Of several runs of one test on the same ranks one
is used, since they were run to compare something that the output does not say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from topocal.measure.importers.figures import moved, number, to_number
from topocal.measure.importers.imported import Draft, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.json_text import begins_json, find_json
from topocal.measure.importers.visible_devices import VisibleDevices
from topocal.measure.samples import Sample
from topocal.topo.errors import one_line
from topocal.topo.readers.nccl_transports import transport_notes
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.pci import normal_bus_id
from topocal.topo.units import BYTES_PER_GB, format_bytes

__all__ = ["NCCL_TESTS", "looks_like_nccl_tests", "parse_nccl_tests"]

TITLE: Final = "nccl-tests"

_TEST: Final = re.compile(
    r"\b(all_reduce|all_gather|alltoallv?|broadcast|gather|hypercube|reduce|reduce_scatter"
    r"|scatter|sendrecv)_perf(?:_mpi)?\b"
)
_SAID: Final = re.compile(
    r"(?<![\w/.\-])(all[_ -]?reduce|all[_ -]?gather|all[_ -]?to[_ -]?all|broadcast"
    r"|reduce[_ -]?scatter|send[_ -]?recv|gather|scatter)(?![\w/.\-])",
    re.IGNORECASE,
)
"""A test's name in what somebody wrote above its table."""

_NAMES: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "alltoall",
    "broadcast": "broadcast",
    "reducescatter": "reduce_scatter",
    "sendrecv": "sendrecv",
    "gather": "gather",
    "scatter": "scatter",
}
_FAILED: Final = re.compile(r"Test (?:CUDA|NCCL) failure [^']{0,100}'([^']{1,200})'")
_ROUNDING: Final = 0.01
"""Of a share of two rates of three digits and more."""

_THREE_DIGITS: Final = 1.0
"""GB/s: rates are printed with two decimals."""

_LONGEST_HEADING: Final = 120
_RANK: Final = re.compile(
    r"\s{0,40}#?\s{0,8}\bRank\s{1,8}([0-9]{1,6})\s{1,8}(?:Group\s{1,8}[0-9]{1,6}\s{1,8})?Pid\s{1,8}([0-9]{1,9})"
    r"\s{1,8}on\s{1,12}(\S{1,200})\s{1,8}device\s{1,8}([0-9]{1,4})\s{1,8}\[([0-9a-fA-Fx:.]{1,20})\]"
    r"\s{0,8}(.{0,100})"
)
_COUNTS: Final = re.compile(
    r"#?\s{0,8}\bnThreads?:?\s{1,4}([0-9]{1,5})\s{1,4}nGpus:?\s{1,4}([0-9]{1,5})"
)
_HEADER: Final = re.compile(r"\s{0,40}#?\s{0,40}size\s{1,40}count\b.{0,400}\bbusbw\b")
_TEXT: Final = re.compile(
    r"^[ \t]{0,40}#?[ \t]{0,8}nThreads?:?[ \t]{1,4}[0-9]{1,5}[ \t]{1,4}nGpus"
    r"|^[ \t]{0,40}#?[ \t]{0,40}size[ \t]{1,40}count\b.{0,400}\bbusbw\b",
    re.MULTILINE,
)
_MOST_RANKS: Final = 128
"""For a pattern of all pairs; more than a switched domain of 72 needs."""

_NOT_PATTERN: Final = "which bytes go where is the library's choice and not in the output"
_NOT_NAMED: Final = "the output does not say which test it is of: give the command line, too"
_NO_RANKS: Final = "the output does not say which GPUs took part"
_APART: Final = (
    "several processes ran each on their own, as nccl-tests without MPI does: nothing went from "
    "one to the other"
)


@dataclass(slots=True, kw_only=True)
class _Row:
    """One line of results: microseconds and bus bandwidth, out of place and in place."""

    size_bytes: float
    root: int
    timings: list[tuple[float | None, float | None, bool]]
    line: int
    share: float | None = None
    """Bus bandwidth over the algorithm's, where both are given with three digits."""

    in_place_unchecked: bool = False
    """Whether only the out-of-place column counts wrong results."""


@dataclass(slots=True, kw_only=True)
class _Run:
    test: str
    ranks: list[tuple[str, str]] = field(default_factory=list)
    """Host and device number of each rank."""

    count: int | None = None
    default: bool = True
    rows: list[_Row] = field(default_factory=list)
    pids: dict[tuple[int, str, str], None] = field(default_factory=dict)
    """Ranks with host and process; a rank that stands twice is of another run."""

    @property
    def processes(self) -> int:
        """Runs that print into one another."""
        return max(Counter(rank for rank, _, _ in self.pids).values(), default=1)


def looks_like_nccl_tests(text: str) -> bool:
    """Whether a text is one of the tool's, in either form."""
    if begins_json(text):
        return '"results"' in text and ('"out_of_place"' in text or '"bus_bw"' in text)
    return _TEXT.search(text) is not None


def parse_nccl_tests(text: str, *, file: str) -> Imported:
    """All runs of one text.

    Raises
    ------
    FormatError
        When there is none, or the JSON is damaged.
    InputError
        When a time is not possible.
    """
    draft = Draft(kind="nccl-tests", title=TITLE, file=file)
    runs = _from_json(draft, text) if begins_json(text) else _from_text(draft, text)
    for run in runs:
        _name(draft, run)
    for run, label in _chosen(draft, runs):
        _add_run(draft, run, label)
    hosts = {k: host for run in runs for k, (host, _) in enumerate(run.ranks)}
    for sentence in transport_notes(text, hosts):
        draft.note(sentence)
    if not draft.groups and (failed := _FAILED.search(text)):
        raise draft.fail(
            f"is of a run that failed ({one_line(failed[1])}) and has no figures",
            line=text.count("\n", 0, failed.start()) + 1,
            remedy="give the output of a run that ended",
        )
    return draft.done()


def _name(draft: Draft, run: _Run) -> None:
    """Name a run's test by its rows where nothing else names it."""
    n = len(run.ranks) or run.count or 0
    shares = [row.share for row in run.rows if row.share is not None]
    unchecked = all(row.in_place_unchecked and row.root < 0 for row in run.rows)
    if run.test or not (n >= 2 and shares and unchecked):
        return
    for test, share in (("sendrecv", 1.0), ("alltoall", (n - 1) / n)):
        if all(abs(found - share) <= _ROUNDING for found in shares):
            run.test = test
            draft.note(f"the output does not name its test: only {test} prints such rows")


def _chosen(draft: Draft, runs: Sequence[_Run]) -> list[tuple[_Run, str]]:
    """Each run with what its label begins with; says of each whether it is the one to use."""
    of_test: dict[tuple[str, tuple[tuple[str, str], ...]], list[_Run]] = {}
    for run in runs:
        of_test.setdefault((run.test, tuple(run.ranks)), []).append(run)
    labels = {}
    for (test, _), alike in of_test.items():
        best = max(range(len(alike)), key=lambda k: (len(alike[k].rows), k))
        for k, run in enumerate(alike):
            run.default = k == best
            labels[id(run)] = f"run {k + 1}: " if len(alike) > 1 else ""
        if len(alike) > 1:
            draft.note(
                f"{test or 'a test that is not named'} was run {len(alike)} times on the same "
                f"ranks: run {best + 1} is used; give each its own file to use another"
            )
    return [(run, labels[id(run)]) for run in runs]


def _from_text(draft: Draft, text: str) -> list[_Run]:
    runs: list[_Run] = []
    test, said, columns = "", "", list[str]()
    visible = VisibleDevices()
    for number_of_line, line in enumerate(plain_lines(text), start=1):
        visible.read(line)
        if counts := _COUNTS.search(line):
            if runs and not runs[-1].ranks and not runs[-1].rows:
                # Another process says the same.
                test = test or runs.pop().test
            runs.append(_Run(test=test or said, count=int(counts[1]) * int(counts[2])))
            test, said, columns = "", "", []
        elif rank := _RANK.match(line):
            if runs:
                device = visible.of(rank[4])
                runs[-1].pids[int(rank[1]), rank[3], rank[2]] = None
                _add_rank(draft, runs, int(rank[1]), rank[3], device, rank[5], rank[6])
        elif _HEADER.match(line):
            if not runs or runs[-1].rows:
                runs.append(_Run(test=test or said))
                test, said = "", ""
            columns = line.replace("#wrong", "wrong").replace("#", " ").split()
        elif named := _TEST.search(line):
            if "concluded" not in line:
                test = named[1]
            elif runs:
                runs[-1].test = runs[-1].test or named[1]
        elif not (runs and columns and _add_row(runs[-1], line, columns, number_of_line)):
            said = _said(line) or said
        if test and runs and not runs[-1].test and not runs[-1].rows:
            runs[-1].test, test = test, ""
    return [r for r in runs if r.rows]


def _said(line: str) -> str:
    """The one test that a heading is about."""
    found = {re.sub("[_ -]", "", m[1].lower()) for m in _SAID.finditer(line[:_LONGEST_HEADING])}
    return _NAMES[found.pop()] if len(found) == 1 and len(line) <= _LONGEST_HEADING else ""


def _add_rank(
    draft: Draft, runs: list[_Run], rank: int, host: str, device: str, bus: str, model: str
) -> None:
    if not runs or rank != len(runs[-1].ranks):
        return
    runs[-1].ranks.append((host, str(int(device))))
    bus_id = normal_bus_id(bus)
    if len({h for h, _ in runs[-1].ranks}) == 1:
        known = {"model": model.strip()} | ({"bus_id": bus_id} if bus_id else {})
        draft.devices[f"gpu{int(device)}"] = known


def _add_row(run: _Run, line: str, columns: Sequence[str], number_of_line: int) -> bool:
    """Take a row of results, if a line is one.

    Columns are counted from the right, where none is ever blank.
    """
    words = line.split()
    size = to_number(words[0]) if words else None
    times = [k - len(columns) for k, c in enumerate(columns) if c in ("time", "cputime")]
    if size is None or size <= 0 or not times or len(words) < 4 - times[0] - 2:
        return False
    if len(words) > len(columns) or len(words) < -times[0]:
        return False
    timings = []
    for at in times:
        figures = [to_number(words[at + k]) if at + k < 0 else None for k in (0, 2, 3)]
        timings.append((figures[0], figures[1], bool(figures[2])))
    root = -1
    if "root" in columns:
        at = len(columns) - columns.index("root")
        found = to_number(words[-at]) if at <= len(words) else None
        root = int(found) if found is not None and abs(found) < 1e6 else -1
    wrong = [words[at + 3] if at + 3 < 0 else "" for at in times]
    run.rows.append(
        _Row(
            size_bytes=size,
            root=root,
            timings=timings,
            line=number_of_line,
            share=_share(words, times[0]),
            in_place_unchecked=len(wrong) == 2
            and to_number(wrong[0]) is not None
            and wrong[1] == "N/A",
        )
    )
    return True


def _share(words: Sequence[str], at: int) -> float | None:
    """Bus bandwidth over the algorithm's, of the figures behind a time."""
    found = [to_number(words[at + k]) if at + k < 0 else None for k in (1, 2)]
    if found[0] is None or found[1] is None or found[0] < _THREE_DIGITS:
        return None
    return found[1] / found[0]


def _from_json(draft: Draft, text: str) -> list[_Run]:
    documents, cuts = find_json(text, file=draft.file)
    for sentence in cuts:
        draft.note(sentence)
    runs = []
    for document, line in documents:
        results = document.get("results")
        if not isinstance(results, list):
            continue
        config = document.get("config")
        config = config if isinstance(config, dict) else {}
        run = _Run(test=_test_of(document, results))
        runs.append(run)
        threads, gpus = number(config.get("nthreads")), number(config.get("ngpus"))
        if threads and gpus and 0 < threads * gpus < 1e6:
            run.count = int(threads * gpus)
        devices = config.get("devices", document.get("devices"))
        for device in devices if isinstance(devices, list) else ():
            if isinstance(device, dict):
                rank, index = number(device.get("rank")), number(device.get("device"))
                if rank is not None and index is not None and 0 <= index < 10_000:
                    _add_rank(
                        draft,
                        runs,
                        int(rank),
                        str(device.get("hostname"))[:200],
                        str(int(index)),
                        str(device.get("device_hex")),
                        str(device.get("device_info"))[:100],
                    )
        run.rows = [row for r in results if (row := _json_row(r, line)) is not None]
    return [r for r in runs if r.rows]


def _test_of(document: dict[str, Any], results: Sequence[Any]) -> str:
    args = document.get("args")
    texts = [str(a)[:500] for a in args[:3]] if isinstance(args, list) else []
    texts += [str(r.get("experiment_name"))[:500] for r in results[:1] if isinstance(r, dict)]
    found = [m[1] for t in texts if (m := _TEST.search(t))]
    return found[0] if found else ""


def _json_row(result: Any, line: int) -> _Row | None:
    if not isinstance(result, dict):
        return None
    size = number(result.get("size"))
    if size is None or size <= 0:
        return None
    timings = []
    for place in ("out_of_place", "in_place"):
        figures = result.get(place)
        figures = figures if isinstance(figures, dict) else {}
        timings.append(
            (
                number(figures.get("time", figures.get("cpu_time"))),
                number(figures.get("bus_bw")),
                bool(number(figures.get("nwrong"))),
            )
        )
    root = number(result.get("root"))
    root_number = int(root) if root is not None and abs(root) < 1e6 else -1
    return _Row(size_bytes=size, root=root_number, timings=timings, line=line)


def _add_run(draft: Draft, run: _Run, begin: str) -> None:
    reason = _NOT_PATTERN
    if run.processes > 1:
        reason = _APART
        draft.note(
            f"{run.processes} processes each count their ranks from 0: nccl-tests was built "
            "without MPI or not started by its launcher, so each ran on its own GPUs and nothing "
            "went from one to the other"
        )
    test = run.test or "a test that is not named"
    names = _names(draft, run)
    moving = run.test in ("sendrecv", "alltoall", "gather", "scatter") and len(names) >= 2
    if not moving and len(names) < 2 and run.processes == 1:
        reason = _NO_RANKS
    moving = moving and run.processes == 1
    if moving and len(names) > _MOST_RANKS:
        draft.note(f"{test}: patterns of more than {_MOST_RANKS} ranks are not read")
        moving = False
    for k, place in enumerate(("out of place", "in place")):
        label = f"{begin}{test}, {place}"
        conditions = {"test": test, "place": place, "direction": "several at once"}
        if (hosts := len({host for host, _ in run.ranks})) > 1:
            conditions["hosts"] = str(hosts)
        if moving:
            samples = [s for row in run.rows for s in _sample(draft, run.test, names, row, k)]
            draft.add(label, samples, conditions=conditions, default=k == 0 and run.default)
            continue
        readings = [
            Reading(
                what=f"{test} bus bandwidth at {format_bytes(row.size_bytes)}",
                value=bandwidth * BYTES_PER_GB,
                unit="B/s",
                reason=reason if run.test else _NOT_NAMED,
                where=draft.where(row.line),
            )
            for row in run.rows
            for _, bandwidth, _ in row.timings[k : k + 1]
            if bandwidth
        ]
        draft.add(label, readings=readings, conditions=conditions, default=False)
    if not moving and len(names) < 2:
        draft.note(f"{test}: ran on one GPU or names no ranks, so nothing in it is a transfer")


def _names(draft: Draft, run: _Run) -> list[str]:
    """Endpoint of each rank."""
    if not run.ranks:
        if run.count and run.count > 1:
            draft.note("names no ranks: they are taken to be GPUs 0, 1, … of one machine")
        return [f"gpu{k}" for k in range(min(run.count or 0, _MOST_RANKS + 1))]
    hosts = list(dict.fromkeys(host for host, _ in run.ranks))
    if len(hosts) == 1:
        names = [f"gpu{device}" for _, device in run.ranks]
    else:
        names = [f"node{hosts.index(h)}/gpu{device}" for h, device in run.ranks[:100_000]]
        draft.note(
            "the hosts are called node0, node1, … in the order of their ranks"
            + (": " + ", ".join(one_line(h) for h in hosts[:4]))
        )
    if len(set(names)) < len(names):
        draft.note("several ranks share a GPU: nothing in it is a transfer between endpoints")
        return []
    return names


def _sample(draft: Draft, test: str, names: Sequence[str], row: _Row, place: int) -> list[Sample]:
    if place >= len(row.timings):
        return []
    microseconds, _, wrong = row.timings[place]
    n = len(names)
    size = row.size_bytes if test == "sendrecv" else row.size_bytes / n
    seconds = 0.0 if microseconds is None else microseconds * 1e-6
    if not 0 < seconds < 1e6 or size <= 0:
        return []
    if test == "sendrecv":
        pairs = [(names[k], names[(k + 1) % n]) for k in range(n)]
    elif test == "alltoall":
        pairs = [(a, b) for a in names for b in names if a != b]
    else:
        root = names[row.root if 0 <= row.root < n else 0]
        pairs = [(p, root) if test == "gather" else (root, p) for p in names if p != root]
    sample = moved(pairs, len(pairs) * size / seconds, where=draft.where(row.line), size_bytes=size)
    if wrong:
        return [msgspec.structs.replace(sample, set_aside="its results were wrong")]
    return [sample]


NCCL_TESTS: Final = Importer(
    name="nccl-tests",
    title=TITLE,
    looks_like=looks_like_nccl_tests,
    parse=parse_nccl_tests,
)
"""The importer that the registry lists."""
