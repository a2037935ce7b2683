"""Pages and pictures of the documentation that are made by the program itself.

    python docs/tools/reference.py           write them
    python docs/tools/reference.py --check   say whether they are current (exit status 1: no)

``make reference`` writes them, a test compares them.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

import topocal
from topocal import cli

__all__ = ["PAGES", "commands_page", "machine_picture", "python_page"]

DOCS = Path(__file__).parents[1]

_WIDE = 78
"""Columns of a signature: a code block holds so many."""
_ROLE = re.compile(r":\w+(?::\w+)?:`~?(?:[\w.]*\.)?(\w+)`")


def commands_page() -> str:
    """Every command with its arguments, options and examples, as ``--help`` has them."""
    group: Any = get_command(cli.command_line())
    lines = [
        "# Commands",
        "",
        "Made from the program by `make reference`. `topocal COMMAND --help` says the same.",
        "",
        "| exit status | |",
        "|---|---|",
        "| 0 | done; also when the reader of the output leaves (`topocal … \\| head`) |",
        "| 1 | the answer is “no”: `diff` found drift |",
        "| 2 | bad input, or no room for the output: one line on standard error, with what to do |",
        "| 130 | interrupted by Ctrl-C |",
        "| 143 | ended by SIGTERM, while measuring (timings are in the journal) |",
        "| another | `fabric` ends with the status of the command that it ran |",
        "",
        "`--json` prints [one JSON document](json.md) on standard output. Progress is shown on",
        "standard error, and only in a terminal; so are colours, unless `NO_COLOR` is set. `-` is",
        "standard input wherever a file is read; a file that gzip has packed is unpacked.",
        "Sizes, rates and times are written as people write them: `256MiB`, `1.5 GB`; `25GB/s`,",
        "`200Gb/s`; `5us`, `1.2ms`, `2min`. A bare number is bytes, bytes per second, seconds.",
        "`3` is `gpu3`.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    commands = list(group.commands.items())
    for name, command in commands:
        lines.append(f"| [{name}](#topocal-{name}) | {_cell(command.help.partition(chr(10))[0])} |")
    for name, command in commands:
        lines += ["", f"## topocal {name}", "", *_command(name, command)]
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=f"topocal {name}")
    parameters = command.get_params(context)
    words = [_usage(p) for p in parameters if p.param_type_name == "argument"]
    yield from ("```console", " ".join([f"$ topocal {name} [OPTIONS]", *words]), "```", "")
    yield command.help
    for kind, title in (("argument", "Argument"), ("option", "Option")):
        rows = [p for p in parameters if p.param_type_name == kind]
        if rows:
            yield from ("", f"| {title} | |", "|---|---|", *(_row(p, context) for p in rows))
    yield from ("", "```console", *(f"$ {example}" for example in command.examples), "```")


def _usage(argument: Any) -> str:
    word = argument.metavar + ("…" if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def _row(parameter: Any, context: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar}`"
    else:
        name = ", ".join(f"`{word}`" for word in sorted(parameter.opts, key=len))
        if parameter.secondary_opts:
            name += ", " + ", ".join(f"`{word}`" for word in parameter.secondary_opts)
        if parameter.metavar:
            name += f" `{parameter.metavar}`"
    text = parameter.help
    default = None if parameter.is_eager else parameter.get_default(context)
    if parameter.required:
        text += " *Required.*"
    elif not isinstance(default, bool | types.NoneType | list | tuple):
        text += f" *Default: `{default}`.*"
    return f"| {_cell(name)} | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def python_page() -> str:
    """Every public name with its signature and docstring."""
    lines = [
        "# Python",
        "",
        "Made from the docstrings by `make reference`. All names are those of `import topocal as",
        "tc`; they are loaded when first used. Inside all is SI: bytes, seconds, bytes per second,",
        "and names say so (`size_bytes`, `start_s`, `capacity_Bps`).",
    ]
    names = sorted(topocal.__all__, key=str.lower)
    kinds: list[tuple[str, Callable[[object], bool]]] = [
        ("Functions", inspect.isfunction),
        ("Classes", inspect.isclass),
        ("Modules", inspect.ismodule),
    ]
    for title, belongs in kinds:
        lines += ["", f"## {title}"]
        for name in names:
            found = getattr(topocal, name)
            if belongs(found):
                lines += ["", f"### {name}", "", *_object(name, found)]
    return "\n".join(lines) + "\n"


def _object(name: str, found: Any) -> Iterator[str]:
    if inspect.ismodule(found):
        yield from docstring(found)
        yield ""
        for each in found.__all__:
            one = getattr(found, each)
            if inspect.isfunction(one):
                yield f"- `{name}.{each}{_signature(one)}`: {_first(one)}"
        return
    shown = textwrap.fill(
        f"tc.{name}{_signature(found)}",
        _WIDE,
        subsequent_indent=" " * len(f"tc.{name}("),
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from ("```text", shown, "```", "")
    yield from docstring(found)
    if inspect.isclass(found) and issubclass(found, enum.Enum):
        yield from ("", "| member | word |", "|---|---|")
        yield from (f"| `{one.name}` | `{one.value}` |" for one in found)
        return
    if inspect.isclass(found):
        members = [*_members(found)]
        if members:
            yield from ("", "| member | |", "|---|---|", *members)


def _members(found: type) -> Iterator[str]:
    fields = {f.name for f in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else ()
    for name, value in vars(found).items():
        if name.startswith("_") or name in fields:
            continue
        if isinstance(value, property):
            yield f"| `{name}` | {_cell(_first(value.fget))} |"
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            function = getattr(value, "__func__", value)
            yield f"| `{name}{_cell(_signature(function))}` | {_cell(_first(function))} |"


def _signature(found: Any) -> str:
    if inspect.isclass(found) and issubclass(found, enum.Enum):
        return "(word)"
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return ""
    parameters = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name not in ("self", "cls")
    ]
    returned = signature.return_annotation
    shown = (
        "" if returned is inspect.Signature.empty or inspect.isclass(found) else f" -> {returned}"
    )
    # A default that is a function prints with its address.
    short = re.sub(r"<(?:\w+ )?(\w+) [^>]*at 0x\w+>", r"\1", str(inspect.Signature(parameters)))
    return short + ("" if shown == " -> None" else shown)


def _first(found: Any) -> str:
    return _inline(inspect.cleandoc(found.__doc__ or "").partition("\n\n")[0].replace("\n", " "))


def docstring(found: Any) -> Iterator[str]:
    """A numpydoc docstring in Markdown."""
    lines = inspect.cleandoc(found.__doc__ or "").splitlines()
    in_section = in_code = is_named = is_later = False
    for number, line in enumerate(lines):
        is_blank = number > 0 and not lines[number - 1].strip()
        rule = lines[number + 1] if number + 1 < len(lines) else ""
        if re.fullmatch("-{3,}", line):
            continue
        is_code = line.startswith(">>>") or (in_code and bool(line.strip()))
        if is_code != in_code:
            yield "```pycon" if is_code else "```"
            in_code = is_code
        if is_code:
            yield line
        elif re.fullmatch("-{3,}", rule) and line.strip():
            yield f"**{line}**"
            yield ""
            in_section, is_named, is_later = True, False, False
        elif in_section and line and not line.startswith(" "):
            # A definition list, whose items Python-Markdown does not run into each other.
            if is_later and not is_blank:
                yield ""
            yield f"`{line}`"
            is_named = is_later = True
        elif is_named and line.strip():
            yield f":   {_inline(line.strip())}"
            is_named = False
        else:
            yield _inline(line.removesuffix("::") + ":" if line.endswith("::") else line)
    if in_code:
        yield "```"


def _inline(line: str) -> str:
    return _ROLE.sub(r"`\1`", line).replace("``", "`")


def machine_picture() -> str:
    """The published machine, drawn."""
    from topocal.topo.render.svg import render_svg

    return render_svg(topocal.machines.b70())


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/python.md": python_page,
    "pictures/b70.svg": machine_picture,
}
"""What is made, by its name in docs/."""


def main(arguments: list[str]) -> int:
    """Write the pages, or say which are not current."""
    stale = 0
    for name, make in PAGES.items():
        path = DOCS / name
        content = make()
        if path.exists() and path.read_text() == content:
            continue
        if "--check" in arguments:
            stale += 1
            print(f"docs/{name} is not current: run `make reference`")
        else:
            path.write_text(content)
            print(f"wrote docs/{name}")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
