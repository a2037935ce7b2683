"""What a shell is told to complete: endpoints, machines and files, and words to choose from.

A shell asks while somebody types: whatever goes wrong here, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import typer

__all__ = ["choices", "endpoints", "machines"]

_INPUTS = ("model", "topology", "caps", "plan", "like", "fabric")
"""Parameters that say which machine it is, in the order in which they are asked."""

_LAST_NAME = re.compile(r"(.*[:,\s])?([^:,\s]*)", re.DOTALL)
"""A list such as ``3:4,gp``: what stands already, and the name that is being typed."""

_MOST_BYTES = 2**24
"""A larger file takes longer to read than anybody waits for a name."""


def machines(incomplete: str) -> list[str]:
    """Reference machines, and files: a machine may be either."""
    from topocal.topo.machines import MACHINES

    return [*(name for name in MACHINES if name.startswith(incomplete)), *_files(incomplete)]


def endpoints(context: typer.Context, incomplete: str) -> list[str]:
    """Endpoints of the machine that the line names, for the last name of a list.

    An option whose value is still to come keeps typer from telling which word is which: then any
    word may be the machine.
    """
    match = _LAST_NAME.fullmatch(incomplete)
    before, name = ("", incomplete) if match is None else (match[1] or "", match[2])
    given = [str(context.params[one]) for one in _INPUTS if context.params.get(one) is not None]
    words = [word for word in context.args if not word.startswith("-")]
    return [before + known for known in _known([*given, *words]) if known.startswith(name)]


def choices(words: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """One of some words, which are looked up when a shell asks."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words() if word.startswith(incomplete.lower())]

    return complete


def _files(incomplete: str) -> list[str]:
    """Files and folders whose names begin so; the shell's own list gives way to ours."""
    folder, slash, name = incomplete.rpartition("/")
    try:
        found = sorted(Path(f"{folder}{slash}" or ".").iterdir())
    except (OSError, ValueError):
        return []
    hidden = name.startswith(".")
    return [
        f"{folder}{slash}{path.name}" + ("/" if path.is_dir() else "")
        for path in found
        if path.name.startswith(name) and (hidden or not path.name.startswith("."))
    ]


def _known(names: Sequence[str]) -> Sequence[str]:
    """Endpoints of the first of these that is a machine, a model or a plan."""
    from topocal.case import find_case
    from topocal.measure.plan import FORMAT as PLAN
    from topocal.measure.plan import read_plan
    from topocal.topo.errors import TopocalError
    from topocal.topo.files import read_limited
    from topocal.topo.io import stated_format

    for name in names:
        try:
            is_file = Path(name).is_file()
            if name == "-" or (is_file and Path(name).stat().st_size > _MOST_BYTES):
                continue
            if is_file and stated_format(read_limited(name)) == PLAN:
                return read_plan(name).endpoints
            return find_case(name).case.topology.endpoints
        except (TopocalError, OSError, ValueError):
            continue
    return ()
