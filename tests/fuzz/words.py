"""The words of a format: what the source of its reader compares with, and other texts of it.

Both are found, not listed, so that a reader that is new, or that learns a form, is fuzzed in its
own words from the day on that it does.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

__all__ = ["texts_taken", "words_of"]

_TESTS: Final = Path(__file__).parents[1]
_LONGEST_TEXT: Final = 20_000
_LONGEST_WORD: Final = 40
_PIECE: Final = re.compile(r"[A-Za-z0-9_#%<>(){}\[\]/:=.,&*+^| \-]{1,}")
"""Of a pattern's source: what stands in a text as it is, near enough."""


def words_of(modules: Iterable[str]) -> tuple[str, ...]:
    """Every short text in the source of modules and of those beside them that they import."""
    found: dict[str, None] = {}
    for module in _with_neighbours(modules):
        for word in _constants(module):
            for piece in (word, *_PIECE.findall(word)):
                if piece.strip() and len(piece) <= _LONGEST_WORD:
                    found.setdefault(piece)
    return tuple(found)


def _with_neighbours(modules: Iterable[str]) -> tuple[str, ...]:
    """Modules and what they import from their own package, and so on."""
    todo = list(modules)
    seen: dict[str, None] = {}
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen[name] = None
        package = name.rpartition(".")[0]
        for node in ast.walk(_tree(name)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package + "."):
                todo.append(str(node.module))
    return tuple(seen)


@cache
def _tree(name: str) -> ast.Module:
    module: ModuleType = importlib.import_module(name)
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text(encoding="utf-8"))


def _constants(name: str) -> Iterator[str]:
    """The texts in a module that are no docstrings."""
    tree = _tree(name)
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said:
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode("latin-1")


@cache
def _inline_texts() -> tuple[str, ...]:
    """Texts of several lines in the tests' sources: whole files and cut ones."""
    found: dict[str, None] = {}
    for path in sorted(_TESTS.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if 20 < len(text) <= _LONGEST_TEXT and ("\n" in text or text[0] in "{[<"):
                    found.setdefault(text)
    return tuple(found)


def texts_taken(looks_like: Callable[[str], bool], parse: Callable[[str], Any]) -> tuple[str, ...]:
    """Those of the tests' texts that a reader takes."""
    taken = []
    for text in _inline_texts():
        try:
            if looks_like(text):
                parse(text)
                taken.append(text)
        except Exception:  # What is not taken is none of its own.
            continue
    return tuple(taken)
