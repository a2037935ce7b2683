"""Compiled loops: numba's ``njit`` with types kept, and its results cached on disk.

Only the first call on a machine compiles.  numba would keep machine code beside
the source file and renew it when that file changes, but not when a function
that it calls from another file does, and it fails where it may not write.  So
the code is kept in a directory of its own, named by what all kernels say:
``$NUMBA_CACHE_DIR``, or ``$XDG_CACHE_HOME/topocal``, or ``~/.cache/topocal``.
Where that cannot be written, each process compiles for itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config

__all__ = ["compiled", "inlined"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` compiled on its first call, without the interpreter lock while it runs.

    Divisions follow IEEE 754 (by zero: infinite), as in NumPy, and never raise.
    """
    directory = _directory()
    if directory is None:
        return inlined(function)
    before = config.CACHE_DIR
    config.CACHE_DIR = str(directory)
    try:
        made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before
    return cast(Function, made)


def inlined(function: Function) -> Function:
    """A helper that compiled functions call; it is compiled into each of them."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy", forceinline=True)(function))


@cache
def _directory() -> Path | None:
    """Where machine code is kept, made if need be; ``None`` where nothing can be."""
    root = os.environ.get("NUMBA_CACHE_DIR")
    if root is None:
        home = os.environ.get("XDG_CACHE_HOME")
        try:
            root = str((Path(home) if home else Path.home() / ".cache") / "topocal")
        except RuntimeError:  # no home directory
            return None
    content = hashlib.sha256()
    for source in [*sorted(Path(__file__).parent.glob("*_kernel.py")), Path(__file__)]:
        content.update(source.read_bytes())
    directory = Path(root) / f"kernels-{content.hexdigest()[:16]}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK) else None
