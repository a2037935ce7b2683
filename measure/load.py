"""Measurements from any mix of files: what each one is, its content says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from topocal.measure.calibration import decode_calibration
from topocal.measure.importers.registry import import_all, sniff_or_none
from topocal.measure.importers.tables import parse_table
from topocal.measure.merging import merge
from topocal.measure.samples import Measurements
from topocal.topo.errors import InputError, Where, file_words
from topocal.topo.io import read_bytes, stated_format
from topocal.topo.readers.archive import inflate
from topocal.topo.readers.reader import decode_text
from topocal.topo.strict_json import decoded_if_marked

__all__ = ["load", "parse_measurements"]


def load(
    paths: str | Path | Iterable[str | Path],
    *,
    ignoring: Iterable[str] = (),
    tell: Callable[[str], None] | None = None,
) -> Measurements:
    """The samples of one file or several together: calibration.json, tables of figures, and
    what measuring tools print (:mod:`topocal.measure.importers.registry`).

    Parameters
    ----------
    ignoring
        Provenance keys in which the files may differ
        (:data:`topocal.measure.provenance.KEYS`).
    tell
        Is told in sentences how figures were read, and what is passed over.

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
        parts.append(parse_measurements(content, file=file, tell=_naming(path, given, tell)))
    return merge(parts, ignoring=ignoring)


def _naming(
    path: str | Path, all_files: Sequence[str | Path], tell: Callable[[str], None] | None
) -> Callable[[str], None] | None:
    """Tells what is said of one file, by its name where there are several."""
    if tell is None or len(all_files) == 1:
        return tell
    told, name = tell, file_words(Path(path).name)
    return lambda sentence: told(f"{name}: {sentence}")


def parse_measurements(
    content: bytes, *, file: str, tell: Callable[[str], None] | None = None
) -> Measurements:
    """The samples in the bytes of one file, whichever kind it is; ``tell`` as of :func:`load`.

    Raises
    ------
    FormatError
        When it is none of the kinds, or damaged.
    InputError
        When a figure in it is not possible.
    """
    if stated_format(content):
        marked = decoded_if_marked(content)
        plain = marked if isinstance(marked, bytes) else marked.encode()
        return decode_calibration(plain, file=file)
    text = decode_text(content, file=file)
    importer = sniff_or_none(text)
    if importer is not None:
        found = import_all(text, file=file)
        if tell is not None:
            for note in (note for one in found for note in one.notes):
                tell(note)
        usable = [f for f in found if f.usable]
        return merge([f.best() for f in usable or found[:1]])
    if text.lstrip()[:1] == "{":
        return decode_calibration(text.encode(), file=file)
    return Measurements.of(parse_table(text, file=file), [file])
