"""Endpoint names as people write them: ``3`` for ``gpu3``, in any case."""

from __future__ import annotations

import re
from collections.abc import Sequence

from topocal.topo.errors import InputError, UnknownEndpointError, Where, one_line

__all__ = [
    "canonical_endpoint",
    "endpoint_list",
    "plain_arrows",
    "resolve_endpoint",
    "split_list",
]

_ARROWS = str.maketrans({"→": "->", "←": "<-", "↔": "<->"})


def plain_arrows(text: str) -> str:
    """A text whose arrows are written as they are typed.

    >>> plain_arrows("3←4,5 + 0↔1")
    '3<-4,5 + 0<->1'
    """
    return text.translate(_ARROWS)


def split_list(text: str, *, of: str, blanks: bool = True) -> list[str]:
    """The words of a list that is divided by commas or blanks.

    Parameters
    ----------
    of
        What it is a list of, in the plural.
    blanks
        Whether blanks divide, too; sizes may have some (``1 MiB``).

    Raises
    ------
    InputError
        When it is empty, or there is nothing between two commas.

    >>> split_list("0, 1,nic0", of="endpoints")
    ['0', '1', 'nic0']
    """
    parts = [part.split() if blanks else [part.strip()] for part in text.split(",")]
    if not all(parts) or not all(word for words in parts for word in words):
        raise InputError(
            f"{one_line(text)!r} is no list of {of}", remedy="write them between commas, each once"
        )
    return [word for words in parts for word in words]


def endpoint_list(text: str, endpoints: Sequence[str]) -> list[str]:
    """The endpoints of a list such as ``0,1,nic0``, in its order.

    Raises
    ------
    InputError
        When it is no list, or an endpoint stands in it twice.
    UnknownEndpointError
        When a name stands for none.

    >>> endpoint_list("1,0", ["gpu0", "gpu1"])
    ['gpu1', 'gpu0']
    """
    found: list[str] = []
    for name in split_list(text, of="endpoints"):
        one = resolve_endpoint(name, endpoints)
        if one in found:
            raise InputError(f"endpoint {one} is named twice", remedy="name each once")
        found.append(one)
    return found


def canonical_endpoint(name: str) -> str:
    """The id of an endpoint that only measurements name: a bare number is a GPU's.

    >>> canonical_endpoint(" 3 "), canonical_endpoint("gpu3"), canonical_endpoint("host/nic0")
    ('gpu3', 'gpu3', 'host/nic0')
    """
    name = name.strip()
    return f"gpu{int(name)}" if re.fullmatch(r"[0-9]{1,9}", name) else name


def resolve_endpoint(name: str, endpoints: Sequence[str], *, where: Where | None = None) -> str:
    """The endpoint that a name stands for: its id, in any case, or a GPU's bare number.

    >>> resolve_endpoint("3", ["gpu3", "nic3"])
    'gpu3'

    Raises
    ------
    UnknownEndpointError
        When there is none, or several that differ in case only.
    """
    wanted = canonical_endpoint(name)
    if wanted in endpoints:
        return wanted
    alike = [e for e in endpoints if e.lower() == wanted.lower()]
    if len(alike) == 1:
        return alike[0]
    raise UnknownEndpointError(name.strip(), endpoints, where=where)
