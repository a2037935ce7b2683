"""The patterns that are measured, and the one notation for them.

===============  ====================================================
``0->1``         peer: one flow
``0<->1``        both ways at once
``3<-4,5,6,7``   fan in: the peers send to the root
``0->1,2``       fan out: the root sends to the peers
``0->4 + 1->5``  bundle: any of the above at once
===============  ====================================================

Names are endpoint ids or, for GPUs, bare numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from topocal.topo.endpoint_names import canonical_endpoint, plain_arrows
from topocal.topo.errors import FlowError, FormatError, Where, one_line
from topocal.topo.flow import Flow, Pattern

__all__ = [
    "PatternKind",
    "both_ways",
    "bundle",
    "fan_in",
    "fan_out",
    "kind_of",
    "notation",
    "parse_pattern",
    "peer",
    "relay",
]

_Any = TypeVar("_Any")

_ARROW: Final = re.compile(r"^(.+?)(<->|<-|->)(.+)$", re.DOTALL)


class PatternKind(StrEnum):
    """What a pattern is, by its flows alone."""

    PEER = "peer"
    BOTH_WAYS = "both-ways"
    RELAY = "relay"
    FAN_IN = "fan-in"
    FAN_OUT = "fan-out"
    BUNDLE = "bundle"


def _pattern(pairs: Iterable[tuple[str, str]], size_bytes: float) -> Pattern:
    flows = tuple(Flow(source=s, destination=d, size_bytes=size_bytes) for s, d in _twos(pairs))
    if not flows:
        raise FlowError("a pattern without flows", remedy="name at least one peer")
    seen: set[tuple[str, str]] = set()
    for f in flows:
        pair = (f.source, f.destination)
        if f.source == f.destination:
            raise FlowError(
                f"flow from {one_line(f.source)} to itself", remedy="name two different endpoints"
            )
        if pair in seen:
            raise FlowError(
                f"flow {one_line(f.source)}->{one_line(f.destination)} stands twice",
                remedy="name each peer once",
            )
        seen.add(pair)
    return Pattern(flows=flows, name=notation(f_pair for f_pair in _pairs(flows)))


def _twos(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each (sender, receiver); a text of two letters is none.

    Raises
    ------
    FlowError
        When one is something else.
    """
    for pair in pairs:
        try:
            source, destination = () if isinstance(pair, str) else pair
        except (TypeError, ValueError) as error:
            raise FlowError(
                f"{one_line(repr(pair))} is no pair",
                remedy="give (sender, receiver) of each, such as ('gpu0', 'gpu1')",
            ) from error
        yield source, destination


def _listed(names: Sequence[_Any], what: str) -> list[_Any]:
    """Several endpoints; a text would be taken for its letters.

    Raises
    ------
    FlowError
        When it is no list.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise FlowError(
            f"{what} {one_line(repr(names))} is no list of endpoints",
            remedy="give a list, even of one: ['gpu1']",
            about=names,
        )
    return list(names)


def _pairs(flows: Iterable[Flow]) -> list[tuple[str, str]]:
    return [(f.source, f.destination) for f in flows]


def peer(source: str, destination: str, size_bytes: float = 0.0) -> Pattern:
    """One flow alone.

    Raises
    ------
    FlowError
        When both ends are the same.
    """
    return _pattern([(source, destination)], size_bytes)


def both_ways(a: str, b: str, size_bytes: float = 0.0) -> Pattern:
    """Two endpoints send to each other at once; raises as :func:`peer`."""
    return _pattern([(a, b), (b, a)], size_bytes)


def fan_in(root: str, peers: Sequence[str], size_bytes: float = 0.0) -> Pattern:
    """Every peer sends ``size_bytes`` to the root at once.

    Raises
    ------
    FlowError
        Without a list of peers, with the root among them, or with one named twice.
    """
    return _pattern([(p, root) for p in _listed(peers, "peers")], size_bytes)


def fan_out(root: str, peers: Sequence[str], size_bytes: float = 0.0) -> Pattern:
    """The root sends ``size_bytes`` to every peer at once; raises as :func:`fan_in`."""
    return _pattern([(root, p) for p in _listed(peers, "peers")], size_bytes)


def relay(ring: Sequence[str], shift: int = 1, size_bytes: float = 0.0) -> Pattern:
    """Everyone in the ring sends to the one ``shift`` places on, and so receives from behind.

    Raises
    ------
    FlowError
        When the ring has fewer than two members or the shift leads back to the sender.
    """
    members = _listed(ring, "ring")
    n = len(members)
    return _pattern([(members[k], members[(k + shift) % n]) for k in range(n)], size_bytes)


def bundle(pairs: Sequence[tuple[str, str]], size_bytes: float = 0.0) -> Pattern:
    """Any pairs at once; raises :class:`FlowError` on none, a repeated one, or a self-flow."""
    return _pattern(_listed(pairs, "pairs"), size_bytes)


def kind_of(pattern: Pattern) -> PatternKind:
    """The kind of a pattern, from its flows.

    >>> str(kind_of(fan_in("gpu0", ["gpu1", "gpu2"])))
    'fan-in'
    """
    pairs = pattern.pairs
    sources, destinations = {s for s, _ in pairs}, {d for _, d in pairs}
    if len(pairs) == 1:
        return PatternKind.PEER
    if len(pairs) == 2 and pairs[0] == pairs[1][::-1]:
        return PatternKind.BOTH_WAYS
    if len(destinations) == 1:
        return PatternKind.FAN_IN
    if len(sources) == 1:
        return PatternKind.FAN_OUT
    if sources == destinations and len(sources) == len(pairs) and _is_one_ring(dict(pairs)):
        return PatternKind.RELAY
    return PatternKind.BUNDLE


def _is_one_ring(following: dict[str, str]) -> bool:
    start = next(iter(following))
    here, steps = following[start], 1
    while here != start and steps <= len(following):
        here, steps = following[here], steps + 1
    return steps == len(following)


def notation(pairs: Iterable[tuple[str, str]]) -> str:
    """The shortest notation for the pairs.

    >>> notation([("gpu4", "gpu3"), ("gpu5", "gpu3")])
    'gpu3<-gpu4,gpu5'
    >>> notation([("gpu0", "gpu4"), ("gpu1", "gpu5")])
    'gpu0->gpu4 + gpu1->gpu5'
    """
    pairs = list(pairs)
    sources = list(dict.fromkeys(s for s, _ in pairs))
    destinations = list(dict.fromkeys(d for _, d in pairs))
    if len(sources) == 1:
        return f"{sources[0]}->{','.join(destinations)}"
    if len(destinations) == 1:
        return f"{destinations[0]}<-{','.join(sources)}"
    if len(pairs) == 2 and pairs[0] == pairs[1][::-1]:
        return f"{pairs[0][0]}<->{pairs[0][1]}"
    parts: list[str] = []
    grouped: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        grouped.setdefault(pair[1], []).append(pair)
    for members in grouped.values():
        parts.append(notation(members))
    return " + ".join(parts)


def _is_name(text: str) -> bool:
    """Whether a name may stand in the notation: one word, without heads of arrows."""
    return len(text.split()) == 1 and not re.search("[<>]", text)


def parse_pattern(
    text: str,
    size_bytes: float = 0.0,
    *,
    resolve: Callable[[str], str] = canonical_endpoint,
    where: Where | None = None,
) -> Pattern:
    """A pattern from its notation.

    Parameters
    ----------
    resolve
        Makes an endpoint id from a name as written; may raise
        :class:`~topocal.topo.errors.UnknownEndpointError`.

    Raises
    ------
    FormatError
        When it is not the notation.
    FlowError
        When a flow leads to its own source, or one stands twice.
    """
    pairs: list[tuple[str, str]] = []
    for part in plain_arrows(text).split("+"):
        match = _ARROW.match(part)
        sides = [] if match is None else [match[1].split(","), match[3].split(",")]
        if match is None or not all(_is_name(name) for side in sides for name in side):
            raise FormatError(
                f"{one_line(part)!r} is not a pattern",
                where=where,
                remedy="write 3<-4,5,6 or 0->1,2 or 0<->1 or 0->4 + 1->5",
            )
        left, right = ([resolve(name.strip()) for name in side] for side in sides)
        one_root = left if match[2] == "->" else right
        if match[2] == "<-":
            left, right = right, left
            one_root = right
        if match[2] == "<->" and (len(left) > 1 or len(right) > 1):
            raise FormatError(
                f"{one_line(part)!r} has several names at <->",
                where=where,
                remedy="write each pair: 0<->1 + 2<->3",
            )
        if len(one_root) != 1 and match[2] != "<->":
            raise FormatError(
                f"{one_line(part)!r} has several roots",
                where=where,
                remedy="write each fan: 0->2,3 + 1->2,3",
            )
        pairs += [(s, d) for s in left for d in right]
        if match[2] == "<->":
            pairs += [(d, s) for s in left for d in right]
    try:
        return _pattern(pairs, size_bytes)
    except FlowError as error:
        raise FlowError(error.what, where=where, remedy=error.remedy, about=text) from error
