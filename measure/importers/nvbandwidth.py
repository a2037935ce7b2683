"""nvbandwidth, as text and as JSON.

What its tests measure stands in :mod:`topocal.measure.importers.nvbandwidth_tests`.  Text
may have prompts around it and ``[...]`` where somebody cut it; in JSON figures may be
numbers, texts or ``N/A``.  Where the line ``Running …`` is cut away, a table is of the test
that its sum below names, else of the one that its title can only be of.  A multi-node run
counts processes, and its head says which GPU of which host each has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from topocal.measure.importers.figures import number
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.json_text import begins_json, find_json
from topocal.measure.importers.nvbandwidth_tests import (
    Table,
    add_tests,
    named_by_title,
    rows_are_host,
)
from topocal.measure.importers.text_matrix import MAX_COLUMNS, header_names, read_matrix
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.errors import one_line
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.pci import normal_bus_id

__all__ = ["NVBANDWIDTH", "looks_like_nvbandwidth", "parse_nvbandwidth"]

_RUNNING: Final = re.compile(r"\s{0,8}Running (?:benchmark )?([a-z][a-z0-9_]{2,80})\.?\s*")
_VERSION: Final = re.compile(r"\s{0,8}nvbandwidth Version:", re.IGNORECASE)
_DEVICE: Final = re.compile(
    r"\s{0,8}(?:Device )?([0-9]{1,4}): ([^():]{1,100}?)\s{0,4}"
    r"(?:\(([0-9A-Fa-f:.]{5,20})\).{0,200})?"
)
_PROCESS: Final = re.compile(
    r"\s{0,8}Process ([0-9]{1,4}) \(([^()]{1,100})\): device ([0-9]{1,4}): ([^():]{1,100}?)\s{0,4}"
    r"(?:\(([0-9A-Fa-f:.]{5,20})\).{0,200})?"
)
_SUM: Final = re.compile(r"\s{0,8}SUM ([a-z][a-z0-9_]{2,80}?)(?:_(?:read|write)[12]|_total)? [0-9]")
_COMMAND: Final = re.compile(r"nvbandwidth\b.{0,200}?\s-t ?([a-z][a-z0-9_]{2,80})(?=\s|$)")
_WAIVED: Final = re.compile(r"\s{0,8}Waiv(?:ing|ed) ([a-z][a-z0-9_]{2,80})\.?\s*")
_WRONG_DATA: Final = re.compile(r"Invalid value when checking the pattern")
_CUT: Final = re.compile(r"\[\s{0,2}(?:\.{3}|\u2026)\s{0,2}\]")
_TEXT: Final = re.compile(
    r"^\s{0,8}Running (?:benchmark )?[a-z0-9_]{3,80}_(?:ce|sm|latency|copy)\b"
    r"|^\s{0,8}nvbandwidth Version:"
    r"|^\s{0,8}SUM [a-z0-9_]{3,80}_(?:ce|sm|latency|copy)\b"
    r"|^\s{0,8}Waiving [a-z0-9_]{3,80}_(?:ce|sm|latency|copy)\b"
    r"|memcpy (?:CE|SM) [CGA][A-Za-z ]{2,12}(?:\((?:row|column)\))? <?->? ",
    re.MULTILINE,
)
_MOST_TESTS: Final = 10_000


def looks_like_nvbandwidth(text: str) -> bool:
    """Whether a text is the tool's, in either form."""
    if begins_json(text):
        return '"bandwidth_matrix"' in text or '"nvbandwidth"' in text[:100_000]
    return _TEXT.search(text) is not None


def parse_nvbandwidth(text: str, *, file: str) -> Imported:
    """The tests of one output.

    Raises
    ------
    FormatError
        When there is none, or the JSON is damaged.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="nvbandwidth", title="nvbandwidth", file=file)
    output = _Output(draft)
    if begins_json(text):
        _from_json(output, text)
    else:
        _from_text(output, text)
    for k, tests in enumerate(output.runs, start=1):
        add_tests(draft, str(k), tests)
    if not draft.groups and output.troubles:
        what, remedy = output.troubles[0]
        raise draft.fail(what, remedy=remedy)
    draft.prefer_one_run()
    names = output.names()
    return draft.done().renamed(names) if names else draft.done()


@dataclass(slots=True)
class _Output:
    """What an output holds.

    Attributes
    ----------
    runs
        Tables by test; of several runs of the tool one below the other.
    processes
        Host, device and what is known of it, by the number of a multi-node run's process.
    troubles
        Tests without figures: why, and what to do.
    """

    draft: Draft
    runs: list[dict[str, list[Table]]] = field(default_factory=lambda: [{}])
    processes: dict[int, tuple[str, int]] = field(default_factory=dict)
    troubles: list[tuple[str, str]] = field(default_factory=list)

    def trouble(self, sentence: str, remedy: str = "run tests that the machine can do") -> None:
        """A test that has no figures."""
        self.troubles.append((sentence, remedy))
        self.draft.note(sentence)

    def names(self) -> dict[str, str]:
        """What a multi-node run's GPUs are called, where there are several hosts."""
        hosts = list(dict.fromkeys(host for host, _ in self.processes.values()))
        if len(hosts) > 1:
            self.draft.note(
                "the hosts are called node0, node1, … in the order of their processes: "
                + ", ".join(one_line(h) for h in hosts[:4])
            )
        return {
            f"gpu{process}": f"node{hosts.index(host)}/gpu{device}"
            if len(hosts) > 1
            else f"gpu{device}"
            for process, (host, device) in self.processes.items()
        }

    def device(self, line: str) -> bool:
        """Take a line that tells a device; whether it is one."""
        if process := _PROCESS.fullmatch(line):
            number = process[1]
            if len(self.processes) < MAX_COLUMNS:
                self.processes[int(number)] = (process[2], int(process[3]))
            self._know(number, process[4], process[5])
            return True
        if device := _DEVICE.fullmatch(line):
            self._know(device[1], device[2], device[3])
            return True
        return False

    def _know(self, number: str, model: str, bus: str | None) -> None:
        known = {"model": model.strip()}
        bus_id = normal_bus_id(bus or "")
        if bus_id:
            known["bus_id"] = bus_id
        self.draft.devices[canonical_endpoint(number)] = known


def _from_text(output: _Output, text: str) -> None:
    draft, lines = output.draft, plain_lines(text)
    test, title, asked, at = "", "", "", 0
    unnamed: list[Table] = []
    summed: list[str] = []
    while at < len(lines):
        line = lines[at]
        at += 1
        if _CUT.search(line):
            draft.note(f"line {at}: somebody cut the output here: what is missing is not known")
            lines[at - 1] = line = _CUT.sub(" ", line)
            if not line.strip():
                # Lines are missing: what stands below may be of another test.
                test = ""
        if running := _RUNNING.fullmatch(line):
            _place(output, unnamed, "")
            test, title = running[1], ""
            if test in output.runs[-1]:
                output.runs.append({})
            _limit(draft, output.runs)
            output.runs[-1].setdefault(test, [])
        elif total := _SUM.match(line):
            summed.append(total[1])
            _place(output, unnamed, total[1])
        elif _VERSION.match(line):
            _place(output, unnamed, "")
            test = ""
            if output.runs[-1]:
                output.runs.append({})
        elif header_names(line) is not None:
            kind = "CPU" if (rows_are_host(test) if test else "CPU(row" in title) else None
            found = read_matrix(lines, at - 1, file=draft.file, row_kind=kind)
            assert found is not None
            matrix, end = found
            at = max(at, end)
            if matrix.cut is not None:
                _, row, cells, of = matrix.cut
                draft.note(
                    f"line {matrix.cut[0]}: row {row} of {test or 'a table'} is cut after {cells} "
                    f"of {of} figures"
                )
            table = Table(
                title=title,
                columns=[canonical_endpoint(c) for c in matrix.columns],
                rows=[
                    ("" if kind else canonical_endpoint(r.name), r.cells, r.line)
                    for r in matrix.rows
                ],
            )
            (output.runs[-1].setdefault(test, []) if test else unnamed).append(table)
        elif waived := _WAIVED.fullmatch(line):
            output.trouble(_waived(waived[1]))
        elif _WRONG_DATA.search(line):
            output.trouble(
                f"{test or 'a test'} found wrong data where it had copied to: it has no figures",
                "find out why copies go wrong (driver, PCIe access control, IOMMU) before timing "
                "them",
            )
        elif command := _COMMAND.search(line):
            asked = command[1]
        elif output.device(line):
            pass
        elif line.strip() and "bandwidth" in line.lower():
            title = line
    _place(output, unnamed, asked)
    if summed and not any(tables for tests in output.runs for tables in tests.values()):
        output.trouble(
            "it has the sums of tests and not their tables: a sum adds up cells and is no rate of "
            "anything",
            "give the whole output of the tool",
        )


def _place(output: _Output, unnamed: list[Table], name: str) -> None:
    """Give tables above which no test was named to the one that their sum or title names."""
    for table in unnamed:
        fits = bool(name) and rows_are_host(name) == ("CPU(row" in table.title)
        test = name if fits else named_by_title(table.title)
        if test:
            output.runs[-1].setdefault(test, []).append(table)
        else:
            output.draft.note(
                f"a table ({one_line(table.title.strip()) or 'without a title'}) is of a test that "
                "is not named: it is left out"
            )
    unnamed.clear()


def _waived(test: str) -> str:
    """Why a test was passed over."""
    between = any(word in test for word in ("device_to_device", "all_to_one", "one_to_all"))
    why = "no two GPUs reach each other's memory" if between else "the machine cannot do it"
    if test.startswith("multinode"):
        why = "it needs several nodes, started by MPI"
    return f"{test} was waived: {why}"


def _limit(draft: Draft, runs: Sequence[dict[str, list[Table]]]) -> None:
    if len(runs) + len(runs[-1]) > _MOST_TESTS:
        raise draft.fail("holds too many tests", remedy="give the output of one run")


def _from_json(output: _Output, text: str) -> None:
    draft = output.draft
    documents, cuts = find_json(text, file=draft.file)
    for sentence in cuts:
        draft.note(sentence)
    output.runs.clear()
    for document, line in documents:
        inner = document.get("nvbandwidth", document)
        cases = inner.get("testcases") if isinstance(inner, dict) else None
        if not isinstance(cases, list) or not isinstance(inner, dict):
            continue
        for text_of in _texts(inner.get("GPU Device list")):
            output.device(text_of)
        tests: dict[str, list[Table]] = {}
        for case in cases[:_MOST_TESTS]:
            _add_case(output, case, tests, line)
        output.runs.append(tests)
    if not output.runs:
        raise draft.fail("has no test cases", remedy="give the output of nvbandwidth --json")


def _texts(value: Any) -> list[str]:
    return [t[:400] for t in value if isinstance(t, str)] if isinstance(value, list) else []


def _add_case(output: _Output, case: Any, tests: dict[str, list[Table]], line: int) -> None:
    draft = output.draft
    name = case.get("name") if isinstance(case, dict) else None
    if not isinstance(name, str):
        draft.note("a test case without a name is left out")
        return
    rows = case.get("bandwidth_matrix")
    if rows is None:
        status = one_line(case.get("status", "no status"))
        output.trouble(
            _waived(one_line(name))
            if status.lower() == "waived"
            else f"{one_line(name)} has no figures ({status})"
        )
        return
    if name in tests:
        draft.note(f"{one_line(name)} stands twice: the first is used")
        return
    if not isinstance(rows, list) or not all(isinstance(r, list) for r in rows):
        raise draft.fail(
            f"the figures of {one_line(name)} are no table",
            line=line,
            remedy="give the output of nvbandwidth --json as it was printed",
        )
    width = max((len(r) for r in rows), default=0)
    if width > MAX_COLUMNS:
        raise draft.fail(
            f"{one_line(name)} has {width} columns", line=line, remedy="give one machine's output"
        )
    if any(len(r) != width for r in rows):
        draft.note(f"{one_line(name)} has rows of different lengths: short ones are filled up")
    cells = [[number(c) for c in r] + [None] * (width - len(r)) for r in rows]
    if not cells or not width:
        return
    description = case.get("bandwidth_description")
    title = description if isinstance(description, str) else ""
    tests[name] = _split(name, title, cells, width, line)


def _split(
    name: str, title: str, cells: list[list[float | None]], width: int, line: int
) -> list[Table]:
    """The tables of a case: a test that prints three leaves their rows one below the other."""
    columns = [f"gpu{k}" for k in range(width)]
    host = rows_are_host(name)

    def table(part: Sequence[list[float | None]], title: str) -> Table:
        rows = [("" if host else f"gpu{k}", row, line) for k, row in enumerate(part)]
        return Table(title=title, columns=columns, rows=rows)

    if not host and len(cells) == 3 * width:
        return [
            table(cells[k * width : (k + 1) * width], part)
            for k, part in enumerate(("1 bandwidth", "2 bandwidth", "total"))
        ]
    return [table(cells[:width] if not host else cells[:1], title)]


NVBANDWIDTH: Final = Importer(
    name="nvbandwidth",
    title="nvbandwidth",
    looks_like=looks_like_nvbandwidth,
    parse=parse_nvbandwidth,
)
"""The importer that the registry lists."""
