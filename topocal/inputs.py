"""What a command reads, looked at before any of it is read: nothing is named twice.

A file that is named twice agrees with itself, counts twice, or is not what was meant; and
standard input can be read once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["refuse_repeats"]

_WORDS = frozenset({"command", "shell"})
"""Arguments that are no inputs."""

_OPTIONS = frozenset({"topology"})
"""Options that are inputs beside the arguments.

Not among them is what stands for the machine a second time, such as ``calibrate --simulate``.
"""


def refuse_repeats(context: Any) -> None:
    """Refuse a command line whose inputs are not as many files.

    Raises
    ------
    InputError
        When two of them are one file, or both are standard input.
    """
    seen: list[str] = []
    for name in _inputs(context):
        if any(_are_one(name, other) for other in seen):
            from topocal.topo.errors import InputError, Where

            raise InputError("is named twice", where=Where(file=name), remedy="name each file once")
        seen.append(name)


def _inputs(context: Any) -> Iterator[str]:
    for parameter in context.command.params:
        is_argument = parameter.param_type_name == "argument"
        if parameter.name in (_OPTIONS if not is_argument else ()) or (
            is_argument and parameter.name not in _WORDS
        ):
            value = context.params.get(parameter.name)
            several = value if isinstance(value, list | tuple) else [value]
            yield from (str(one) for one in several if one is not None)


def _are_one(one: str, other: str) -> bool:
    if one == "-" or other == "-":
        return one == other
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        # Not there: the name of a machine, or to be told when it is read.
        return False
