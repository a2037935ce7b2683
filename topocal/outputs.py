"""Where a command is to write, looked at before any work is done.

One question for every output of every command: does it take the place of what is read or of
another output, can it be written at all, and does its name say a format that it can have.
Writing itself is :func:`topocal.topo.files.write_atomically`, which asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["check_outputs"]

_SUFFIX = {
    "JSON": ".json",
    "CSV": ".csv",
    "SVG": ".svg",
    "HTML": ".html",
    "XML": ".xml",
    "GraphML or XML": ".graphml",
    "DOT": ".dot",
    "an archive": ".tar.gz",
}
"""What names end in, by what files hold."""

_SAYS = {suffix: held for held, suffix in _SUFFIX.items() if " or " not in held} | {
    ".htm": "HTML",
    ".xhtml": "HTML",
    ".graphml": "GraphML",
    ".gv": "DOT",
    ".gz": "an archive",
    ".tgz": "an archive",
    ".tar": "an archive",
    ".zip": "ZIP",
    ".pdf": "PDF",
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".gif": "GIF",
    ".md": "Markdown",
    ".xlsx": "a spreadsheet",
    ".yaml": "YAML",
    ".yml": "YAML",
}
"""What a name says that its file holds."""


def check_outputs(
    outputs: Path | Sequence[Path | None] | None,
    inputs: Sequence[str | Path | None] = (),
    *,
    formats: Sequence[str] = ("JSON",),
    writes: bool = True,
) -> None:
    """What cannot be written, or should not, is told now and not after an hour of work.

    Parameters
    ----------
    outputs
        Where to write; ``None`` where that is not asked for.
    inputs
        What is read: files, and names of machines that are none.
    formats
        What each output will hold: JSON, SVG, HTML, XML, DOT, an archive; the last one is that of
        all further outputs. Of ``JSON or CSV`` the name says which.
    writes
        Whether this process will write: of a group, the first one does, on its own host.

    Raises
    ------
    InputError
        When an output is one of the inputs or another output, has another suffix, or cannot be
        written; nothing has been written then.
    """
    import os
    from pathlib import Path

    from topocal.topo.errors import InputError, Where
    from topocal.topo.files import require_writable

    several = [outputs] if outputs is None or isinstance(outputs, Path) else list(outputs)
    several_formats = [*formats, *[formats[-1]] * len(several)]
    for one, held in zip(several, several_formats, strict=False):
        if one is not None and held == "JSON or CSV" and _said(one) not in ("JSON", "CSV"):
            raise InputError(
                "is neither .csv nor .json",
                where=Where(file=str(one)),
                remedy="name it after its format",
            )
    wanted = [(path, _place(path)) for path in several if path is not None]
    # A name of a machine, such as b70, is no file, and a file of that name may be made.
    read = {_place(one) for one in inputs if one is not None and os.path.lexists(one)}
    for k, (path, place) in enumerate(wanted):
        twice = place in [other for _, other in wanted[:k]]
        if twice or place in read:
            raise InputError(
                "is written twice" if twice else "is what is read",
                where=Where(file=str(path)),
                remedy="write elsewhere",
            )
    for path, _ in wanted if writes else ():
        require_writable(path)
    for one, held in zip(several, several_formats, strict=False):
        said = "" if one is None else _said(one)
        if one is not None and said and said not in held:
            raise InputError(
                f"would hold {held}, and its name says {said}",
                where=Where(file=str(one)),
                remedy=f"call it {one.with_suffix(_SUFFIX[held]).name}",
            )


def _said(path: Path) -> str:
    """What a file's name says that it holds; empty where it says nothing that is known."""
    return _SAYS.get(path.suffix.lower(), "")


def _place(path: str | Path) -> str:
    """Where a file really lies; in a folder that has been deleted, what it is called."""
    import os

    try:
        return os.path.realpath(path)
    except OSError:
        return str(path)
