"""Under which conditions a group measures, as a provenance record."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from topocal.measure.orders import Surveyed
from topocal.measure.provenance import fingerprint, local_provenance

__all__ = ["conditions", "run_name"]


def run_name() -> str:
    """A random name for a run."""
    return secrets.token_hex(6)


def conditions(
    surveys: Mapping[int, Surveyed],
    *,
    names: Sequence[str],
    backend: str,
    issues: Sequence[str],
    verified: bool,
    shortest_s: float,
) -> dict[str, Any]:
    """The record, by the keys of :data:`topocal.measure.provenance.KEYS`.

    Parameters
    ----------
    surveys
        What each rank says of itself.
    names
        The endpoint of each rank.
    """
    ranks = sorted(surveys)
    hosts = list(dict.fromkeys(surveys[r].host for r in ranks))
    cpus = sorted({surveys[r].facts.get("cpu", "") for r in ranks} - {""})
    drivers = sorted({surveys[r].facts.get("driver", "") for r in ranks} - {""})
    libraries: dict[str, set[str]] = {}
    for r in ranks:
        for name, version in surveys[r].facts.get("libraries", {}).items():
            libraries.setdefault(name, set()).add(version)
    makes = [
        fingerprint(
            f"{surveys[r].device} {surveys[r].facts.get('cpu', '')}"
            for r in ranks
            if surveys[r].host == host
        )
        for host in hosts
    ]
    found: dict[str, Any] = {
        **local_provenance(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": fingerprint(makes),
        "hosts": len(hosts),
        "devices": [surveys[r].device for r in ranks],
        "ranks": list(names),
        "placement": {names[r]: str(hosts.index(surveys[r].host)) for r in ranks},
        "backend": backend,
        "clock": "CLOCK_MONOTONIC",
        "clock_resolution_s": time.get_clock_info("monotonic").resolution,
        "libraries": {name: ", ".join(sorted(v)) for name, v in sorted(libraries.items())},
        "verified": verified,
        "shortest_s": shortest_s,
    }
    if cpus:
        found["cpu"] = ", ".join(cpus)
    if drivers:
        found["driver"] = ", ".join(drivers)
    if len(issues) == 1:
        found["issue"] = issues[0]
    return found
