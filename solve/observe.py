"""Raw samples to observations: one figure per pattern, with its standard error."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from topocal.measure.samples import Sample
from topocal.solve.rows import Observation

__all__ = ["observe"]


def observe(samples: Iterable[Sample]) -> list[Observation]:
    """One observation per pattern and size: the median of its repeats."""
    grouped: dict[tuple[str, float], list[Sample]] = {}
    for sample in samples:
        grouped.setdefault((sample.name, sample.pattern.total_bytes), []).append(sample)
    return [
        Observation(
            name=name,
            pattern=members[0].pattern,
            seconds=float(np.median([s.seconds for s in members])),
            sigma=float("nan"),
            where=members[0].where,
        )
        for (name, _), members in grouped.items()
    ]
