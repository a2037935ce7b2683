"""Removing from tools' output what names a machine: hosts, serials, unique ids, addresses.

This is the second of two nets.  First each output is cut to what the readers use
of it (:mod:`topocal.topo.kept_output`); then :class:`Scrubber` replaces in what is
left everything that looks like a MAC, IP or InfiniBand address, a UUID or a
labelled serial number, and the host's own names.  PCI addresses stay: they say
where a device is plugged in, and every machine has the same.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["Scrubber", "safe_interface"]

_HEX: Final = "[0-9A-Fa-f]"
_UUID: Final = re.compile(rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}")
_OCTETS: Final = re.compile(
    rf"(?<!{_HEX}){_HEX}{{2}}(?:(?::{_HEX}{{2}}){{5,19}}|(?:-{_HEX}{{2}}){{5,19}})(?!{_HEX})"
)
_GUID: Final = re.compile(rf"(?<!{_HEX}){_HEX}{{4}}(?::{_HEX}{{4}}){{3,7}}(?!{_HEX})")
_DOTTED_MAC: Final = re.compile(rf"(?<!{_HEX}){_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}(?!{_HEX})")
_LONG_HEX: Final = re.compile(rf"(?:0x)?(?<!{_HEX})(?:{_HEX}{{32}}|{_HEX}{{16}})(?!{_HEX})")
_INTERFACE_MAC: Final = re.compile(rf"(?i)\b((?:enx|wlx|enP\d+x))({_HEX}{{12}})(?!{_HEX})")
_IPV4: Final = re.compile(
    r"(?<![0-9])(?<![0-9]\.)(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9])(?!\.[0-9])"
)
_DASHED_IPV4: Final = re.compile(r"(?i)\bip(?:-[0-9]{1,3}){4}\b")
_RUN: Final = re.compile(r"[0-9A-Fa-f:.]{2,}")
_LABEL: Final = re.compile(
    r"(?i)((?:serial(?:[ _-]?(?:number|no|num|id))?|\[SN\]|uuid|guid|asset[ _-]?tag"
    r"|part[ _-]?number|host[ _-]?name|node[ _-]?name|board[ _-]?id|machine[ _-]?id"
    r"|chassis[ _-]?id|mac address|ip address|user(?:[ _-]?name)?|fqdn|domain name)"
    r"\"?[ \t]{0,60}[:=][ \t]{0,60}\"?)([^\s\"][^\n\"]*)"
)
_XML_LABEL: Final = re.compile(
    r"(?i)(name=\"[^\"<>]{0,60}(?:serial|uuid|guid|gid|address|asset|host|lid)[^\"<>]{0,60}\""
    r"\s{1,20}value=\")[^\"]*"
)
_WORDS_OF_TOOLS: Final = re.compile(
    r"(?i)(?:gpu|cpu|nic|node|sys|pix|pxb|phb|pcie?|root|port|bridge|host|device|nvidia|amd|intel"
    r"|numa|none|name|system|machine|class|link|speed|width|max|current|express|localhost|socket"
    r"|controller|network|ethernet|memory|bus|server|nv|eth|ib|mlx|x|localdomain|local)[0-9]{0,3}"
    r"|[0-9a-f]{1,4}"
)
"""Host names that are words of the tools' outputs, or that could be PCI numbers."""

_REMOVED: Final = "removed"
_LONGEST_ADDRESS: Final = 64


class Scrubber:
    """Replaces what identifies a machine; the same thing by the same replacement.

    Parameters
    ----------
    names
        The machine's own names, wherever they stand as a word.  A name that is a
        word of the tools' own (``node``) stays, for it names nothing.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        words = {
            part
            for name in names
            for part in (name, name.partition(".")[0], name.partition(".")[2])
            if part and _WORDS_OF_TOOLS.fullmatch(part) is None
        }
        ordered = sorted(words, key=len, reverse=True)
        self._names = (
            re.compile(
                r"(?i)(?<![a-z0-9])(?:" + "|".join(map(re.escape, ordered)) + r")(?![a-z0-9])"
            )
            if ordered
            else None
        )
        self._numbers: dict[str, int] = {}

    def scrub(self, text: str) -> str:
        """The text without them."""
        if self._names is not None:
            text = self._names.sub("host", text)
        text = _XML_LABEL.sub(rf"\1{_REMOVED}", text)
        text = _LABEL.sub(rf"\1{_REMOVED}", text)
        text = _UUID.sub(lambda m: f"00000000-0000-0000-0000-{self._number(m[0]):012d}", text)
        text = _INTERFACE_MAC.sub(lambda m: f"{m[1]}{self._number(m[2]):012d}", text)
        text = _OCTETS.sub(lambda m: f"00:00:00:00:00:{self._number(m[0]) % 100:02d}", text)
        text = _GUID.sub(lambda m: f"0000:0000:0000:{self._number(m[0]) % 10_000:04d}", text)
        text = _DOTTED_MAC.sub("0000.0000.0000", text)
        text = _LONG_HEX.sub(_REMOVED, text)
        text = _DASHED_IPV4.sub("host", text)
        text = _IPV4.sub(lambda m: "0.0.0.0" if _is_ipv4(m[0]) else m[0], text)
        return _RUN.sub(lambda m: _without_ipv6(m[0]), text)

    def _number(self, found: str) -> int:
        """Numbers in order of appearance keep apart what is different."""
        return self._numbers.setdefault(found.lower(), len(self._numbers) + 1)


def _is_ipv4(text: str) -> bool:
    return all(int(part) <= 255 for part in text.split("."))


def _without_ipv6(run: str) -> str:
    """A run of hex digits, colons and dots with the IPv6 address in it, if any, replaced."""
    if run.count(":") < 2:
        return run
    if len(run) > _LONGEST_ADDRESS:
        return _REMOVED
    starts = [k for k in range(len(run)) if k == 0 or run[k - 1] == ":" or run[k] == ":"]
    ends = [k for k in range(len(run), 0, -1) if k == len(run) or run[k] in ":."]
    for start in starts:
        for end in ends:
            if end > start and _is_ipv6(run[start:end]):
                return run[:start] + "::" + run[end:]
    return run


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return text != "::"


def safe_interface(name: str) -> bool:
    """Whether a network device's name says only where it is plugged in.

    >>> safe_interface("enp65s0f0np0"), safe_interface("mlx5_0"), safe_interface("acme-vpn")
    (True, True, False)
    """
    return (
        re.fullmatch(
            r"(?:eth|ib|hsn|hsi|cxi_?|efa_?|usb)[0-9]{1,3}"
            r"|(?:en|ib|roce)(?:o[0-9]{1,4}|s[0-9]{1,4}|P?[0-9]{0,4}p[0-9]{1,4}s[0-9]{1,4})"
            r"(?:[fdn]p?[0-9]{1,4}){0,3}"
            r"|rdmap[0-9]{1,4}s[0-9]{1,4}(?:f[0-9]{1,4})?"
            r"|(?:mlx[45]|bnxt_re|irdma|i40iw|hfi1|qedr|erdma|mana|rxe|siw|ionic|roce)_?[0-9]{1,3}",
            name,
        )
        is not None
    )
