"""Whether two tools say the same of a device, each in its own words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["processors_agree", "same_model", "same_processors", "same_value"]

_TOLERANCE: Final = 0.01
"""Tools round: ``numactl`` to MiB, NCCL to Mb/s."""

_SPAN: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_UNKNOWN_MODEL: Final = re.compile(r"\bdevice [0-9a-f]{4}\b", re.IGNORECASE)
"""What ``lspci`` prints where its database does not know a device."""

_PACKAGING: Final = re.compile(
    r"(?:[0-9]+(?:gb|g|w)|hbm[0-9]?e?|gddr[0-9]x?|sxm[0-9]?|pcie?|oam|nvl|[0-9]{1,2}|rev)"
)
"""Words that say how a device is built and not which it is."""

_MAKERS: Final = frozenset(
    (
        *("nvidia", "amd", "ati", "intel", "mellanox", "tesla", "geforce", "quadro"),
        *("corporation", "inc", "advanced", "micro", "devices", "technologies"),
        *("family", "generation", "graphics", "controller", "ethernet", "network", "adapter"),
    )
)
"""Words that many models have in their names."""


def same_value(attribute: str, one: Any, other: Any) -> bool:
    """Whether two files give a device's attribute the same value."""
    if attribute == "model" and isinstance(one, str) and isinstance(other, str):
        return same_model(one, other)
    if attribute == "cpu_list" and isinstance(one, str) and isinstance(other, str):
        return processors_agree(one, other)
    if attribute == "architecture":
        # ROCm adds features: gfx90a:sramecc+:xnack-.
        return str(one).partition(":")[0] == str(other).partition(":")[0]
    if attribute == "mig" and isinstance(one, list) and isinstance(other, list):
        return sorted(map(str, one)) == sorted(map(str, other))
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in (one, other)]
    if all(numbers) and attribute.endswith(("_Bps", "_bytes")):
        return bool(abs(one - other) <= _TOLERANCE * max(abs(one), abs(other)))
    return bool(one == other)


def same_model(one: str, other: str) -> bool:
    """Whether two names may be of one model: no word of either rules the other out.

    >>> same_model("NVIDIA Corporation GA100 [A100 PCIe 40GB]", "NVIDIA A100-PCIE-40GB")
    True
    >>> same_model("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")
    False
    >>> same_model("NVIDIA H100 80GB HBM3", "NVIDIA H200")
    False
    """
    if _UNKNOWN_MODEL.search(one) or _UNKNOWN_MODEL.search(other):
        return True
    words, others = _words(one), _words(other)
    sizes = [{w for w in each if re.fullmatch(r"[0-9]+gb", w)} for each in (words, others)]
    if all(sizes) and not sizes[0] & sizes[1]:
        return False
    named = [{w for w in each if _names_a_model(w)} for each in (words, others)]
    if all(named):
        return bool(named[0] & named[1])
    left, right = words - _MAKERS, others - _MAKERS
    return not left or not right or bool(left & right)


def _words(name: str) -> set[str]:
    """``ConnectX-7`` is one word, ``A100-PCIE-40GB`` three."""
    joined = re.sub(r"\b([a-z]{3,})-([0-9]{1,2})\b", r"\1\2", name.casefold())
    return set(re.findall(r"[a-z0-9]+", joined))


def _names_a_model(word: str) -> bool:
    """Such as ``a100`` or ``4090``: figures, and not of memory or form."""
    return any(c.isdigit() for c in word) and _PACKAGING.fullmatch(word) is None


def same_processors(one: str, other: str) -> bool:
    """Whether two lists name the same processors, however written.

    >>> same_processors("0-1,3", "0,1,3"), same_processors("0-3", "0-7")
    (True, False)
    """
    here, there = _spans(one), _spans(other)
    return one == other if here is None or there is None else here == there


def processors_agree(one: str, other: str, *, whole: tuple[bool, bool] = (False, False)) -> bool:
    """Whether two lists of processors may be of one place.

    Parameters
    ----------
    whole
        Whether each is all that there is.  Others may be a part: ``topo -m``
        in a job that is bound to one core shows that core.

    >>> processors_agree("0", "0-23"), processors_agree("0-23", "0", whole=(True, True))
    (True, False)
    """
    here, there = _spans(one), _spans(other)
    if here is None or there is None or same_processors(one, other):
        return True
    inside = (_within(here, there) and not whole[0], _within(there, here) and not whole[1])
    return any(inside)


def _spans(text: str) -> list[tuple[int, int]] | None:
    """Disjoint spans in order; ``None`` for what is no list."""
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            return None
        first = int(match[1])
        found.append((first, max(first, int(match[2] or first))))
    merged: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _within(inner: Sequence[tuple[int, int]], outer: Sequence[tuple[int, int]]) -> bool:
    return all(any(a <= first and last <= b for a, b in outer) for first, last in inner)
