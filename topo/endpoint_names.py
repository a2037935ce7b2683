"""Endpoint names as people write them: ``3`` for ``gpu3``, in any case."""

from __future__ import annotations

import re
from collections.abc import Sequence

from topocal.topo.errors import UnknownEndpointError, Where

__all__ = ["canonical_endpoint", "resolve_endpoint"]


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
