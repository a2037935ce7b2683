"""Which samples belong to one scenario: the same flows, in proportion, issued alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topocal.measure.patterns import notation
from topocal.measure.samples import Sample
from topocal.topo.errors import InputError
from topocal.topo.flow import Flow, Pattern

__all__ = ["Groups", "group_samples"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class _Shape(NamedTuple):
    """Flows in sorted order: pairs, sizes relative to the largest, starts."""

    pairs: tuple[tuple[str, str], ...]
    sizes: tuple[float, ...]
    starts: tuple[float, ...]


@dataclass(frozen=True)
class Groups:
    """N samples in G groups, numbered by first appearance.

    Attributes
    ----------
    of_sample
        Shape (N,): group of each sample.
    scale
        Shape (N,): bytes of the sample's largest flow.
    pattern
        Shape (N,): number of each sample's pattern object.
    place
        Of each pattern object: the place of each of its flows in sorted order, which is
        the same for all patterns of a group.
    first
        Shape (G,): the first sample of each group; the first that is not empty, if any.
    """

    of_sample: Integers
    scale: Floats
    pattern: Integers
    place: list[Integers]
    first: list[int]
    _patterns: list[Pattern]
    _flows: dict[tuple[str, str, float, float], Flow] = field(default_factory=dict)

    def scaled_pattern(self, group: int) -> Pattern:
        """The group's pattern with one byte in its largest flow."""
        first = self.first[group]
        pattern, scale = self._patterns[self.pattern[first]], float(self.scale[first])
        flows = []
        for f in pattern.flows:
            # An empty message is a sample of the equal sizes that nobody measured.
            size_bytes = f.size_bytes / scale if scale > 0 else 1.0
            key = (f.source, f.destination, size_bytes, f.start_s)
            flow = self._flows.get(key)
            if flow is None:
                source, destination, _, start_s = key
                flow = self._flows[key] = Flow(
                    source=source, destination=destination, size_bytes=size_bytes, start_s=start_s
                )
            flows.append(flow)
        return Pattern(flows=tuple(flows), name=pattern.name or notation(pattern.pairs))


def group_samples(samples: Sequence[Sample]) -> Groups:
    """Put samples together whose flows are the same, in the same proportions.

    The order of flows does not matter; proportions are the same when six digits are.  How
    the messages were issued tells groups apart, and so does whether sizes are known: a
    bare rate is no sample of a line through sizes.  A message of no bytes has no
    proportions: it belongs to the pattern of equal sizes, or else to the only pattern of
    its flows that there is.

    Raises
    ------
    InputError
        When a sample has no flows.
    """
    number: dict[int, int] = {}
    patterns: list[Pattern] = []
    of_sample = np.empty(len(samples), dtype=np.int64)
    for k, sample in enumerate(samples):
        found = number.get(id(sample.pattern))
        if found is None:
            if not sample.pattern.flows:
                raise InputError(
                    "a sample of a pattern without flows",
                    where=sample.where,
                    remedy="remove it",
                    about=sample,
                )
            found = number[id(sample.pattern)] = len(patterns)
            patterns.append(sample.pattern)
        of_sample[k] = found
    scales = np.array([max(f.size_bytes for f in p.flows) for p in patterns])
    orders = [_sorted_order(p.flows) for p in patterns]
    shapes = [
        _shape(p.flows, order, scale)
        for p, order, scale in zip(patterns, orders, scales.tolist(), strict=True)
    ]
    _place_empty(shapes, scales)
    numbers = {shape: k for k, shape in enumerate(dict.fromkeys(shapes))}
    of_pattern = [numbers[shape] for shape in shapes]
    groups: dict[tuple[int, str | None, bool], int] = {}
    first: list[int] = []
    group_of_sample = np.empty(len(samples), dtype=np.int64)
    for k, (pattern, sample) in enumerate(zip(of_sample.tolist(), samples, strict=True)):
        key = (of_pattern[pattern], sample.issue, sample.size_known)
        group = groups.get(key)
        if group is None:
            group = groups[key] = len(first)
            first.append(k)
        elif not scales[of_sample[first[group]]] > 0:
            first[group] = k
        group_of_sample[k] = group
    return Groups(
        of_sample=group_of_sample,
        scale=scales[of_sample],
        pattern=of_sample,
        place=[np.argsort(np.array(order)) for order in orders],
        first=first,
        _patterns=patterns,
    )


def _sorted_order(flows: Sequence[Flow]) -> list[int]:
    """Numbers of the flows, sorted by what they are."""
    if len(flows) == 1:
        return [0]
    keys = [(f.source, f.destination, f.size_bytes, f.start_s) for f in flows]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _shape(flows: Sequence[Flow], order: Sequence[int], scale: float) -> _Shape:
    flows = [flows[k] for k in order]
    sizes = [f.size_bytes for f in flows]
    relative: tuple[float, ...] = ()
    if scale > 0 and sizes.count(scale) < len(sizes):
        relative = tuple([float(f"{size / scale:.6g}") for size in sizes])
    return _Shape(
        pairs=tuple([(f.source, f.destination) for f in flows]),
        sizes=relative,
        starts=tuple([f.start_s for f in flows]),
    )


def _place_empty(shapes: list[_Shape], scales: Floats) -> None:
    """Give patterns of empty messages the only proportions that their flows have elsewhere.

    They have the shape of equal sizes already.
    """
    empty = np.flatnonzero(scales == 0).tolist()
    if not empty:
        return
    sized: dict[_Shape, set[_Shape]] = {}
    for shape, scale in zip(shapes, scales.tolist(), strict=True):
        if scale > 0:
            sized.setdefault(shape._replace(sizes=()), set()).add(shape)
    for k in empty:
        choices = sized.get(shapes[k], set())
        if len(choices) == 1:
            (shapes[k],) = choices
