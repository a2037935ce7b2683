"""What people posted of their machines: where it stands, and how it becomes questions.

The posts are read from ``../shared/cases`` next to the repository.  A machine has what is
taken as given, what is to be predicted from it, and what the post establishes of its
structure.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from topocal.measure.importers.imported import Imported, Reading
from topocal.measure.importers.pair_table import both_ways_of
from topocal.measure.importers.registry import import_file
from topocal.measure.patterns import bundle
from topocal.measure.samples import Sample
from topocal.solve.model import Model
from topocal.solve.predict import predict
from topocal.topo.builder import TopologyBuilder
from topocal.topo.flow import Pattern
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology, natural_key

REPO: Final = Path(__file__).resolve().parents[1]
CASES: Final = REPO.parent / "shared" / "cases"
GB: Final = 1e9

REASONS: Final[Mapping[str, str]] = {
    "many": "Dozens of flows lose what no resource accounts for; the posts say so as well. The "
    "prediction is an upper bound.",
    "switch": "Flows of one switch (or leaf) in one class of routes share a resource that is no "
    "link of the tree. The fit knows such resources for single senders only.",
    "class": "Pairs inside a switch and across switches of one socket are taken as alike: a "
    "sender's routes are told apart at the socket only.",
    "duplex": "Both directions draw from one resource. No single flow can show it, and the fit "
    "adds no such resource where the topology has none.",
    "host": "What the copies of several cards with the host share shows in no single copy; from "
    "patterns of both directions at once the fit puts too much of it to one direction.",
    "pairs": "Which cards share something shows only where both copy at once. Groups are looked "
    "for in single pairs, and a topology that shows nothing is believed.",
    "blame": "Single cards are blamed for what their common uplink does, below what they reach "
    "alone; two of the posted patterns also pass far more than that uplink, unexplained.",
    "unseen": "No single flow crosses what binds here, so that singles say nothing of it.",
    "no fit": "The fit refuses the machine; the column *binds* has its words.",
    "fabric": "Each pair of a sparse fabric has links of its own, which no group of endpoints "
    "stands for.",
}
"""Why a prediction is known to be off."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Something that was posted of several flows at once.

    Attributes
    ----------
    family
        Patterns of one family stand in one line of the table.
    pattern
        The flows, all of the same size.
    posted_Bps
        What was posted.
    as_rates
        Whether the figure adds up rates that flows have while all others run.
    of_each
        Whether it is the mean rate of each flow over its own time.
    sample
        For fitting; ``None`` where the figure is no sample.
    """

    family: str
    pattern: Pattern
    posted_Bps: float
    as_rates: bool = False
    of_each: bool = False
    sample: Sample | None = None


Claim = Callable[[Model], bool]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine and what was posted of it.

    Attributes
    ----------
    slug
        Its folder, and which of several machines in it.
    title, wiring
        What it is, and where the topology comes from, for the reader.
    topology
        ``None``: inferred from the figures.
    basis, given
        What is taken as given, and in words.
    asked
        What is to be predicted.
    structure
        What is known of it otherwise; a claim is true of a model that shows it.
    misfits
        Key in :data:`REASONS` of each family that is known to be off.
    blind
        Single flows say nothing of what binds.
    """

    slug: str
    title: str
    wiring: str = "none: inferred from the figures"
    topology: Topology | None = None
    basis: Sequence[Sample] = ()
    given: str = "single flows"
    asked: Sequence[Asked] = ()
    structure: Mapping[str, Claim] = field(default_factory=dict)
    misfits: Mapping[str, str] = field(default_factory=dict)
    blind: bool = False

    @property
    def url(self) -> str:
        """Where the figures were posted."""
        text = (CASES / self.slug.split(":")[0] / "case.md").read_text()
        found = re.search(r"^- source: (\S+)", text, re.MULTILINE)
        assert found is not None
        return found[1]


@cache
def _import(name: str) -> Imported:
    return import_file(CASES / name)


def samples_of(name: str, label: str | None = None, **conditions: str) -> list[Sample]:
    imported = _import(name)
    if label is None and not conditions:
        return list(imported.best().samples)
    return list(imported.select(label, **conditions).samples)


def both_ways_in(name: str) -> list[Sample]:
    return list(both_ways_of(_import(name).best()).samples)


def single(samples: Iterable[Sample]) -> list[Sample]:
    return [s for s in samples if len(s.pattern.flows) == 1]


def asked_of(
    samples: Iterable[Sample], family: Callable[[Sample], str] | None = None
) -> list[Asked]:
    """What several flows did at once, the median of repeats."""
    groups: dict[str, list[Sample]] = {}
    for s in samples:
        if len(s.pattern.flows) > 1:
            groups.setdefault(s.name, []).append(s)
    found = []
    for name in sorted(groups, key=lambda n: (n.count("gpu"), natural_key(n))):
        members = groups[name]
        one = sorted(members, key=lambda s: s.throughput_Bps)[len(members) // 2]
        sizes = [f.size_bytes for f in one.pattern.flows]
        found.append(
            Asked(
                family=name if family is None else family(one),
                pattern=one.pattern.scaled(statistics.fmean(sizes)),
                posted_Bps=one.throughput_Bps,
                as_rates=max(sizes) > min(sizes) * (1 + 1e-9),
                sample=one,
            )
        )
    return found


def shifts_in(name: str) -> list[Asked]:
    readings: Sequence[Reading] = _import(name).groups[0].readings
    found = []
    for shift, r in enumerate(readings, start=1):
        assert r.pattern is not None
        family = f"every i to i+{shift}, mean rate of a flow"
        found.append(Asked(family=family, pattern=r.pattern, posted_Bps=r.value, of_each=True))
    return found


def all_to_all(s: Sample) -> str:
    """Families of everyone to everyone by their number of flows; others by their notation."""
    flows = len(s.pattern.flows)
    if flows < 12:
        return s.name
    senders = {a for a, _ in s.pattern.pairs}
    if flows == len(senders) * (len(senders) - 1):
        return f"all to all, {flows} flows of {min(senders, key=natural_key)} and on"
    return f"{flows} flows from {len(senders)} GPUs"


def switches(
    members_of: Sequence[Sequence[int]], roots: Sequence[int], *, host: bool = False
) -> Topology:
    """GPUs on switches, switches on root complexes of one socket."""
    builder = TopologyBuilder("posted wiring")
    builder.node("socket0", NodeKind.SOCKET)
    if host:
        builder.node("cpu0", NodeKind.MEMORY)
        builder.connect("cpu0", "socket0", LinkKind.MEMORY)
    for root in sorted(set(roots)):
        builder.node(f"root{root}", NodeKind.HOST_BRIDGE)
        builder.connect("socket0", f"root{root}", LinkKind.UNKNOWN)
    for k, (members, root) in enumerate(zip(members_of, roots, strict=True)):
        builder.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        builder.connect(f"root{root}", f"switch{k}", LinkKind.PCIE)
        for gpu in members:
            builder.node(f"gpu{gpu}", NodeKind.GPU)
            builder.connect(f"switch{k}", f"gpu{gpu}", LinkKind.PCIE)
    return builder.build()


def gives(total_GBps: float, *flows: tuple[str, str], within: float = 0.10) -> Claim:
    """The claim that flows pass so much together."""

    def check(model: Model) -> bool:
        (found,) = predict(model, [bundle(list(flows), 2.0**28)])
        return abs(found.throughput_Bps / GB / total_GBps - 1) <= within

    return check


def every(*claims: Claim) -> Claim:
    """The claim that all of several hold."""
    return lambda model: all(claim(model) for claim in claims)


def slow_port(endpoint: str, below_GBps: float) -> Claim:
    """The claim that an endpoint has a resource of its own that is slow."""
    return lambda model: any(
        endpoint in r.id.split("->")[0].split(".") + r.id.split("->")[-1].split(".")
        and r.capacity_Bps is not None
        and r.capacity_Bps < below_GBps * GB
        for r in model.resources.values()
    )


def shifted(sources: Sequence[int], shift: int) -> list[tuple[str, str]]:
    return [(f"gpu{a}", f"gpu{a + shift}") for a in sources]


def there_and_back(a: str, b: str) -> list[tuple[str, str]]:
    return [(a, b), (b, a)]
