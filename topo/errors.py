"""Every error that topocal raises on purpose.

::

    TopocalError                    the base; nothing else is raised on purpose
    ├── InputError                  something that a user gave is wrong
    │   ├── FormatError             a file is of another kind, cut off, or breaks its own format
    │   ├── UnitError               a quantity cannot be read ("25 GBs")
    │   ├── UnknownEndpointError    a name that the machine does not have
    │   └── FlowError               a flow that cannot be carried (no size, same start and end)
    ├── TopologyError               a machine description that contradicts itself
    │   └── NoRouteError            two endpoints that nothing connects
    ├── SolverError                 an optimiser did not return a usable answer
    ├── SimulationError             a simulation that makes no progress
    ├── MeasurementError            a process that died, hung, or got the wrong bytes
    └── EmulationError              the system refuses what an emulated fabric needs

Each carries what is wrong, where it stands (file, line) and a remedy, and
prints as one line.  The command line ends with exit status 2 on any of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "EmulationError",
    "FlowError",
    "FormatError",
    "InputError",
    "MeasurementError",
    "NoRouteError",
    "SimulationError",
    "SolverError",
    "TopocalError",
    "TopologyError",
    "UnitError",
    "UnknownEndpointError",
    "Where",
    "file_words",
    "one_line",
    "printable",
]

_LONGEST_QUOTE = 80


def one_line(text: object) -> str:
    """``text`` on one printable line, cut to a length that fits a message."""
    flat = printable(text)
    return flat if len(flat) <= _LONGEST_QUOTE else flat[: _LONGEST_QUOTE - 1] + "…"


def printable(text: object) -> str:
    """``text`` on one line without what a terminal would act upon, or could not show.

    >>> printable("a\\x1b[31m b\\nc\\udcff")
    'a?[31m b c?'
    """
    flat = " ".join(str(text).split())
    return flat if flat.isprintable() else "".join(c if c.isprintable() else "?" for c in flat)


def file_words(path: object) -> str:
    """A file for people: its name; ``-`` is standard input.

    >>> file_words("a/b.txt"), file_words("-")
    ('a/b.txt', 'standard input')
    """
    return "standard input" if str(path) == "-" else str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A place in a user's input: a file and, where known, a line (from 1).

    >>> str(Where(file="flows.csv", line=3)), str(Where(file="-"))
    ('flows.csv:3', 'standard input')
    """

    file: str
    line: int | None = None

    def __str__(self) -> str:
        file = file_words(self.file)
        return file if self.line is None else f"{file}:{self.line}"


class TopocalError(Exception):
    """Base of all errors raised on purpose.

    Parameters
    ----------
    what
        What is wrong, in one line.
    where
        The file and line it stands in, when it came from a file.
    remedy
        What the user can do about it.
    about
        The offending object itself, for callers that catch the error.
    """

    def __init__(
        self,
        what: str,
        *,
        where: Where | None = None,
        remedy: str = "",
        about: object = None,
    ) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        self.about = about
        super().__init__(what)

    def __str__(self) -> str:
        prefix = "" if self.where is None else f"{self.where}: "
        suffix = "" if not self.remedy else f"; {self.remedy}"
        return printable(f"{prefix}{self.what}{suffix}")


class InputError(TopocalError):
    """Something that a user gave is wrong."""


class FormatError(InputError):
    """A file is of another kind, cut off, or breaks its own format."""


class UnitError(InputError):
    """A quantity cannot be read."""


class UnknownEndpointError(InputError):
    """A name that the machine does not have.

    The remedy names the closest endpoint that exists.
    """

    def __init__(self, name: str, known: Iterable[str], *, where: Where | None = None) -> None:
        known = list(known)
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        remedy = f"did you mean {close[0]}?" if close else f"the machine has {shown or 'none'}"
        super().__init__(
            f"unknown endpoint {one_line(name)!r}", where=where, remedy=remedy, about=name
        )


class FlowError(InputError):
    """A flow that cannot be carried."""


class TopologyError(TopocalError):
    """A machine description that contradicts itself."""


class NoRouteError(TopologyError):
    """Two endpoints that nothing connects."""


class SolverError(TopocalError):
    """An optimiser did not return a usable answer."""


class SimulationError(TopocalError):
    """A simulation that makes no progress."""


class MeasurementError(TopocalError):
    """A measurement that could not go on: a process died, hung, or got the wrong bytes.

    Attributes
    ----------
    others_fault
        Whether it is a complaint about another process, whose own failure says more.
    """

    others_fault: bool = False


class EmulationError(TopocalError):
    """The system refuses what an emulated fabric needs, or one has gone."""
