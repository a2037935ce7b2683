"""Measurements of several files as one: what must agree, and what is counted once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from topocal.measure.provenance import require_agreement
from topocal.measure.samples import Measurements, Run, Sample

__all__ = ["merge"]

_State = tuple[Run, list[Sample]]
"""A run as one part has it."""


def merge(parts: Iterable[Measurements], *, ignoring: Iterable[str] = ()) -> Measurements:
    """All samples together; the same whatever the order of the parts.

    Runs must agree in every provenance key that says under which conditions they were
    measured; a key that one of them does not state is not compared.  Two parts with the
    same run (its random name is in the provenance) are what was there before and after it
    was resumed: a timing that stands in both counts once.

    Parameters
    ----------
    ignoring
        Provenance keys that may differ all the same.

    Raises
    ------
    InputError
        When two runs differ in a key that must agree, naming both files and values.
    """
    parts = list(parts)
    require_agreement([run for part in parts for run in part.runs], ignoring=ignoring)
    if len(parts) == 1 and len(parts[0].runs) <= 1:
        return parts[0]
    found: dict[tuple[str, str], list[_State]] = {}
    loose: list[Sample] = []
    for part in parts:
        of_run: list[list[Sample]] = [[] for _ in part.runs]
        for sample in (*part.samples, *part.set_aside):
            (loose if sample.run is None else of_run[sample.run]).append(sample)
        for run, samples in zip(part.runs, of_run, strict=True):
            name = str(run.provenance.get("run", ""))
            key = (name, "" if name else _text(run))
            found.setdefault(key, []).append((run, samples))
    runs: list[Run] = []
    merged = loose
    for key in sorted(found):
        states = sorted(found[key], key=lambda s: (len(s[1]), _text(s[0]), s[0].source))
        samples = [sample for _, members in states for sample in members]
        if key[0] and len(states) > 1:
            samples = list({_identity(sample): sample for sample in samples}.values())
        number = len(runs)
        merged += (
            s if s.run == number else msgspec.structs.replace(s, run=number) for s in samples
        )
        runs.append(states[-1][0])
    sources = dict.fromkeys(source for part in parts for source in part.sources)
    return Measurements.of(merged, list(sources), runs)


def _text(run: Run) -> str:
    """The same text for the same provenance, whatever the order of its keys."""
    return msgspec.json.encode(dict(run.provenance), order="deterministic").decode()


def _identity(sample: Sample) -> tuple[Any, ...]:
    """What makes two records the same timing of the same run."""
    return (
        sample.pattern,
        sample.seconds,
        sample.size_known,
        sample.repeat,
        sample.round,
        sample.issue,
        sample.iterations,
        sample.flow_finish_s,
        sample.endpoint_start_s,
        sample.endpoint_end_s,
        sample.set_aside,
    )
