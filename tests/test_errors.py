"""Errors print as one line: where, what, and what to do."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.topo import errors
from topocal.topo.errors import (
    FormatError,
    InputError,
    NoRouteError,
    TopocalError,
    TopologyError,
    UnknownEndpointError,
    Where,
    one_line,
)


def test_file_line_what_and_remedy() -> None:
    error = FormatError("row is cut", where=Where(file="a.txt", line=7), remedy="paste it whole")
    assert str(error) == "a.txt:7: row is cut; paste it whole"
    assert str(FormatError("row is cut", where=Where(file="a.txt"))) == "a.txt: row is cut"
    assert str(FormatError("row is cut")) == "row is cut"


def test_the_offending_object_comes_along() -> None:
    assert TopologyError("odd", about=[1]).about == [1]


@pytest.mark.parametrize(
    ("name", "known", "message"),
    [
        ("gpu08", ["gpu0", "gpu8"], "unknown endpoint 'gpu08'; did you mean gpu8?"),
        ("x", ["gpu0", "gpu1"], "unknown endpoint 'x'; the machine has gpu0, gpu1"),
        ("x", [], "unknown endpoint 'x'; the machine has none"),
        (
            "x",
            [f"gpu{k}" for k in range(9)],
            "unknown endpoint 'x'; the machine has "
            "gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7, …",
        ),
    ],
)
def test_unknown_endpoint_names_the_closest(name: str, known: list[str], message: str) -> None:
    assert str(UnknownEndpointError(name, known)) == message


@given(st.text())
def test_any_text_becomes_one_printable_line(text: str) -> None:
    shown = one_line(text)
    assert len(shown) <= 80
    assert shown.isprintable()
    assert "\n" not in str(InputError(text, remedy=text))


def test_the_drawn_tree_is_the_real_one() -> None:
    """Each class stands in the docstring's drawing, one step deeper than its base."""
    drawn = {}
    for line in (errors.__doc__ or "").splitlines():
        words = line.replace("│", " ").replace("├──", "   ").replace("└──", "   ").split()
        if words and hasattr(errors, words[0]) and words[0].endswith("Error"):
            drawn[words[0]] = line.index(words[0]) // 4
    real = {
        name: len([c for c in value.__mro__ if issubclass(c, TopocalError)])
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, TopocalError)
    }
    assert drawn == real
    assert issubclass(NoRouteError, TopologyError)
