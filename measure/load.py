"""Measurements from any mix of files: what each one is, its content says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from topocal.measure.calibration import decode_calibration
from topocal.measure.importers.registry import import_all, sniff_or_none
from topocal.measure.importers.tables import parse_table
from topocal.measure.merging import merge
from topocal.measure.samples import Measurements
from topocal.topo.errors import InputError, Where, file_words
from topocal.topo.io import read_bytes
from topocal.topo.readers.archive import inflate
from topocal.topo.readers.reader import decode_text

__all__ = ["load", "parse_measurements"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def load(paths: str | Path | Iterable[str | Path], *, ignoring: Iterable[str] = ()) -> Measurements:
    """The samples of one file or several together: calibration.json, tables of figures, and
    what measuring tools print (:mod:`topocal.measure.importers.registry`).

    Parameters
    ----------
    ignoring
        Provenance keys in which the files may differ
        (:data:`topocal.measure.provenance.KEYS`).

    Raises
    ------
    InputError
        When a file cannot be read, is no measurement, or is damaged; when two files are
        the same; when two were measured under different conditions.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InputError("no files", remedy="name at least one file with measurements")
    seen: dict[bytes, str] = {}
    parts = []
    for path in given:
        file = file_words(path)
        content = inflate(read_bytes(path), file=file)
        digest = hashlib.sha256(content).digest()
        if digest in seen:
            raise InputError(
                f"is the same as {seen[digest]}; its samples would count twice",
                where=Where(file=file),
                remedy="name it once",
            )
        seen[digest] = file
        parts.append(parse_measurements(content, file=file))
    return merge(parts, ignoring=ignoring)


def parse_measurements(content: bytes, *, file: str) -> Measurements:
    """The samples in the bytes of one file, whichever kind it is.

    Raises
    ------
    FormatError
        When it is none of the kinds, or damaged.
    InputError
        When a figure in it is not possible.
    """
    stripped = content.removeprefix(_BYTE_ORDER_MARK)
    if stripped.lstrip()[:1] == b"{" and b'"topocal/' in stripped[:4096]:
        return decode_calibration(stripped, file=file)
    text = decode_text(content, file=file)
    importer = sniff_or_none(text)
    if importer is not None:
        found = import_all(text, file=file)
        usable = [f for f in found if f.usable]
        return merge([f.best() for f in usable or found[:1]])
    if stripped.lstrip()[:1] == b"{":
        return decode_calibration(stripped, file=file)
    return Measurements.of(parse_table(text, file=file), [file])
