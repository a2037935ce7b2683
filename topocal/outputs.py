"""Outputs that would take the place of what a command reads, or of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["refuse_overwriting"]


def refuse_overwriting(
    outputs: Path | Sequence[Path | None] | None, inputs: Sequence[str | Path | None]
) -> None:
    """An output that is one of the inputs, or another output, is a slip.

    Parameters
    ----------
    outputs
        Where to write; ``None`` where that is not asked for.
    inputs
        What is read: files, and names of machines that are none.

    Raises
    ------
    InputError
        When it is, or when it is a folder; nothing has been written then.
    """
    import os
    from pathlib import Path

    from topocal.topo.errors import InputError, Where

    several = [outputs] if outputs is None or isinstance(outputs, Path) else list(outputs)
    wanted = [os.path.realpath(one) for one in several if one is not None]
    # A name of a machine, such as b70, is no file, and a file of that name may be made.
    read = {os.path.realpath(one) for one in inputs if one is not None and os.path.lexists(one)}
    for k, path in enumerate(wanted):
        where = Where(file=[str(one) for one in several if one is not None][k])
        if path in read or path in wanted[:k]:
            raise InputError(
                "is what is read" if path in read else "is written twice",
                where=where,
                remedy="write elsewhere",
            )
        if os.path.isdir(path):  # noqa: PTH112 - a name that is too long is told when written
            # Told now, not after what may have taken an hour.
            raise InputError(
                "cannot be written: is a directory", where=where, remedy="name a file in it"
            )
