"""The options by which a command line names patterns, and the patterns that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from topocal.completing import endpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from topocal.topo.flow import Pattern

__all__ = [
    "BothWays",
    "FanIn",
    "FanOut",
    "FlowOption",
    "Notation",
    "Size",
    "flow_size",
    "patterns_from",
    "size_list",
]

FanIn: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--fan-in",
        metavar="ROOT:PEERS",
        autocompletion=endpoints,
        help="The peers send to the root.",
    ),
]
FanOut: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--fan-out",
        metavar="ROOT:PEERS",
        autocompletion=endpoints,
        help="The root sends to the peers.",
    ),
]
FlowOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--flow",
        metavar="FROM:TO",
        autocompletion=endpoints,
        help="One flow; several run at once as one pattern.",
    ),
]
BothWays: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--both-ways", metavar="A:B", autocompletion=endpoints, help="Each sends to the other."
    ),
]
Notation: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern",
        metavar="PATTERN",
        help="In notation: '3<-4,5', '0->1,2', '0<->1', '0->4 + 1->5'.",
    ),
]
Size: TypeAlias = Annotated[
    str, typer.Option("--size", metavar="SIZE", help="Bytes of every flow.")
]


def flow_size(text: str) -> float:
    """Bytes of every flow, from an option.

    Raises
    ------
    UnitError
        When it is no size, or less than a byte.
    """
    from topocal.topo.errors import UnitError, one_line
    from topocal.topo.units import parse_bytes

    found = parse_bytes(text)
    if found < 1:
        raise UnitError(
            f"{one_line(text)!r} is less than a byte", remedy="give a size such as 256MiB"
        )
    return found


def size_list(text: str) -> list[float]:
    """Sizes of flows, from an option such as ``1MiB,256MiB``.

    Raises
    ------
    InputError
        When it is no list of sizes.
    """
    from topocal.topo.endpoint_names import split_list

    return [flow_size(size) for size in split_list(text, of="sizes", blanks=False)]


def patterns_from(
    fan_in: list[str] | None,
    fan_out: list[str] | None,
    flow: list[str] | None,
    both_ways: list[str] | None,
    pattern: list[str] | None,
    size_bytes: float,
    resolve: Callable[[str], str],
) -> list[Pattern]:
    """All patterns asked for, in the order of the options; all flows make one pattern.

    Raises
    ------
    InputError
        When an option is not of its form.
    FlowError
        When a pattern makes no sense.
    """
    from topocal.measure.patterns import both_ways as make_both_ways
    from topocal.measure.patterns import bundle, parse_pattern
    from topocal.measure.patterns import fan_in as make_fan_in
    from topocal.measure.patterns import fan_out as make_fan_out
    from topocal.topo.endpoint_names import split_list
    from topocal.topo.errors import InputError

    found: list[Pattern] = []
    for given, make in ((fan_in, make_fan_in), (fan_out, make_fan_out)):
        for text in given or ():
            root, peers = _sides(text, "ROOT:PEERS, such as 2:3,5,7")
            names = [resolve(p) for p in split_list(peers, of="peers")]
            found.append(make(resolve(root), names, size_bytes))
    if flow:
        sides = [_one_each(text, "FROM:TO, such as 0:4") for text in flow]
        found.append(bundle([(resolve(s), resolve(d)) for s, d in sides], size_bytes))
    for text in both_ways or ():
        one, other = _one_each(text, "A:B, such as 0:1")
        found.append(make_both_ways(resolve(one), resolve(other), size_bytes))
    for text in pattern or ():
        found.append(parse_pattern(text, size_bytes, resolve=resolve))
    for k, asked in enumerate(found):
        if any(set(asked.pairs) == set(other.pairs) for other in found[:k]):
            raise InputError(f"{asked.name} is asked for twice", remedy="name each pattern once")
    return found


def _one_each(text: str, form: str) -> tuple[str, str]:
    from topocal.topo.errors import InputError, one_line

    sides = _sides(text, form)
    if any("," in side for side in sides):
        raise InputError(
            f"{one_line(text)!r} names several endpoints on one side",
            remedy="repeat the option for each, or use --fan-in or --fan-out",
        )
    return sides


def _sides(text: str, form: str) -> tuple[str, str]:
    from topocal.topo.errors import InputError, one_line

    # Endpoint ids may hold colons themselves (PCI addresses): the last one separates.
    left, colon, right = text.rpartition(":")
    if not colon or not left.strip() or not right.strip():
        raise InputError(f"{one_line(text)!r} is not of the form {form}", remedy="write it so")
    return left, right
