"""What to measure, why, when, and what it costs: plan.json.

History of the schema: 1 (2026-11) first version.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topocal.measure.patterns import PatternKind, bundle, kind_of
from topocal.topo.errors import FormatError, InputError, TopocalError, Where, one_line
from topocal.topo.io import (
    decode_document,
    encode_document,
    read_bytes,
    topology_to_document,
    write_atomically,
)
from topocal.topo.units import format_bytes
from topocal.topo.wanted import is_amount

if TYPE_CHECKING:
    from topocal.topo.flow import Pattern
    from topocal.topo.topology import Topology

__all__ = [
    "DEFAULT_SIZES_BYTES",
    "FORMAT",
    "OVERHEAD_S",
    "VERSION",
    "Finding",
    "Outcome",
    "Plan",
    "PlannedPattern",
    "Purpose",
    "Reason",
    "checked_sizes",
    "expected_seconds",
    "fingerprint",
    "plan_from_document",
    "plan_to_document",
    "read_plan",
    "write_plan",
]

FORMAT: Final = "topocal/plan"
VERSION: Final = 1

DEFAULT_SIZES_BYTES: Final = tuple(float(2**k) for k in range(12, 29, 2))
"""4 KiB to 256 MiB, each four times the last."""

OVERHEAD_S: Final = 2e-3
"""Seconds that each repeat takes besides moving bytes: a barrier of 8 gloo ranks took 1.5 ms
on the emulated fabric, and starting a message 0.1 to 0.3 ms."""


class Purpose(StrEnum):
    """What a pattern is for."""

    BOTTLENECK = "bottleneck"
    """A resource is its clear bottleneck; ``ratio``: busy seconds over those of the next."""
    FAN_IN_SHARING = "fan-in-sharing"
    """Whether an endpoint receives at once or by turns; ``ratio``: time by turns over time by
    capacities, none for the fan of the two fastest senders, which the other is compared with."""
    FAN_OUT_SHARING = "fan-out-sharing"
    """The same of sending."""
    ALONE = "alone"
    """What one flow reaches."""
    BOTH_WAYS = "both-ways"
    """Whether both directions of a connection are independent; ``ratio``: how much longer it
    would take were they one."""
    CROWD = "crowd"
    """Whether many flows at once get less than few do; ``ratio``: how many flows."""
    SWEEP = "sweep"
    """Nothing in particular: part of an exhaustive sweep."""


class Outcome(StrEnum):
    """What the plan can do for a resource."""

    CLEAR = "clear"
    """A pattern has it as its clear bottleneck."""
    NARROW = "narrow"
    """The best pattern has it as its bottleneck, but something else is close behind."""
    SERIES = "series"
    """It is in series with another on every route, and only the slower of them shows."""
    DOMINATED = "dominated"
    """Whatever crosses it also crosses something no faster."""
    FED = "fed"
    """All that can reach it at once passes no more than it does."""
    TRIED = "tried"
    """So few pairs cross it that every pattern of them was tried."""
    NOT_FOUND = "not-found"
    """No pattern was found, and no proof that there is none."""
    SHARING = "sharing"
    """It is time-shared: the fans at its endpoint are for it."""
    UNUSED = "unused"
    """Nothing between the endpoints crosses it."""
    UNLIMITED = "unlimited"
    """It is taken to have no limit."""
    PINNED = "pinned"
    """It is known already."""
    LEFT_OUT = "left-out"
    """A pattern would do, but the budget left it out."""

    @property
    def is_measured(self) -> bool:
        """Whether a pattern of the plan is for it."""
        return self in (Outcome.CLEAR, Outcome.NARROW, Outcome.SHARING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One purpose of a pattern.

    Attributes
    ----------
    purpose
        What for.
    about
        The resource, endpoint, flow or connection that it is about.
    ratio
        As :class:`Purpose` says; ``None`` where it has none, or nothing else is busy.
    """

    purpose: Purpose
    about: str
    ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPattern:
    """A pattern of the plan.

    Attributes
    ----------
    flows
        ``(source, destination)`` of each.
    reasons
        Why it is measured.
    seconds
        Expected time of all sizes and repeats.
    memory_bytes
        Buffers of its largest size on the endpoint that needs most: one for each flow that
        begins or ends there.
    """

    flows: tuple[tuple[str, str], ...]
    reasons: tuple[Reason, ...]
    seconds: float
    memory_bytes: float

    @property
    def pattern(self) -> Pattern:
        """The pattern, without a size; :meth:`~topocal.topo.flow.Pattern.scaled` gives one."""
        return bundle(self.flows)

    @property
    def name(self) -> str:
        """Its notation."""
        return self.pattern.name

    @property
    def kind(self) -> PatternKind:
        """What it is."""
        return kind_of(self.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the plan does for one resource.

    Attributes
    ----------
    resource, label
        Its id, and words for it.
    outcome
        What the plan can do.
    reason
        The same in words.
    pattern
        Number of the pattern for it, from 0.
    ratio
        How far it is ahead of everything else there; ``None`` where there is no pattern, or
        it is the only busy resource.
    ceiling
        How far ahead any pattern could put it, where that is proven.
    others
        The resources that the reason names.
    assumed_Bps
        What it was taken to pass; ``None``: no limit, or time-shared.
    basis
        What that rests on: given, nominal, or how it was guessed
        (:mod:`topocal.measure.prior`).
    """

    resource: str
    label: str
    outcome: Outcome
    reason: str
    pattern: int | None = None
    ratio: float | None = None
    ceiling: float | None = None
    others: tuple[str, ...] = ()
    assumed_Bps: float | None = None
    basis: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure on one machine.

    Attributes
    ----------
    machine
        Name of the topology.
    topology_sha256
        Fingerprint of the topology (:func:`fingerprint`).
    endpoints
        Who takes part.
    sizes_bytes
        Bytes of every flow, ascending; each pattern is measured at each.
    repeats, warm_ups
        Timed and untimed runs at each size.
    clear_ratio
        From which ratio a bottleneck counts as clear.
    patterns
        What is measured.
    rounds
        Numbers of the patterns that run at the same time; every pattern in one round.
    resources
        A finding for every resource of the topology.
    notes
        What was assumed, in sentences.
    """

    machine: str
    topology_sha256: str
    endpoints: tuple[str, ...]
    sizes_bytes: tuple[float, ...]
    repeats: int
    warm_ups: int
    clear_ratio: float
    patterns: tuple[PlannedPattern, ...]
    rounds: tuple[tuple[int, ...], ...]
    resources: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def seconds(self) -> float:
        """Expected time of the whole plan: each round takes as long as its longest pattern."""
        return math.fsum(max(self.patterns[k].seconds for k in members) for members in self.rounds)

    @property
    def memory_bytes(self) -> float:
        """Buffers on the endpoint that needs most; they are used again by every pattern."""
        return max((p.memory_bytes for p in self.patterns), default=0.0)

    def finding(self, resource: str) -> Finding:
        """What the plan does for a resource.

        Raises
        ------
        InputError
            When the plan has none of that id.
        """
        for found in self.resources:
            if found.resource == resource:
                return found
        raise InputError(
            f"the plan has no resource {one_line(resource)!r}", remedy="see its resources"
        )


def fingerprint(topology: Topology) -> str:
    """SHA-256 of a topology's content, which tells whether a plan is of this machine."""
    return hashlib.sha256(msgspec.json.encode(topology_to_document(topology))).hexdigest()


def checked_sizes(sizes_bytes: Sequence[float]) -> tuple[float, ...]:
    """Sizes in ascending order, each once.

    Raises
    ------
    InputError
        When there are none, or one is not a finite number above zero.
    """
    for size in sizes_bytes:
        if not (is_amount(size) and size > 0):
            raise InputError(
                f"a size of {one_line(size)} bytes", remedy="give numbers of bytes above zero"
            )
    if not sizes_bytes:
        raise InputError("no sizes", remedy="give at least one, such as 256MiB")
    return tuple(sorted({float(size) for size in sizes_bytes}))


def expected_seconds(
    seconds_per_byte: float, sizes_bytes: Sequence[float], runs_at_each: int
) -> float:
    """Time of one pattern at all its sizes."""
    return math.fsum(runs_at_each * (OVERHEAD_S + seconds_per_byte * size) for size in sizes_bytes)


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write plan.json atomically.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    write_atomically(path, encode_document(plan_to_document(plan)))


def plan_to_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine": plan.machine,
        "topology_sha256": plan.topology_sha256,
        "expected": {
            "patterns": len(plan.patterns),
            "rounds": len(plan.rounds),
            "seconds": plan.seconds,
            "memory_bytes": plan.memory_bytes,
        },
        "endpoints": list(plan.endpoints),
        "sizes_bytes": list(plan.sizes_bytes),
        "repeats": plan.repeats,
        "warm_ups": plan.warm_ups,
        "clear_ratio": plan.clear_ratio,
        "patterns": [msgspec.to_builtins(p) for p in plan.patterns],
        "rounds": [list(members) for members in plan.rounds],
        "resources": [msgspec.to_builtins(f) for f in plan.resources],
        "notes": list(plan.notes),
    }


def read_plan(path: str | Path) -> Plan:
    """Read plan.json.

    Raises
    ------
    InputError
        When the file cannot be read, is of another kind, newer than this release, or damaged.
    """
    file = str(path)
    document = decode_document(read_bytes(path), format=FORMAT, version=VERSION, file=file)
    return plan_from_document(document, file=file)


def plan_from_document(document: dict[str, Any], *, file: str) -> Plan:
    """The plan that :func:`plan_to_document` wrote.

    Raises
    ------
    FormatError
        When a part is missing, of the wrong type, or contradicts another.
    """
    try:
        plan = Plan(
            machine=msgspec.convert(document["machine"], str),
            topology_sha256=msgspec.convert(document["topology_sha256"], str),
            endpoints=msgspec.convert(document["endpoints"], tuple[str, ...]),
            sizes_bytes=msgspec.convert(document["sizes_bytes"], tuple[float, ...]),
            repeats=msgspec.convert(document["repeats"], int),
            warm_ups=msgspec.convert(document["warm_ups"], int),
            clear_ratio=msgspec.convert(document["clear_ratio"], float),
            patterns=msgspec.convert(document["patterns"], tuple[PlannedPattern, ...]),
            rounds=msgspec.convert(document["rounds"], tuple[tuple[int, ...], ...]),
            resources=msgspec.convert(document["resources"], tuple[Finding, ...]),
            notes=msgspec.convert(document["notes"], tuple[str, ...]),
        )
        _check(plan)
        _check_expected(plan, msgspec.convert(document["expected"], dict[str, float]))
    except (KeyError, TypeError, ValueError, TopocalError, msgspec.ValidationError) as error:
        what = error.what if isinstance(error, TopocalError) else one_line(error)
        if isinstance(error, KeyError):
            what = f"no {what}"
        raise FormatError(
            f"damaged plan: {what}",
            where=Where(file=file),
            remedy="make it again with topocal plan",
        ) from error
    return plan


def _check(plan: Plan) -> None:
    """Whether the parts agree; raises ``ValueError`` or an error of a pattern."""
    if checked_sizes(plan.sizes_bytes) != plan.sizes_bytes:
        raise ValueError("its sizes are not in ascending order")
    if plan.repeats < 1 or plan.warm_ups < 0:
        raise ValueError(f"{plan.repeats} repeats after {plan.warm_ups} warm-ups")
    if not (math.isfinite(plan.clear_ratio) and plan.clear_ratio >= 1):
        raise ValueError(f"a clear ratio of {plan.clear_ratio}")
    known = set(plan.endpoints)
    if len(known) != len(plan.endpoints):
        raise ValueError("an endpoint is listed twice")
    for k, planned in enumerate(plan.patterns):
        for name in {end for pair in planned.pattern.pairs for end in pair}:
            if name not in known:
                raise ValueError(f"pattern {k} names {one_line(name)}, which is no endpoint of it")
        if not all(math.isfinite(x) and x >= 0 for x in (planned.seconds, planned.memory_bytes)):
            raise ValueError(f"pattern {k} takes {planned.seconds} s, {planned.memory_bytes} bytes")
    in_rounds = sorted(k for members in plan.rounds for k in members)
    if in_rounds != list(range(len(plan.patterns))) or not all(plan.rounds):
        raise ValueError("its rounds do not hold every pattern once")
    names = {f.resource for f in plan.resources}
    if len(names) != len(plan.resources):
        raise ValueError("a resource is listed twice")
    for finding in plan.resources:
        if finding.pattern is not None and not 0 <= finding.pattern < len(plan.patterns):
            raise ValueError(f"{one_line(finding.resource)} names a pattern that is not there")


def _check_expected(plan: Plan, expected: dict[str, float]) -> None:
    found = {
        "patterns": len(plan.patterns),
        "rounds": len(plan.rounds),
        "seconds": plan.seconds,
        "memory_bytes": plan.memory_bytes,
    }
    if expected != found:
        raise ValueError(
            "what it expects does not add up: "
            f"{format_bytes(found['memory_bytes'])}, {found['seconds']} s"
        )
