"""cvxpy, loaded without what no program here needs.

One of its atoms, for quantum information, takes one function of scipy.stats; to load that takes
as long as all the rest of cvxpy.  While cvxpy is loaded something stands in for scipy.stats that
loads it when a name taken from it is used.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

__all__ = ["cvxpy"]

_SLOW: Final = "scipy.stats"


@cache
def cvxpy() -> Any:
    """The module cvxpy."""
    if "cvxpy" in sys.modules or _SLOW in sys.modules:
        return _loaded()
    stand_in = sys.modules[_SLOW] = _StandIn(_SLOW)
    try:
        return _loaded()
    finally:
        if sys.modules.get(_SLOW) is stand_in:
            del sys.modules[_SLOW]


def _loaded() -> Any:
    import cvxpy as module

    return module


class _StandIn(ModuleType):
    """A module whose names are looked up in the real one when they are used."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = find_spec(name)
        self.__path__ = list(getattr(self.__spec__, "submodule_search_locations", None) or ())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(self.__name__, name)


class _Later:
    """A function, class or object of a module that is not loaded yet."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _found(self) -> Any:
        return getattr(import_module(self._module), self._name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._found()(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._found(),)
