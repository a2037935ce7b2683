"""Rows of ``nvidia-smi topo`` whose blanks a web page has lost: ``GPU0XNODENODE0-310N/A``.

Codes begin with letters, so where each ends shows, but for an NVLink count with the list of
processors behind it (``NV120-31``): the count is one that stands elsewhere in the row, or
the largest that leaves a list.  What the row is near to cannot be told and is left out.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["separated"]

_MOST_LINKS: Final = 18
"""NVLinks of a GPU: Hopper and Blackwell (NVIDIA's architecture white papers)."""

_GLUED: Final = re.compile(
    r"[ \t]{0,40}((?:GPU|NIC)[0-9]{1,4})((?:X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,2}){2,1024})"
    r"([0-9,\-]{0,200}(?:N/A)?)[ \t]*"
)
_CODE: Final = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PIX|PSB|NV[0-9]{1,2}")
_LIST: Final = re.compile(r"(?:[0-9].{0,200})?(?:N/A)?")


def separated(line: str) -> str:
    """The row with a blank between its codes; any other line as it is.

    >>> separated("GPU1NODEXNODE0-310N/A"), separated("GPU0XNV12NV120-31")
    ('GPU1 NODE X NODE', 'GPU0 X NV12 NV12')
    >>> separated("GPU0\\tX\\tNODE"), separated("GPU0XNV4")
    ('GPU0\\tX\\tNODE', 'GPU0 X NV4')
    """
    if not line.lstrip().startswith(("GPU", "NIC")):
        return line
    found = _GLUED.fullmatch(line)
    if found is None:
        return line
    codes = _CODE.findall(found[2])
    if codes[-1].startswith("NV"):
        codes[-1] = f"NV{_count(codes[-1][2:], found[3], set(codes[:-1]))}"
    return " ".join([found[1], *codes])


def _count(digits: str, behind: str, others: set[str]) -> str:
    """How many of the digits behind ``NV`` are its count."""
    possible = [
        digits[:k]
        for k in range(len(digits), 0, -1)
        if 0 < int(digits[:k]) <= _MOST_LINKS and _LIST.fullmatch(digits[k:] + behind)
    ]
    known = [count for count in possible if f"NV{count}" in others]
    return (known or possible or [digits])[0]
