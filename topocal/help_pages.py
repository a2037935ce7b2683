"""What all commands are: help pages that look alike, and inputs of which none is named twice.

A command's docstring is its help.  Paragraphs of it that are command lines become the panel
*Examples*; whatever an option takes is called FILE, N, NUMBER or NAME unless the option says
more exactly, and flags, which take nothing, are shown without a type.
"""

from __future__ import annotations

import inspect
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from topocal.inputs import refuse_repeats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["FIRST_STEPS", "Command", "Group", "split_examples"]

_COMMAND_LINE = re.compile(r"(?:[\w. -]+\| *)?(?:topocal|torchrun|srun)\b")

_VALUES = {"path": "FILE", "int": "N", "float": "NUMBER", "str": "NAME"}
"""What an option's value is called, by the type that it becomes."""

FIRST_STEPS = (
    "topocal demo",
    "topocal explain topo.txt p2p.txt",
    "topocal predict model.json --fan-in 3:4,5,6,7 --size 256MiB",
)


def split_examples(text: str) -> tuple[str, tuple[str, ...]]:
    """A docstring without the paragraphs that are command lines, and those command lines.

    >>> split_examples("Do it.\\n\\n    topocal do x\\n\\nSlowly.")
    ('Do it.\\n\\nSlowly.', ('topocal do x',))
    """
    prose, examples = [], []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines()]
        if all(map(_COMMAND_LINE.match, lines)):
            examples += lines
        else:
            # Wrapped lines are one paragraph: a terminal has its own width.
            prose.append(" ".join(" ".join(lines).split()))
    return "\n\n".join(prose), tuple(examples)


class Command(TyperCommand):
    """A command whose help ends with its examples, and which reads nothing twice."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help, self.examples = split_examples(self.help or "")

    def invoke(self, ctx: Any) -> Any:
        refuse_repeats(ctx)
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        return _evened(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        _print_examples(self.examples)


class Group(TyperGroup):
    """All commands: their list, and where to begin."""

    def make_context(self, *args: Any, **named: Any) -> Any:
        with _aborting():
            return super().make_context(*args, **named)

    def invoke(self, ctx: Any) -> Any:
        with _aborting():
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        return _evened(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        _print_examples(FIRST_STEPS)


@contextmanager
def _aborting() -> Iterator[None]:
    """Ctrl-C is told by who runs the command line: typer would end without a word."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise typer.Abort from stop


def _evened(parameters: Iterable[Any]) -> list[Any]:
    """The same parameters, each with a word for its value."""
    found = list(parameters)
    for parameter in found:
        if parameter.param_type_name == "argument":
            # Its help says what it is; `<str>` beside it says nothing.
            parameter.display_type_rich = _nothing
        if parameter.metavar is not None:
            continue
        if parameter.param_type_name == "argument":
            name = parameter.name.upper()
            parameter.metavar = name.removesuffix("S") if parameter.nargs == -1 else name
        elif parameter.is_flag:
            parameter.metavar = ""
        else:
            parameter.metavar = _VALUES.get(_type_of(parameter), "VALUE")
    return found


def _nothing(ctx: object) -> str:
    return ""


def _type_of(parameter: Any) -> str:
    name = getattr(getattr(parameter, "type", None), "name", None)
    if name is None:
        name = getattr(parameter, "bare_type", str)()
    words = re.findall(r"[a-z]+", str(name).lower())
    return next((word for word in reversed(words) if word in _VALUES), "str")


def _print_examples(examples: tuple[str, ...]) -> None:
    if not examples:
        return
    from rich.panel import Panel
    from rich.text import Text
    from typer import rich_utils

    text = Text("\n".join(examples), overflow="fold")
    # The console of the panels above it, so that colours and width are theirs.
    rich_utils._get_rich_console().print(
        Panel(text, title="Examples", title_align="left", border_style="dim", padding=(0, 1))
    )
