"""Lines that go on below their beginning, and nothing in them that acts."""

from __future__ import annotations

import io

from rich.console import Console

from topocal.console import print_indented


def _printed(text: str, *, width: int = 40, first: str = "  ", bold: str = "") -> list[str]:
    out = Console(file=io.StringIO(), width=width, highlight=False)
    print_indented(out, text, first, bold)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_a_long_line_goes_on_below_its_beginning() -> None:
    text = "the data allows 12 ms to 25 ms; not known well: socket0->socket1"
    assert _printed(text, first="- ") == [
        "- the data allows 12 ms to 25 ms; not",
        "  known well: socket0->socket1",
    ]


def test_a_name_is_not_broken_however_narrow() -> None:
    name = "node0/a-name-with-hyphens->node1/another-one"
    assert _printed(name, width=20) == [f"  {name}"]


def test_a_word_before_it_is_bold_and_part_of_the_line() -> None:
    assert _printed(": slow", first="- ", bold="warning") == ["- warning: slow"]
    out = Console(file=io.StringIO(), width=40, force_terminal=True, color_system="standard")
    print_indented(out, ": slow", "- ", "warning")
    assert isinstance(out.file, io.StringIO)
    assert "\x1b[1mwarning\x1b[0m: slow" in out.file.getvalue()


def test_nothing_in_it_acts() -> None:
    assert _printed("[bold]gpu0[/bold] :warning: \x1b[31mred") == [
        "  [bold]gpu0[/bold] :warning: ?[31mred"
    ]
