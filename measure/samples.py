"""What was measured: a pattern with its sizes and the seconds it took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topocal.measure.patterns import PatternKind, kind_of
from topocal.topo.errors import Where
from topocal.topo.flow import Pattern
from topocal.topo.topology import natural_key

__all__ = ["Measurements", "Sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One timing of one pattern.

    Attributes
    ----------
    pattern
        The flows with their sizes.
    seconds
        From the common start to the last byte's arrival.
    size_known
        False where the source gave a rate without saying at what size; the
        pattern then carries a size of our choosing, and only the ratio of
        bytes to seconds means something.
    where
        The file and line it came from.
    """

    pattern: Pattern
    seconds: float
    size_known: bool = True
    where: Where | None = None

    @property
    def kind(self) -> PatternKind:
        """What the pattern is."""
        return kind_of(self.pattern)

    @property
    def name(self) -> str:
        """The pattern's notation."""
        return self.pattern.name

    @property
    def throughput_Bps(self) -> float:
        """Bytes of all flows over the seconds."""
        return self.pattern.total_bytes / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Samples of one machine.

    Attributes
    ----------
    samples
        In a canonical order that does not depend on the order of the input.
    sources
        What they were read from.
    """

    samples: tuple[Sample, ...]
    sources: tuple[str, ...] = ()

    @classmethod
    def of(cls, samples: Iterable[Sample], sources: Sequence[str] = ()) -> Measurements:
        """Measurements in canonical order: by number of flows, name, size, seconds."""
        ordered = sorted(
            samples,
            key=lambda s: (
                len(s.pattern.flows),
                natural_key(s.name),
                s.pattern.total_bytes,
                s.seconds,
            ),
        )
        return cls(samples=tuple(ordered), sources=tuple(sources))

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Every endpoint that some sample names, in natural order."""
        names = {n for s in self.samples for pair in s.pattern.pairs for n in pair}
        return tuple(sorted(names, key=natural_key))

    @property
    def pairs(self) -> tuple[Sample, ...]:
        """The samples of one flow alone."""
        return tuple(s for s in self.samples if len(s.pattern.flows) == 1)

    @property
    def concurrent(self) -> tuple[Sample, ...]:
        """The samples of several flows at once."""
        return tuple(s for s in self.samples if len(s.pattern.flows) > 1)
