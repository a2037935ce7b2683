"""Compiled loops: numba's ``njit`` with types kept and its results cached on disk.

numba keeps the machine code beside the source file, or in the user's cache
directory where that is not writable (``NUMBA_CACHE_DIR`` names another place),
so that only the first call on a machine compiles.  Where neither can be
written, each process compiles for itself.

numba notices changes of a function's own file only.  A compiled function may
therefore call compiled functions of its own file, and none of another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled", "inlined"]

Function = TypeVar("Function", bound=Callable[..., Any])

_NO_CACHE_DIRECTORY = "cannot cache function"


def compiled(function: Function) -> Function:
    """``function`` compiled on its first call, without the interpreter lock while it runs.

    Divisions follow IEEE 754 (by zero: infinite), as in NumPy, and never raise.
    """
    try:
        made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError as error:
        if _NO_CACHE_DIRECTORY not in str(error):
            raise
        made = numba.njit(nogil=True, error_model="numpy")(function)
    return cast(Function, made)


def inlined(function: Function) -> Function:
    """A compiled helper that is only called by compiled functions of the same file."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy")(function))
