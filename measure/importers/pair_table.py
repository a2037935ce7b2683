"""Tables of pair rates that no known tool printed.

Scripts print such tables under titles of their own
(:mod:`topocal.measure.importers.table_titles`), people write them in Markdown or paste them
without the line above.  Bytes go from the row's device to the column's; what neither a
title nor the cells say is taken as GB/s of one flow at a time, and the notes say so.
:func:`both_ways_of` reads such figures again as sums of both directions.  Tables of
weights, hops or access are none of rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.figures import alone, in_order, is_rate, moved
from topocal.measure.importers.imported import Draft, Imported, Latency
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.matrix_forms import plain_matrices
from topocal.measure.importers.table_titles import Title, title_above
from topocal.measure.importers.text_matrix import MAX_COLUMNS, Matrix, header_names, read_matrix
from topocal.measure.samples import Measurements, Sample
from topocal.topo.endpoint_names import canonical_endpoint
from topocal.topo.errors import InputError, UnitError
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import BYTES_PER_GB, rate_unit_Bps

__all__ = [
    "PAIR_TABLE",
    "both_ways_of",
    "looks_like_pair_table",
    "pair_samples",
    "parse_pair_table",
]


def looks_like_pair_table(text: str) -> bool:
    """Whether a text has a table of figures by device and device."""
    return _find_table(_lines(text[:1_000_000])) is not None


def parse_pair_table(text: str, *, file: str) -> Imported:
    """The tables of one text.

    Raises
    ------
    FormatError
        When there is none, or a figure in one is no rate.
    """
    draft = Draft(kind="pair-table", title="a table of pair rates", file=file)
    lines = _lines(text)
    at, number = _find_table(lines), 0
    while at is not None:
        found = read_matrix(lines, at, file=file)
        assert found is not None
        matrix, end = found
        number += 1
        _add(draft, matrix, title_above(lines, at), number)
        at = _find_table(lines, end)
    return draft.done()


def _lines(text: str) -> list[str]:
    """Lines without the marks of Markdown."""
    lines = [line.replace("*", "").replace("`", "") for line in plain_lines(text)]
    return plain_matrices(lines)


def _add(draft: Draft, matrix: Matrix, title: Title, number: int) -> None:
    """One table, by what its title and its cells say."""
    label = title.text or f"table {number} without a title"
    for sentence in matrix.damage(f"the table at line {matrix.line}"):
        draft.note(sentence)
    if title.what == "time":
        latencies = [
            Latency(
                source=canonical_endpoint(row.name),
                destination=canonical_endpoint(column),
                seconds=cell * title.unit_s,
                where=draft.where(row.line),
            )
            for row in matrix.rows
            for column, cell in zip(matrix.columns, row.cells, strict=True)
            if column != row.name and cell is not None and cell > 0
        ]
        draft.add(label, conditions={}, latencies=latencies)
        return
    unit_Bps = title.unit_Bps
    if matrix.unit:
        try:
            unit_Bps = rate_unit_Bps(matrix.unit)
        except UnitError:
            unit_Bps = None
    both = bool(title.both_ways)
    said = f"the table at line {matrix.line} " + (
        f"({title.text})" if title.text else "has no title"
    )
    if title.both_ways is None:
        unit = "" if unit_Bps else "GB/s of "
        draft.note(
            f"{said}: its figures are taken as {unit}one flow at a time; if they are sums of "
            "both directions, say so"
        )
    elif unit_Bps is None:
        draft.note(f"{said} names no unit: its figures are taken as GB/s")
    draft.add(
        label,
        pair_samples(draft, matrix, unit_Bps or BYTES_PER_GB, both_ways=both),
        conditions={
            "direction": "both ways"
            if both
            else "not stated"
            if title.both_ways is None
            else "one way"
        },
    )


def both_ways_of(measurements: Measurements) -> Measurements:
    """A table of pair rates read again as sums of both directions.

    Raises
    ------
    InputError
        When a sample is not one flow alone.
    """
    samples = []
    for sample in measurements.samples:
        if len(sample.pattern.flows) != 1:
            raise InputError(
                f"{sample.name} is not one flow", where=sample.where, remedy="give pairs only"
            )
        samples.append(_both_ways(sample))
    return Measurements.of(samples, measurements.sources)


def _both_ways(one: Sample) -> Sample:
    """The rate of one flow read as the sum of both directions."""
    assert one.where is not None
    (pair,) = one.pattern.pairs
    pairs = in_order(*pair)
    return moved(pairs, one.throughput_Bps, where=one.where, repeat=0 if pairs[0] == pair else 1)


def pair_samples(
    draft: Draft, matrix: Matrix, unit_Bps: float, *, both_ways: bool, backwards: bool = False
) -> list[Sample]:
    """Samples of the cells beside the diagonal; zeros are not measured.

    Parameters
    ----------
    both_ways
        Whether a cell is the sum of both directions.
    backwards
        Whether bytes go from the column's device to the row's.

    Raises
    ------
    FormatError
        When a figure is no rate.
    """
    samples = []
    for row in matrix.rows:
        for column, cell in zip(matrix.columns, row.cells, strict=True):
            if column == row.name or not cell:
                continue
            a, b = canonical_endpoint(row.name), canonical_endpoint(column)
            rate = cell * unit_Bps
            if not is_rate(rate):
                raise draft.fail(
                    f"{cell:g} from {row.name} to {column} is no rate",
                    line=row.line,
                    remedy="check the figure",
                )
            if backwards:
                a, b = b, a
            one = alone(a, b, rate, where=draft.where(row.line))
            samples.append(_both_ways(one) if both_ways else one)
    return samples


def _find_table(lines: Sequence[str], begin: int = 0) -> int | None:
    """Index of a header with a row of figures below it."""
    for at in range(begin, len(lines) - 1):
        names = header_names(lines[at])
        if names is None or not 2 <= len(names) <= MAX_COLUMNS:
            continue
        title = title_above(lines, at)
        if title.what == "other":
            continue
        corner = "\\" in lines[at] or "/" in lines[at] or not lines[at].split()[0][0].isdigit()
        titled = bool(title.text)
        if not corner and not titled and not names[0].startswith("gpu"):
            continue
        found = read_matrix(lines, at, file="")
        if found is not None and found[0].rows and _is_of_figures(found[0]):
            return at
    return None


def _is_of_figures(matrix: Matrix) -> bool:
    """Whether cells beside the diagonal are more than a yes or no for each pair."""
    cells = [
        cell
        for row in matrix.rows
        for column, cell in zip(matrix.columns, row.cells, strict=True)
        if column != row.name and cell is not None
    ]
    return any(cell not in (0.0, 1.0) for cell in cells)


PAIR_TABLE: Final = Importer(
    name="pair-table",
    title="a table of pair rates",
    looks_like=looks_like_pair_table,
    parse=parse_pair_table,
)
"""The importer that the registry lists."""
