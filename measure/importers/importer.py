"""What an importer is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from topocal.measure.importers.imported import Imported

__all__ = ["Importer"]


class Parse(Protocol):
    """A pure parser: raises :class:`~topocal.topo.errors.TopocalError` and nothing else."""

    def __call__(self, text: str, *, file: str) -> Imported: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """One kind of measurement output.

    Attributes
    ----------
    name
        What people write after ``--as``.
    title
        The tool that prints it.
    looks_like
        Whether a text is of this kind; must be cheap and never raise.
    parse
        The parser.
    """

    name: str
    title: str
    looks_like: Callable[[str], bool]
    parse: Parse
