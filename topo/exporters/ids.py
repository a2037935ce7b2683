"""Ids that another format can hold, no two the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from topocal.topo.exporters.xml_text import xml_safe

__all__ = ["distinct_ids"]


def distinct_ids(names: Iterable[str], clean: Callable[[object], str] = xml_safe) -> dict[str, str]:
    """Each name's id: the name without what the format cannot hold, numbered where that clashes.

    >>> distinct_ids(["a", "b\\x00", "b?"])
    {'a': 'a', 'b\\x00': 'b?', 'b?': 'b?#2'}
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        base = fitting = clean(name)
        number = 1
        while fitting in taken:
            number += 1
            fitting = f"{base}#{number}"
        taken.add(fitting)
        found[name] = fitting
    return found
