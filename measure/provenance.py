"""Where samples come from: the keys that say it, and what must agree before runs merge.

Every key has a type, a unit where it is a quantity, and a check; :data:`KEYS` is the
list.  A key that is absent is unknown, never assumed; unknown agrees with anything.
Nothing in it names a host, a user or an address.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from topocal.measure.samples import Run
from topocal.topo.errors import InputError, one_line
from topocal.topo.scrub import Scrubber, safe_interface

__all__ = [
    "KEYS",
    "Key",
    "check_provenance",
    "fingerprint",
    "local_provenance",
    "require_agreement",
    "transport_settings",
]

ISSUE_MODES: Final = ("group", "one-by-one")
"""Messages handed over as one batch, or each by a call of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a provenance record.

    Attributes
    ----------
    type
        ``text``, ``integer``, ``number``, ``flag``, ``texts`` (a list), ``table``
        (text by text) or ``numbers`` (number by text).
    unit
        Of a quantity, ``None`` for others.
    must_agree
        Whether two runs that differ in it must not be merged.
    meaning
        One sentence.
    check
        Whether a value of the right type is a possible one.
    """

    type: str
    meaning: str
    unit: str | None = None
    must_agree: bool = False
    check: Callable[[Any], bool] = lambda _: True


def _is_zero_or_more(value: float) -> bool:
    return value >= 0


def _is_positive(value: float) -> bool:
    return value > 0


def _is_time_stamp(value: str) -> bool:
    return (
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", value) is not None
    )


def _are_rates(values: Mapping[str, float]) -> bool:
    return all(math.isfinite(v) and v > 0 for v in values.values())


def _are_distinct(values: Sequence[str]) -> bool:
    return len(set(values)) == len(values) and all(values)


KEYS: Final[Mapping[str, Key]] = {
    "run": Key(type="text", meaning="Random name of the run; a resumed run keeps it.", check=bool),
    "started": Key(type="text", unit="ISO 8601", meaning="When it began.", check=_is_time_stamp),
    "duration_s": Key(type="number", unit="s", meaning="How long it took.", check=_is_zero_or_more),
    "machine": Key(
        type="text",
        must_agree=True,
        meaning="Fingerprint of the make of the hosts, not of the hosts themselves.",
    ),
    "hosts": Key(
        type="integer", unit="hosts", must_agree=True, meaning="How many.", check=_is_positive
    ),
    "cpu": Key(type="text", must_agree=True, meaning="Model of the processors."),
    "devices": Key(
        type="texts", must_agree=True, meaning="Model of each rank's device, in order of rank."
    ),
    "ranks": Key(
        type="texts",
        must_agree=True,
        meaning="Endpoint of each rank of the measured group.",
        check=_are_distinct,
    ),
    "backend": Key(
        type="text", must_agree=True, meaning="What carried the messages: nccl, xccl, gloo …"
    ),
    "issue": Key(
        type="text",
        meaning="How messages were issued where a sample does not say it itself.",
        check=ISSUE_MODES.__contains__,
    ),
    "placement": Key(
        type="table",
        meaning="Number of the host that each endpoint's rank ran on; hosts count from 0.",
    ),
    "shortest_s": Key(
        type="number",
        unit="s",
        meaning="Patterns were repeated within one timing until it lasted so long.",
        check=_is_zero_or_more,
    ),
    "clock": Key(type="text", must_agree=True, meaning="What was read: a host clock, events …"),
    "clock_resolution_s": Key(
        type="number", unit="s", meaning="Its smallest step.", check=_is_zero_or_more
    ),
    "driver": Key(type="text", must_agree=True, meaning="Version of the devices' driver."),
    "libraries": Key(
        type="table",
        must_agree=True,
        meaning="Versions of what carries messages: nccl, oneccl, ucx, torch …",
    ),
    "environment": Key(
        type="table",
        must_agree=True,
        meaning="NCCL, RCCL, CCL, UCX and like variables that were set.",
    ),
    "emulated": Key(
        type="text", must_agree=True, meaning="Name of the emulated fabric, if it was one."
    ),
    "local_copy_Bps": Key(
        type="numbers",
        unit="B/s",
        meaning="What each endpoint copies from one place of its own memory to another.",
        check=_are_rates,
    ),
    "links": Key(type="table", meaning="State of each link under load, by link."),
    "kernel": Key(type="text", meaning="Release of the operating system's kernel."),
    "python": Key(type="text", meaning="Version of Python."),
    "topocal": Key(type="text", meaning="Version of this program."),
    "warm_ups": Key(
        type="integer", meaning="Untimed runs before each pattern.", check=_is_zero_or_more
    ),
    "verified": Key(type="flag", meaning="Whether every payload was read back and compared."),
    "remarks": Key(type="texts", meaning="What the user or the program had to say."),
}
"""Every key; :data:`Key.must_agree` marks those that must agree before runs merge."""

_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "text": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v),
    "flag": lambda v: isinstance(v, bool),
    "texts": lambda v: isinstance(v, list | tuple) and all(isinstance(i, str) for i in v),
    "table": lambda v: (
        isinstance(v, Mapping)
        and all(isinstance(k, str) and isinstance(i, str) for k, i in v.items())
    ),
    "numbers": lambda v: (
        isinstance(v, Mapping)
        and all(
            isinstance(k, str) and isinstance(i, int | float) and not isinstance(i, bool)
            for k, i in v.items()
        )
    ),
}


def check_provenance(values: Mapping[str, Any]) -> None:
    """Refuse an unknown key, a value of another type, or an impossible one.

    Raises
    ------
    InputError
        Naming the key.
    """
    for name, value in values.items():
        key = KEYS.get(name)
        if key is None:
            raise InputError(
                f"provenance has an unknown key {one_line(name)!r}",
                remedy="put what has no key of its own under remarks",
                about=name,
            )
        if not _TYPES[key.type](value) or not key.check(value):
            unit = f" in {key.unit}" if key.unit else ""
            raise InputError(
                f"provenance has {name} {one_line(value)!r}",
                remedy=f"give a {key.type}{unit}: {key.meaning[0].lower()}{key.meaning[1:]}",
                about=name,
            )


def require_agreement(runs: Sequence[Run], *, ignoring: Iterable[str] = ()) -> None:
    """Refuse runs that were measured under different conditions.

    Parameters
    ----------
    ignoring
        Keys that may differ all the same.

    Raises
    ------
    InputError
        Naming the first key in which two of them differ, both values and both files; also
        when ``ignoring`` names an unknown key.
    """
    unchecked = set(ignoring)
    unknown = sorted(unchecked - KEYS.keys())
    if unknown:
        raise InputError(
            f"there is no provenance key {one_line(unknown[0])!r}",
            remedy="use one of " + ", ".join(k for k, v in KEYS.items() if v.must_agree),
        )
    for name, key in KEYS.items():
        if not key.must_agree or name in unchecked:
            continue
        known = [r for r in runs if name in r.provenance]
        for other in known[1:]:
            if _differ(known[0].provenance[name], other.provenance[name]):
                ours, theirs = _apart(known[0].provenance[name], other.provenance[name])
                raise InputError(
                    f"{_source(known[0])} and {_source(other)} differ in {name}: "
                    f"{one_line(ours)} against {one_line(theirs)}",
                    remedy="fit them apart; samples of different conditions are no repeats",
                    about=name,
                )


def _source(run: Run) -> str:
    return one_line(run.source) if run.source else "a run"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _differ(ours: Any, theirs: Any) -> bool:
    return bool(_plain(ours) != _plain(theirs))


def _apart(ours: Any, theirs: Any) -> tuple[str, str]:
    """Both values as text, of tables and lists only what differs."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        names = sorted(n for n in {*ours, *theirs} if ours.get(n) != theirs.get(n))
        first = names[0]
        return tuple(  # type: ignore[return-value]
            f"{first}={side[first]}" if first in side else f"{first} not set"
            for side in (ours, theirs)
        )
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        if len(ours) != len(theirs):
            return f"{len(ours)} of them", f"{len(theirs)}"
        k = next(k for k, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        return f"number {k} is {ours[k]}", str(theirs[k])
    return str(ours), str(theirs)


def fingerprint(parts: Iterable[str]) -> str:
    """A short digest that is equal for equal parts, in whatever order they come.

    >>> fingerprint(["gpu", "cpu"]) == fingerprint(["cpu", "gpu"])
    True
    """
    text = "\n".join(sorted(parts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


_TRANSPORT: Final = re.compile(
    r"(?:NCCL|RCCL|CCL|UCX|UCC|FI|I_MPI|OMPI_MCA|GLOO|TORCH_NCCL|NVSHMEM|ROCSHMEM|HSA|ZE|MPICH)_"
    r"[A-Z0-9_]{1,80}"
    r"|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES|ZE_AFFINITY_MASK|CUDA_DEVICE_MAX_CONNECTIONS"
)
_WITHOUT_EFFECT: Final = re.compile(
    r".*(?:DEBUG|LOG|DUMP|TRACE|VERBOSE|PROFILE|COMM_ID|ADDR|HOSTS?|HOSTNAME|PASSWORD|TOKEN|SECRET"
    r"|KEY|CRED|KVS|PMI).*"
)
_USUAL_INTERFACES: Final = frozenset({"lo", "docker", "docker0", "eth", "en", "ib", "bond0"})
_LONGEST_VALUE: Final = 200


def transport_settings(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that steer how messages travel, with what may name a host removed.

    Of a path only its last part stays; addresses are replaced; variables that say what
    is printed or who is who are left out.

    >>> transport_settings({"NCCL_P2P_LEVEL": "SYS", "HOME": "/root", "NCCL_DEBUG": "INFO"})
    {'NCCL_P2P_LEVEL': 'SYS'}
    """
    given = os.environ if environment is None else environment
    scrubber = Scrubber()
    found = {}
    for name in sorted(given):
        if _TRANSPORT.fullmatch(name) and not _WITHOUT_EFFECT.fullmatch(name):
            value = scrubber.scrub(_last_parts(given[name]))
            if name.endswith("IFNAME"):
                value = _plain_interfaces(value)
            found[name] = value[:_LONGEST_VALUE]
    return found


def _last_parts(value: str) -> str:
    """Of every path its last part: directories may be named after people."""
    return re.sub(r"[^\s,:;=]*/([^\s,:;=/]*)", r"\1", value)


def _plain_interfaces(value: str) -> str:
    """Network interfaces under names that say where they are plugged in, others as such."""
    return re.sub(
        r"[^\s,;=^]+",
        lambda m: m[0] if safe_interface(m[0]) or m[0] in _USUAL_INTERFACES else "interface",
        value,
    )


def local_provenance(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What this process can say without touching a device."""
    found: dict[str, Any] = {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "environment": transport_settings(environment),
    }
    with suppress(PackageNotFoundError):  # a checkout that was never installed
        found["topocal"] = version("topocal")
    return found
