"""Compiled loops: numba's ``njit`` with types kept, and its results cached on disk.

Only the first call on a machine compiles.  numba would keep machine code beside
the source file and renew it when that file changes, but not when a function
that it calls from another file does, and it fails where it may not write.  So
the code is kept in a directory of its own, named by what all kernels say:
``$NUMBA_CACHE_DIR``, or ``$XDG_CACHE_HOME/topocal``, or ``~/.cache/topocal``.
Where that cannot be written, each process compiles for itself.

Loading numba and one kernel takes longer than all that a small command has to
do.  So numba is loaded by the first kernel that wants it, and a kernel that can
tell how much a call has to do (:func:`compiled_when_long`) does as Python what
takes less than loading would.  Both do the same operations in the same order:
which one it was does not show in the result.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, Final, TypeVar, cast

import numpy as np

__all__ = ["Kernel", "compiled", "compiled_when_long", "inlined", "passes"]

Function = TypeVar("Function", bound=Callable[..., Any])

_WORTH_LOADING: Final = 400_000
"""Steps, of about a microsecond each in Python, that all kernels together do as Python before
numba is loaded: less than what it takes to load that and a dozen of them."""

_WORTH_LOADING_ONE: Final = 20_000
"""Steps that each kernel does as Python once numba is there: what it takes to load its code."""

_LOADING: Final = threading.RLock()


class Kernel:
    """A function that is compiled when it is first called, or when one that calls it is.

    Parameters
    ----------
    function
        What it does, as Python.
    make
        What compiles it.
    steps
        How much a call has to do, from its arguments; ``None``: always worth compiling.
    """

    _all_done: ClassVar[int] = 0

    def __init__(
        self,
        function: Callable[..., Any],
        make: Callable[[Callable[..., Any]], Callable[..., Any]],
        steps: Callable[..., int] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = cast(FunctionType, function)
        self._make = make
        self._steps = steps
        self._done = 0
        self._made: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._made is None and self._steps is not None:
            steps = self._steps(*arguments)
            self._done += steps
            Kernel._all_done += steps
            if self._is_short:
                return self.as_python(*arguments)
        return self.made(*arguments)

    @property
    def _is_short(self) -> bool:
        """Whether what it has had to do so far took less than loading it would."""
        if "numba" in sys.modules:
            return self._done <= _WORTH_LOADING_ONE
        return Kernel._all_done <= _WORTH_LOADING

    @property
    def made(self) -> Any:
        """The compiled function, with whatever it calls compiled into it."""
        if self._made is None:
            with _LOADING:
                self._made = self._made or self._make(self._calling(lambda kernel: kernel.made))
        return self._made

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """The function as Python, and so what it calls."""
        return self._calling(lambda kernel: kernel.plain)

    def _calling(self, version: Callable[[Kernel], Callable[..., Any]]) -> Callable[..., Any]:
        """The function with one version or the other of the kernels that it calls."""
        function = self._function
        names = {
            name: version(value) if isinstance(value, Kernel) else value
            for name, value in function.__globals__.items()
            if not isinstance(value, Kernel) or name in function.__code__.co_names
        }
        copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
        return functools.update_wrapper(copy, function)

    def as_python(self, *arguments: Any) -> Any:
        """A call that is not compiled; it returns what the compiled one would."""
        with np.errstate(all="ignore"):
            return _as_returned(self.plain(*map(_with_fields, arguments)))


def compiled(function: Function) -> Function:
    """``function`` compiled on its first call, without the interpreter lock while it runs.

    Divisions follow IEEE 754 (by zero: infinite), as in NumPy, and never raise.
    """
    return cast(Function, Kernel(function, _compile))


def compiled_when_long(steps: Callable[..., int]) -> Callable[[Function], Function]:
    """As :func:`compiled`, but done as Python while its calls together have little to do.

    Parameters
    ----------
    steps
        From the arguments of a call, about how many steps of its innermost loops it has to
        do: a microsecond each.
    """

    def decorate(function: Function) -> Function:
        return cast(Function, Kernel(function, _compile, steps))

    return decorate


def passes(count: int) -> Callable[..., int]:
    """Steps of a kernel that goes through the arrays that it is given so many times."""

    def steps(*arguments: object) -> int:
        return count * sum(a.size for a in arguments if isinstance(a, np.ndarray))

    return steps


def inlined(function: Function) -> Function:
    """A helper that compiled functions call; it is compiled into each of them."""
    return cast(Function, Kernel(function, _inline))


def _with_fields(argument: Any) -> Any:
    """Records whose fields are attributes, as they are in compiled code."""
    if isinstance(argument, np.ndarray) and argument.dtype.names is not None:
        return argument.view(np.dtype((np.record, argument.dtype)))
    return argument


def _as_returned(found: Any) -> Any:
    """Numbers of Python, as compiled code returns."""
    if isinstance(found, tuple):
        return tuple(map(_as_returned, found))
    return found.item() if isinstance(found, np.generic) else found


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba
    from numba.core import config

    directory = _directory()
    if directory is None:
        return _inline(function)
    before = config.CACHE_DIR
    config.CACHE_DIR = str(directory)
    try:
        made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before
    return cast(Callable[..., Any], made)


def _inline(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    made = numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)
    return cast(Callable[..., Any], made)


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
