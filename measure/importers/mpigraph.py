"""mpiGraph: the rates of all pairs of ranks, everyone sending at once.

What the figures are (mpiGraph.c in LLNL/mpiGraph): in step k each rank sends to the one k
places on while it receives from the one k places back; a row of ``Send`` has the rates of
its rank's sends, each over its own time, in 10**6 bytes per second.  So a step is one
pattern of as many flows as there are ranks, and the figures along a diagonal belong to it.
``Recv`` tells the same flows as their receivers saw them, and is not used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.figures import finishing, is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.samples import Sample
from topocal.topo.errors import Where
from topocal.topo.readers.paste import plain_lines

__all__ = ["MPIGRAPH", "looks_like_mpigraph", "parse_mpigraph"]

TITLE: Final = "mpiGraph"

_SIZE: Final = re.compile(r"Msg ?Size:?\s{1,8}([0-9]{1,12})")
_HEADER: Final = re.compile(
    r"\s{0,8}Send\s{1,16}(\S{1,80}:[0-9]{1,6}(?:\s{1,16}\S{1,80}:[0-9]{1,6}){1,1023})\s*"
)
_ROW: Final = re.compile(r"\s{0,8}(\S{1,80}:[0-9]{1,6})\s{1,8}to\s{1,8}([0-9.\s]{1,20000})")
_MB: Final = 1e6
_BAD: Final = re.compile(r"[^\w.:\-]")


def looks_like_mpigraph(text: str) -> bool:
    """Whether a text has the benchmark's matrix of sends."""
    return "Send" in text and any(
        _HEADER.fullmatch(line) for line in text.split("\n") if "Send" in line[:12]
    )


def parse_mpigraph(text: str, *, file: str) -> Imported:
    """The steps of one run.

    Raises
    ------
    FormatError
        When there is no whole matrix.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="mpigraph", title=TITLE, file=file)
    names: list[str] = []
    size: float | None = None
    rows: dict[str, tuple[list[float], Where]] = {}
    for number, line in enumerate(plain_lines(text), 1):
        if (stated := _SIZE.search(line)) is not None:
            size = float(stated[1]) or None
        elif (header := _HEADER.fullmatch(line)) is not None:
            names, rows = header[1].split(), {}
        elif names and (row := _ROW.fullmatch(line)) is not None and row[1] in names:
            values = [to_number(word) for word in row[2].split()]
            if len(values) == len(names) and None not in values:
                rows.setdefault(row[1], ([v or 0.0 for v in values], draft.where(number)))
    if names and len(rows) < len(names):
        raise draft.fail(
            f"has {len(rows)} whole rows of sends for {len(names)} ranks",
            remedy="give the whole output: what one rank sends, all the others do at once",
        )
    draft.add(
        "everyone to the one k places on",
        _steps(names, rows, size),
        conditions={"direction": "several at once", "statistic": "mean"},
    )
    return draft.done()


def _steps(
    names: Sequence[str], rows: dict[str, tuple[list[float], Where]], size: float | None
) -> list[Sample]:
    called = [_BAD.sub("_", name) for name in names]
    n = len(names)
    samples = []
    for step in range(1, n):
        rates = [rows[name][0][(k + step) % n] * _MB for k, name in enumerate(names)]
        if all(map(is_rate, rates)):
            pairs = [(called[k], called[(k + step) % n]) for k in range(n)]
            samples.append(finishing(pairs, rates, where=rows[names[0]][1], size_bytes=size))
    return samples


MPIGRAPH: Final = Importer(
    name="mpigraph",
    title=TITLE,
    looks_like=looks_like_mpigraph,
    parse=parse_mpigraph,
)
"""The importer that the registry lists."""
