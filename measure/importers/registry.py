"""All importers, and which of them a text is for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from topocal.measure.importers.bandwidth_test import BANDWIDTH_TEST
from topocal.measure.importers.collectives import COLLECTIVES
from topocal.measure.importers.comm_scope import COMM_SCOPE
from topocal.measure.importers.deepspeed_links import DEEPSPEED_LINKS
from topocal.measure.importers.imb import IMB
from topocal.measure.importers.imported import Imported
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.json_text import begins_json
from topocal.measure.importers.mpigraph import MPIGRAPH
from topocal.measure.importers.nccl_tests import NCCL_TESTS
from topocal.measure.importers.nixlbench import NIXLBENCH
from topocal.measure.importers.nvbandwidth import NVBANDWIDTH
from topocal.measure.importers.osu import OSU
from topocal.measure.importers.p2p_bandwidth import P2P_BANDWIDTH
from topocal.measure.importers.pair_lines import PAIR_LINES
from topocal.measure.importers.pair_table import PAIR_TABLE
from topocal.measure.importers.perftest import PERFTEST
from topocal.measure.importers.ping_pong import PING_PONG
from topocal.measure.importers.rate_table import RATE_TABLE
from topocal.measure.importers.rocm_bandwidth import ROCM_BANDWIDTH
from topocal.measure.importers.rvs import RVS
from topocal.measure.importers.shift_rates import SHIFT_RATES
from topocal.measure.importers.simple_p2p import SIMPLE_P2P
from topocal.measure.importers.superbench_copy import SUPERBENCH_COPY
from topocal.measure.importers.taccl import TACCL
from topocal.measure.importers.transferbench import TRANSFERBENCH
from topocal.measure.importers.ucx import UCX
from topocal.topo.errors import FormatError, InputError, TopocalError, Where, one_line
from topocal.topo.readers.paste import undress
from topocal.topo.readers.reader import read_text

__all__ = ["IMPORTERS", "import_all", "import_any", "import_file", "sniff", "sniff_or_none"]

IMPORTERS: tuple[Importer, ...] = (
    P2P_BANDWIDTH,
    NVBANDWIDTH,
    NCCL_TESTS,
    TRANSFERBENCH,
    ROCM_BANDWIDTH,
    BANDWIDTH_TEST,
    SIMPLE_P2P,
    SUPERBENCH_COPY,
    COMM_SCOPE,
    TACCL,
    DEEPSPEED_LINKS,
    OSU,
    IMB,
    PERFTEST,
    MPIGRAPH,
    RVS,
    UCX,
    PING_PONG,
    NIXLBENCH,
    COLLECTIVES,
    SHIFT_RATES,
    RATE_TABLE,
    PAIR_TABLE,
    PAIR_LINES,
)
"""In the order they are asked: the most particular first."""


_NAMELESS: Final = (COLLECTIVES, SHIFT_RATES, RATE_TABLE, PAIR_TABLE, PAIR_LINES)
"""Kinds that no tool's words tell: asked last, when what surrounds a paste is off as well."""

_BESIDE: Final = (P2P_BANDWIDTH, NVBANDWIDTH, NCCL_TESTS, BANDWIDTH_TEST, SIMPLE_P2P)
"""Tools whose outputs stand below one another in one paste; each knows its own lines."""


def sniff_or_none(text: str) -> Importer | None:
    """The importer for a text, by its content; ``None`` when there is none."""
    found = _sniff(text)
    return None if found is None else found[0]


def sniff(text: str, *, file: str) -> Importer:
    """The importer for a text, by its content.

    Raises
    ------
    FormatError
        When no importer knows it.
    """
    return _sniff_or_fail(text, file)[0]


def _sniff(text: str) -> tuple[Importer, str] | None:
    """The importer, and the text as it is or without what surrounds it."""
    named = [i for i in IMPORTERS if i not in _NAMELESS]
    for importers, prepare in ((named, str), (named, undress), (_NAMELESS, str)):
        shape = prepare(text)
        for importer in importers:
            if importer.looks_like(shape):
                return importer, shape
    return None


def _sniff_or_fail(text: str, file: str) -> tuple[Importer, str]:
    found = _sniff(text)
    if found is None:
        raise FormatError(
            f"is no measurement of a known kind (begins with {one_line(text[:60])!r})",
            where=Where(file=file),
            remedy="name its kind, one of " + ", ".join(i.name for i in IMPORTERS),
        )
    return found


def import_any(text: str, *, file: str, kind: str | None = None) -> Imported:
    """Read a text with the importer called ``kind``, or the one that its content names.

    Raises
    ------
    InputError
        When there is no such kind, or a figure in the text is not possible.
    FormatError
        When the text is of no known kind, or damaged.
    """
    if kind is None:
        importer, shape = _sniff_or_fail(text, file)
        try:
            return importer.parse(shape, file=file)
        except FormatError:
            # What surrounds it may be what is wrong.
            bare = undress(shape)
            if bare == shape or not importer.looks_like(bare):
                raise
            with suppress(FormatError):
                return importer.parse(bare, file=file)
            raise
    for importer in IMPORTERS:
        if importer.name == kind:
            return importer.parse(text, file=file)
    raise InputError(
        f"unknown kind {one_line(kind)!r}",
        remedy="use one of " + ", ".join(i.name for i in IMPORTERS),
    )


def import_all(text: str, *, file: str) -> tuple[Imported, ...]:
    """All that one paste holds: people put the outputs of several tools below one another.

    The first is what :func:`import_any` finds, whose notes name what could not be read of
    the others.

    Raises
    ------
    InputError, FormatError
        As :func:`import_any`.
    """
    first = import_any(text, file=file)
    if first.kind not in {importer.name for importer in _BESIDE} or begins_json(text):
        return (first,)
    found, notes = [first], list(first.notes)
    for importer in _BESIDE:
        if importer.name == first.kind or not importer.looks_like(undress(text)):
            continue
        try:
            found.append(importer.parse(text, file=file))
        except TopocalError as error:
            notes.append(f"the figures of {importer.title} are left out: {error.what}")
    return (replace(found[0], notes=tuple(notes)), *found[1:])


def import_file(path: str | Path, *, kind: str | None = None) -> Imported:
    """Read a file; as :func:`import_any`."""
    return import_any(read_text(path), file=str(path), kind=kind)
