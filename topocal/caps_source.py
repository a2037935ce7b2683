"""Caps as people name them on the command line, and how their transfers are carried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topocal.machine import find_topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topocal.solve.caps import Caps
    from topocal.solve.conditions import Conditions

__all__ = ["conditions_of", "find_caps"]

_MOST_PROCESSES = 10**9
"""No group is larger; a number above is a slip."""


def find_caps(
    name: str,
    *,
    endpoints: Sequence[str] | None = None,
    measured: Conditions | None = None,
    digest: str | None = None,
) -> Caps:
    """Caps from caps.json, model.json, or a machine by its specification.

    Parameters
    ----------
    endpoints
        Endpoint of each process; not for caps.json, which has its own.
    measured
        Conditions of the calibration, where the file does not say them.
    digest
        The digest that the caps must have.

    Raises
    ------
    InputError
        When it is none of these, is damaged, or has another digest.
    """
    import os
    from dataclasses import replace

    from topocal.solve.caps import caps_of
    from topocal.solve.caps_document import FORMAT, caps_from_document, require_digest
    from topocal.solve.model import FORMAT as MODEL
    from topocal.solve.model import read_model
    from topocal.solve.nominal_model import nominal_model
    from topocal.topo.endpoint_names import resolve_endpoint
    from topocal.topo.errors import InputError, Where
    from topocal.topo.io import decode_document, read_bytes, stated_format

    kind = ""
    content = b""
    if name == "-" or os.path.lexists(name):
        content = read_bytes(name)
        kind = stated_format(content)
    if kind == FORMAT:
        from topocal.solve.caps_document import VERSION

        document = decode_document(content, format=FORMAT, version=VERSION, file=name)
        found = caps_from_document(document, file=name, digest=digest)
        if endpoints or measured is not None:
            raise InputError(
                "are caps already, of the processes and conditions that stand in them",
                where=Where(file=name),
                remedy="give the model",
            )
        return found
    model = read_model(name) if kind == MODEL else nominal_model(find_topology(name))
    chosen = [resolve_endpoint(e, model.topology.endpoints) for e in endpoints or ()]
    found = caps_of(model, chosen or None)
    if measured is not None:
        found = replace(found, calibration=found.calibration.completed(measured))
    if digest is not None:
        require_digest(found, digest, file=name)
    return found


def conditions_of(
    group_size: int | None, backend: str | None, settings: Sequence[str] | None
) -> Conditions | None:
    """Conditions from options; ``None`` where none is given.

    Raises
    ------
    InputError
        When a setting is not of the form NAME=VALUE or stands twice, the backend has no name,
        or the group has no two processes, or more than there are.
    """
    from topocal.solve.conditions import Conditions
    from topocal.topo.errors import InputError, one_line

    if group_size is None and backend is None and not settings:
        return None
    if group_size is not None and not 2 <= group_size <= _MOST_PROCESSES:
        raise InputError(f"a group of {group_size}", remedy="give the number of processes")
    if backend is not None and not backend.strip():
        raise InputError("a backend without a name", remedy="give one, such as nccl")
    found = {}
    for text in settings or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"{one_line(text)!r} is not of the form NAME=VALUE",
                remedy="write it so, such as NCCL_P2P_LEVEL=SYS",
            )
        if name.strip() in found:
            raise InputError(f"{one_line(name.strip())!r} is set twice", remedy="say it once")
        found[name.strip()] = value.strip()
    return Conditions(group_size=group_size, backend=backend, settings=found or None)
