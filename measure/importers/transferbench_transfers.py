"""TransferBench's transfers: the lines of each test, and the summary of the all-to-all preset.

What the figures are (client/Utilities.hpp and client/Presets in ROCm/TransferBench): all
transfers of a test start together; the rate of each is its bytes over its own time.
``G0 -> G000:008 -> G1`` is source memory, executor and destination memory: ``G``, ``F`` and
``M`` are a GPU's memory, ``C``, ``B``, ``D``, ``H``, ``K`` and ``P`` a NUMA node's, ``N`` is
none; ``U`` was host memory up to version 1.65 and is a GPU's since, so it is taken for neither
where the version is not shown.  ``R1G0`` is of rank 1.  Executor ``G`` is a kernel, ``D`` a copy
engine, ``C`` a processor, ``N`` and ``I`` a NIC.
The line ``Aggregate`` has the bytes of the whole test: where a paste leaves out transfers,
it does not match, and what ran at once is not known.

A summary ``SRC\\DST`` has the rates of all pairs while all of them ran; ``STotal`` and
``RTotal`` are sums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import finishing, is_rate, to_number
from topocal.measure.importers.imported import Draft, Reading
from topocal.measure.importers.text_matrix import Matrix
from topocal.measure.patterns import notation
from topocal.measure.samples import Sample
from topocal.topo.flow import Flow, Pattern
from topocal.topo.units import BYTES_PER_GB

__all__ = ["Transfers", "add_all_to_all", "is_transfer"]

_TEST: Final = re.compile(r"\s{0,8}Test\s{1,8}([0-9]{1,6})\s{0,4}:")
_TRANSFER: Final = re.compile(
    r"\s{0,16}Transfer\s{1,8}[0-9]{1,6}\s{1,16}([0-9.]{1,16})\s{0,4}GB/s\s{1,16}[0-9.]{1,16}\s{0,4}ms"
    r"\s{1,16}([0-9]{1,16})\s{0,4}bytes\s{1,16}(\S{1,60})\s{0,4}->\s{0,4}(\S{1,40})\s{0,4}->"
    r"\s{0,4}(\S{1,60})\s*"
)
_CSV: Final = re.compile(
    r"\s{0,8}([0-9]{1,6})\s{1,4}[0-9]{1,6}\s{1,4}([0-9]{1,16})\s{1,4}(\S{1,60})\s{1,4}(\S{1,40})"
    r"\s{1,4}(\S{1,60})\s{1,4}[0-9]{1,6}\s{1,4}([0-9.]{1,16})\s{1,4}[0-9.]{1,16}\b.{0,400}"
)
"""``Test#,Transfer#,NumBytes,Src,Exe,Dst,CUs,BW(GB/s),Time(ms),…`` with blanks for commas."""

_TOTAL: Final = re.compile(
    r"\s{0,16}Aggregate \(CPU\)\s{1,16}[0-9.]{1,16}\s{0,4}GB/s\s{1,16}[0-9.]{1,16}\s{0,4}ms"
    r"\s{1,16}([0-9]{1,18})\s{0,4}bytes"
)
_MEMORY: Final = re.compile(r"(?:R([0-9]{1,4}))?([A-Z])([0-9]{1,4})")
_EXECUTOR: Final = re.compile(r"(?:R([0-9]{1,4}))?(GPU|DMA|CPU|NIC|[A-Z])([0-9]{1,4})")
_GPU_MEMORY: Final = "GFM"
_HOST_MEMORY: Final = "CBPHDK"
_VERSION: Final = re.compile(r"TransferBench v([0-9]{1,3})\.([0-9]{1,4})")
_U_IS_A_GPU: Final = (1, 66)
_ENGINES: Final = {"G": "kernel", "D": "copy engine", "C": "processor", "N": "NIC", "I": "NIC"}
_NICS: Final = ("N", "I")
_MOST: Final = 100_000


@dataclass(slots=True, kw_only=True)
class _One:
    """One transfer of a test; no ends where it is no copy from one memory to another."""

    ends: tuple[str, str] | None
    engine: str
    operation: str
    size_bytes: int
    rate_Bps: float
    line: int


@dataclass(slots=True)
class _Test:
    number: str
    transfers: list[_One] = field(default_factory=list)
    total_bytes: int | None = None


def is_transfer(line: str) -> bool:
    """Whether a line is of one transfer."""
    return "->" in line and _TRANSFER.fullmatch(line) is not None


class Transfers:
    """Collects the lines of transfers, and makes groups of them."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._tests: list[_Test] = []
        self._count = 0
        self._unclear = ""

    def take(self, line: str, number: int) -> bool:
        """Note a line, if it belongs to a test; returns whether it does."""
        if "->" in line and (found := _TRANSFER.fullmatch(line)) is not None:
            if not self._tests or self._tests[-1].total_bytes is not None:
                self._tests.append(_Test(""))
            self._add(self._tests[-1], found[3], found[4], found[5], found[2], found[1], number)
        elif (version := _VERSION.search(line)) is not None:
            newer = (int(version[1]), int(version[2])) >= _U_IS_A_GPU
            self._unclear = "gpu" if newer else "cpu"
            return False
        elif (found := _TEST.match(line)) is not None:
            self._tests.append(_Test(found[1]))
        elif (found := _TOTAL.match(line)) is not None and self._tests:
            self._tests[-1].total_bytes = int(found[1])
        elif (found := _CSV.fullmatch(line)) is not None:
            if not self._tests or self._tests[-1].number != found[1]:
                self._tests.append(_Test(found[1]))
            self._add(self._tests[-1], found[3], found[4], found[5], found[2], found[6], number)
        else:
            return False
        return True

    def _add(
        self, test: _Test, source: str, executor: str, end: str, size: str, rate: str, line: int
    ) -> None:
        self._count += 1
        value = to_number(rate)
        if self._count > _MOST:
            raise self._draft.fail(
                f"has more than {_MOST} transfers", line=line, remedy="give one run"
            )
        if value is None or not is_rate(value * BYTES_PER_GB) or int(size) < 1:
            return
        a, b = (_memory(text, self._unclear) for text in (source, end))
        runs = _EXECUTOR.match(executor.replace("\\", ""))
        letter = runs[2][0] if runs is not None else ""
        where = ""
        if runs is not None and letter not in _NICS:
            rank = "" if runs[1] is None else f"node{int(runs[1])}/"
            where = f"{rank}{'cpu' if letter == 'C' else 'gpu'}{int(runs[3])}"
        engine = _ENGINES.get(letter, "")
        ends = (a, b) if a and b and a != b and engine else None
        test.transfers.append(
            _One(
                ends=ends,
                engine=engine,
                operation="write" if where == a else "read" if where == b else "",
                size_bytes=int(size),
                rate_Bps=value * BYTES_PER_GB,
                line=line,
            )
        )

    @property
    def last_count(self) -> int:
        """How many transfers the last test has."""
        return len(self._tests[-1].transfers) if self._tests else 0

    def drop_last(self) -> None:
        """Forget the last test: a summary below says the same."""
        self._tests.pop()

    def finish(self) -> None:
        """Make groups: single copies by their engine, tests of several copies by themselves."""
        alone: dict[tuple[str, str], list[Sample]] = {}
        together: dict[tuple[str, str], list[Sample]] = {}
        readings: list[Reading] = []
        for test in self._tests:
            if not test.transfers:
                continue
            name = f"test {test.number}" if test.number else "a test"
            first = test.transfers[0]
            whole = sum(t.size_bytes for t in test.transfers)
            if test.total_bytes is not None and test.total_bytes != whole:
                self._draft.note(
                    f"line {first.line}: {name} moves {test.total_bytes} bytes and its lines "
                    f"{whole}: some transfers are not in the text, and it is left out"
                )
                continue
            ends = [t.ends for t in test.transfers]
            pairs = [pair for pair in ends if pair is not None]
            if len(pairs) < len(ends) or len(set(pairs)) < len(pairs):
                readings += [self._reading(t, name) for t in test.transfers]
                continue
            engines = sorted({t.engine for t in test.transfers})
            operations = {t.operation for t in test.transfers}
            operation = operations.pop() if len(operations) == 1 else ""
            key = (" and ".join(engines), operation)
            sample = self._sample(test, pairs)
            (alone if len(pairs) == 1 else together).setdefault(key, []).append(sample)
        for groups, way in ((alone, "one way"), (together, "several at once")):
            for (engine, operation), samples in groups.items():
                conditions = {"engine": engine, "direction": way, "statistic": "mean"}
                if operation:
                    conditions["operation"] = operation
                words = ["copies of tests" if way == "one way" else "tests of several copies"]
                label = ", ".join([*words, engine, *([operation] if operation else [])])
                self._draft.add(label, samples, conditions=conditions)
        self._draft.add("no copies between two memories", readings=readings, default=False)
        self._prefer_one_engine(alone)

    def _prefer_one_engine(self, alone: dict[tuple[str, str], list[Sample]]) -> None:
        """Kernels and copy engines differ: a fit uses single copies by what there are most of."""
        counts: dict[str, int] = {}
        for (engine, _), samples in alone.items():
            counts[engine] = counts.get(engine, 0) + len(samples)
        if len(counts) < 2:
            return
        best = max(counts, key=lambda engine: (counts[engine], engine == "kernel"))
        self._draft.leave_out(lambda group: group.conditions.get("engine", best) != best)
        others = " and ".join(sorted(set(counts) - {best}))
        self._draft.note(
            f"copies by {best} are used, not those by {others}: name them to use those"
        )

    def _sample(self, test: _Test, pairs: list[tuple[str, str]]) -> Sample:
        finish = tuple(t.size_bytes / t.rate_Bps for t in test.transfers)
        flows = tuple(
            Flow(source=a, destination=b, size_bytes=float(t.size_bytes))
            for (a, b), t in zip(pairs, test.transfers, strict=True)
        )
        return Sample(
            pattern=Pattern(flows=flows, name=notation(pairs)),
            seconds=max(finish),
            where=self._draft.where(test.transfers[0].line),
            flow_finish_s=finish,
        )

    def _reading(self, one: _One, name: str) -> Reading:
        return Reading(
            what=f"one transfer in {name}",
            value=one.rate_Bps,
            unit="B/s",
            reason="a transfer of its test is no copy from one memory to another",
            where=self._draft.where(one.line),
        )


def _memory(text: str, unclear: str) -> str:
    """``F3`` as ``gpu3``, ``R1F3`` as ``node1/gpu3``; nothing for no memory and for several."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        return ""
    if found[2] in _GPU_MEMORY:
        kind = "gpu"
    elif found[2] in _HOST_MEMORY:
        kind = "cpu"
    else:
        kind = unclear if found[2] == "U" else ""
    rank = "" if found[1] is None else f"node{int(found[1])}/"
    return f"{rank}{kind}{int(found[3])}" if kind else ""


def add_all_to_all(
    draft: Draft, matrix: Matrix, size_bytes: float | None, conditions: dict[str, str]
) -> None:
    """One sample: all pairs of a summary at once, each with its own rate."""
    cells = [
        (row.name, column, cell * BYTES_PER_GB)
        for row in matrix.rows
        for column, cell in zip(matrix.columns, row.cells, strict=True)
        if cell and column != row.name and is_rate(cell * BYTES_PER_GB)
    ]
    broken = matrix.damage("the summary")
    for sentence in broken:
        draft.note(sentence)
    if not cells or matrix.missing_rows():
        if cells:
            draft.note("the summary lacks rows: what ran at once is not known, it is left out")
        return
    sample = finishing(
        [(a, b) for a, b, _ in cells],
        [rate for _, _, rate in cells],
        where=draft.where(matrix.line),
        size_bytes=size_bytes,
    )
    draft.add(
        "all to all at once",
        [sample],
        conditions={"direction": "several at once", "statistic": "mean"} | conditions,
    )
