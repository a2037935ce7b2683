"""nvbandwidth, as text and as JSON.

What its tests measure stands in :mod:`topocal.measure.importers.nvbandwidth_tests`.  Text
may have prompts around it and ``[...]`` where somebody cut it; in JSON figures may be
numbers, texts or ``N/A``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from topocal.measure.importers.figures import number
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.json_text import begins_json, find_json
from topocal.measure.importers.nvbandwidth_tests import Table, add_tests, rows_are_host
from topocal.measure.importers.text_matrix import MAX_COLUMNS, header_names, read_matrix
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.errors import one_line
from topocal.topo.readers.paste import plain_lines
from topocal.topo.readers.pci import normal_bus_id

__all__ = ["NVBANDWIDTH", "looks_like_nvbandwidth", "parse_nvbandwidth"]

_RUNNING: Final = re.compile(r"\s{0,8}Running ([a-z][a-z0-9_]{2,80})\.?\s*")
_VERSION: Final = re.compile(r"\s{0,8}nvbandwidth Version:", re.IGNORECASE)
_DEVICE: Final = re.compile(
    r"\s{0,8}(?:Device )?([0-9]{1,4}): ([^():]{1,100}?)\s{0,4}"
    r"(?:\(([0-9A-Fa-f:.]{5,20})\).{0,200})?"
)
_CUT: Final = re.compile(r"\[\s{0,2}(?:\.{3}|\u2026)\s{0,2}\]")
_TEXT: Final = re.compile(
    r"^\s{0,8}Running [a-z0-9_]{3,80}_(?:ce|sm|latency|copy)\b|^\s{0,8}nvbandwidth Version:"
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
    runs = _from_json(draft, text) if begins_json(text) else _from_text(draft, text)
    for k, tests in enumerate(runs, start=1):
        add_tests(draft, str(k), tests)
    draft.prefer_one_run()
    return draft.done()


def _from_text(draft: Draft, text: str) -> list[dict[str, list[Table]]]:
    lines = plain_lines(text)
    runs: list[dict[str, list[Table]]] = [{}]
    test, title, at = "", "", 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if _CUT.search(line):
            draft.note(f"line {at}: somebody cut the output here: what is missing is not known")
            lines[at - 1] = line = _CUT.sub(" ", line)
        if running := _RUNNING.fullmatch(line):
            test, title = running[1], ""
            if test in runs[-1]:
                runs.append({})
            _limit(draft, runs)
            runs[-1].setdefault(test, [])
        elif _VERSION.match(line):
            if runs[-1]:
                runs.append({})
        elif test and header_names(line) is not None:
            kind = "CPU" if rows_are_host(test) else None
            found = read_matrix(lines, at - 1, file=draft.file, row_kind=kind)
            assert found is not None
            matrix, end = found
            at = max(at, end)
            if matrix.cut is not None:
                _, row, cells, of = matrix.cut
                draft.note(
                    f"line {matrix.cut[0]}: row {row} of {test} is cut after {cells} of {of} "
                    "figures"
                )
            runs[-1].setdefault(test, []).append(
                Table(
                    title=title,
                    columns=[canonical_endpoint(c) for c in matrix.columns],
                    rows=[
                        ("" if kind else canonical_endpoint(r.name), r.cells, r.line)
                        for r in matrix.rows
                    ],
                )
            )
        elif device := _DEVICE.fullmatch(line):
            _add_device(draft, device)
        elif line.strip() and "bandwidth" in line.lower():
            title = line
    return runs


def _limit(draft: Draft, runs: Sequence[dict[str, list[Table]]]) -> None:
    if len(runs) + len(runs[-1]) > _MOST_TESTS:
        raise draft.fail("holds too many tests", remedy="give the output of one run")


def _add_device(draft: Draft, device: re.Match[str]) -> None:
    known = {"model": device[2].strip()}
    bus_id = normal_bus_id(device[3] or "")
    if bus_id:
        known["bus_id"] = bus_id
    draft.devices[canonical_endpoint(device[1])] = known


def _from_json(draft: Draft, text: str) -> list[dict[str, list[Table]]]:
    documents, cuts = find_json(text, file=draft.file)
    for sentence in cuts:
        draft.note(sentence)
    runs = []
    for document, line in documents:
        inner = document.get("nvbandwidth", document)
        cases = inner.get("testcases") if isinstance(inner, dict) else None
        if not isinstance(cases, list) or not isinstance(inner, dict):
            continue
        for text_of in _texts(inner.get("GPU Device list")):
            if device := _DEVICE.fullmatch(text_of):
                _add_device(draft, device)
        tests: dict[str, list[Table]] = {}
        for case in cases[:_MOST_TESTS]:
            _add_case(draft, case, tests, line)
        runs.append(tests)
    if not runs:
        raise draft.fail("has no test cases", remedy="give the output of nvbandwidth --json")
    return runs


def _texts(value: Any) -> list[str]:
    return [t[:400] for t in value if isinstance(t, str)] if isinstance(value, list) else []


def _add_case(draft: Draft, case: Any, tests: dict[str, list[Table]], line: int) -> None:
    name = case.get("name") if isinstance(case, dict) else None
    if not isinstance(name, str):
        draft.note("a test case without a name is left out")
        return
    rows = case.get("bandwidth_matrix")
    if rows is None:
        draft.note(f"{one_line(name)} has no figures ({one_line(case.get('status', 'no status'))})")
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
