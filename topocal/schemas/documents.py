"""What stands at the top of each file; what stands below it are the types of the code itself.

A field's description is the one in the docstring of the class named in :data:`DESCRIBED_BY`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from topocal.measure import plan as plan_file
from topocal.measure.calibration_schema import VERSION as CALIBRATION_VERSION
from topocal.measure.calibration_schema import RunEntry
from topocal.measure.patterns import PatternKind
from topocal.solve import caps_document as caps_file
from topocal.solve import model as model_file
from topocal.solve.caps import Cap, Caps
from topocal.solve.caps_tables import ProcessTable
from topocal.solve.conditions import Conditions
from topocal.solve.fading import Crowd, Fading
from topocal.solve.status import Status
from topocal.topo.io import VERSION as TOPOLOGY_VERSION
from topocal.topo.resource import Link, LinkKind, NodeKind, PathClass, Resource, Sharing, Use

__all__ = ["DESCRIBED_BY", "DOCUMENTS"]

PathClassName = Annotated[
    str, Meta(extra_json_schema={"enum": [c.name for c in PathClass]}, title="PathClass")
]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0)]
Range = Annotated[list[int], Meta(min_length=2, max_length=3)]
"""Arguments of Python's ``range``."""

Block = tuple[Count, Count, float]
"""A set of senders and one of receivers, by number, and the figure of their pairs."""


class Tagged(Struct, frozen=True):
    """A value that JSON has no form for: an infinite number, a tuple, a very large integer."""

    kind: Literal["tuple", "float", "int", "dict"] = field(name="@")
    of: Any


Number = float | Tagged


class NodeEntry(Struct, frozen=True):
    """A node; whatever else its source says of it stands beside these, under names of its own.

    Attributes
    ----------
    id
        Stable, readable, unique.
    kind
        What it is.
    label
        Words for people.
    """

    id: str
    kind: NodeKind
    label: str = ""


class LinkEntry(Struct, frozen=True):
    """A link; whatever else its source says of it stands beside these."""

    id: str
    tail: str
    head: str
    kind: LinkKind
    uses: list[tuple[str, float]]
    nominal_Bps: Number | None = None
    reverse: str | None = None


class ResourceEntry(Struct, frozen=True):
    """A resource."""

    id: str
    sharing: Sharing = Sharing.CAPACITY
    nominal_Bps: Number | None = None
    kappa: Number = 1.0
    in_order: bool = False
    label: str = ""
    source: str = ""


class UseEntry(Struct, frozen=True):
    """Flows that load a resource which no link shows.

    Attributes
    ----------
    resource
        Its id.
    sources, destinations, path_classes
        Which flows: all three must fit, and what is absent fits all.
    weight
        How often a byte of theirs counts.
    """

    resource: str
    sources: list[str] | UnsetType = UNSET
    destinations: list[str] | UnsetType = UNSET
    path_classes: list[PathClassName] | UnsetType = UNSET
    weight: Number = 1.0


class Topology(Struct, frozen=True):
    """A machine: nodes, directed links, resources and who loads them.

    Attributes
    ----------
    digest
        SHA-256 of the rest of the file; absent, nothing is compared.
    name
        What the machine is called.
    nodes, links, resources
        All of them.
    uses
        Loads that no link shows.
    peer_access
        Whether GPUs may copy to each other directly; null: nothing says so.
    no_peer_pairs
        Pairs that may not, in either direction.
    stated_classes
        Path classes that a file said, for comparison only.
    class_overrides
        Path classes that hold whatever a route crosses.
    provenance
        Where the description comes from.
    notes
        What the reader had to tell.
    attributes
        Anything else of the graph.
    """

    format: Literal["topocal/topology"]
    version: Annotated[int, Meta(ge=1, le=TOPOLOGY_VERSION)]
    name: str
    nodes: list[NodeEntry]
    links: list[LinkEntry]
    resources: list[ResourceEntry]
    uses: list[UseEntry]
    peer_access: bool | None = None
    no_peer_pairs: list[tuple[str, str]] = []
    stated_classes: list[tuple[str, str, PathClassName]] = []
    class_overrides: list[tuple[str, str, PathClassName]] = []
    provenance: list[str] = []
    notes: list[str] = []
    attributes: dict[str, Any] = {}
    digest: Digest | UnsetType = UNSET


class Expected(Struct, frozen=True):
    """What the plan will take.

    Attributes
    ----------
    patterns, rounds
        How many.
    seconds
        Of the whole plan.
    memory_bytes
        Buffers on the endpoint that needs most.
    """

    patterns: Count
    rounds: Count
    seconds: float
    memory_bytes: float


class Plan(Struct, frozen=True):
    """What to measure on one machine.

    Attributes
    ----------
    expected
        What it will take.
    digest
        SHA-256 of the rest of the file; absent, nothing is compared.
    """

    format: Literal["topocal/plan"]
    version: Annotated[int, Meta(ge=1, le=plan_file.VERSION)]
    machine: str
    topology_sha256: Sha256
    expected: Expected
    endpoints: list[str]
    sizes_bytes: list[Annotated[float, Meta(gt=0)]]
    repeats: Annotated[int, Meta(ge=1)]
    warm_ups: Count
    clear_ratio: Annotated[float, Meta(ge=1)]
    patterns: list[plan_file.PlannedPattern]
    rounds: list[list[Count]]
    resources: list[plan_file.Finding]
    notes: list[str]
    digest: Digest | UnsetType = UNSET


class Calibration(Struct, frozen=True, forbid_unknown_fields=True):
    """Every raw timing, and where it comes from.

    Attributes
    ----------
    digest
        SHA-256 of the text of ``runs``, as it stands in the file.
    runs
        Each with its conditions, tables and timings.
    """

    format: Literal["topocal/calibration"]
    version: Annotated[int, Meta(ge=1, le=CALIBRATION_VERSION)]
    runs: list[RunEntry]
    digest: Digest | UnsetType = UNSET


class Model(Struct, frozen=True):
    """A machine whose capacities are known from measurements.

    Attributes
    ----------
    digest
        SHA-256 of the rest of the file; absent, nothing is compared.
    """

    format: Literal["topocal/model"]
    version: Annotated[int, Meta(ge=1, le=model_file.VERSION)]
    noise: Annotated[float, Meta(gt=0)]
    sharing: str
    undecided: list[Literal[0, 1]]
    findings: list[str]
    left_out: dict[str, str]
    resources: list[model_file.FittedResource]
    residuals: list[model_file.Residual]
    alpha_s: dict[PatternKind, float]
    offset_s: dict[PatternKind, float]
    certificate: model_file.Certificate
    notes: list[str]
    sources: list[str]
    topology: Topology
    fading: Fading | None = None
    undecided_endpoints: list[tuple[str, Literal[0, 1]]] = []
    provenance: dict[str, Any] = {}
    digest: Digest | UnsetType = UNSET


class StartUp(Struct, frozen=True):
    """A transfer takes max(busiest + offset_s, least_s) seconds.

    Attributes
    ----------
    offset_s, least_s
        Seconds.
    """

    offset_s: float
    least_s: float


class FadingEntry(Struct, frozen=True):
    """How much longer everything takes for each further flow; a loss of 0: not at all."""

    loss: Annotated[float, Meta(ge=0, lt=1)]
    error: Annotated[float, Meta(ge=0)]
    by: Crowd
    most_flows: int | None


class Undecided(Struct, frozen=True):
    """Processes of which the data cannot tell whether they serve their flows at once or by turns.

    Attributes
    ----------
    receiving, sending
        Ranges of them, on either side.
    """

    receiving: list[Range]
    sending: list[Range]


class CapEntry(Struct, frozen=True):
    """What one resource passes, and who loads it.

    Attributes
    ----------
    interval_Bps
        95 % interval; null where nothing is proven on that side.
    kappa_interval
        Of what is time-shared, where it was measured.
    """

    id: str
    label: str
    sharing: Sharing
    status: Status
    cap_Bps: float | None
    interval_Bps: tuple[float | None, float | None]
    loads: list[Block]
    kappa: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    kappa_interval: tuple[float | None, float | None] | UnsetType = UNSET


class Pairs(Struct, frozen=True):
    """Rates of pairs.

    Attributes
    ----------
    alone_Bps
        A pair by itself.
    both_ways_Bps
        Each direction while both are busy with as many bytes, where that is less than the slower
        passes alone.
    """

    alone_Bps: list[Block]
    both_ways_Bps: list[Block]


class CapsDocument(Struct, frozen=True):
    """What a policy needs to price transfers between n processes; docs/caps.md says how.

    Attributes
    ----------
    digest
        SHA-256 of all the rest, as compact JSON with sorted keys (docs/caps.md).
    start_up
        What a transfer takes beside the busiest resource's time.
    pairs
        What pairs pass by themselves.
    processes
        What each process passes, by itself and from several senders.
    sets
        Sets of processes, each as arguments of Python's range.
    unreachable
        Blocks (senders, receivers) of pairs that nothing joins.
    fading
        How much longer everything takes for each further flow.
    undecided
        Which processes may serve their flows by turns.
    """

    format: Literal["topocal/caps"]
    version: Annotated[int, Meta(ge=1, le=caps_file.VERSION)]
    digest: Digest
    machine: str
    calibration: Conditions
    noise: Annotated[float, Meta(ge=0)]
    start_up: StartUp
    fading: FadingEntry
    undecided: Undecided
    endpoints: list[str]
    sets: list[list[Range]]
    resources: list[CapEntry]
    unreachable: list[tuple[Count, Count]]
    pairs: Pairs
    processes: ProcessTable


DOCUMENTS: Final[dict[str, type[Struct]]] = {
    "topology": Topology,
    "plan": Plan,
    "calibration": Calibration,
    "model": Model,
    "caps": CapsDocument,
}
"""By the name of the file, in order of the work."""

DESCRIBED_BY: Final[dict[type, type]] = {
    LinkEntry: Link,
    ResourceEntry: Resource,
    UseEntry: Use,
    Plan: plan_file.Plan,
    Model: model_file.Model,
    FadingEntry: Fading,
    CapEntry: Cap,
    CapsDocument: Caps,
}
"""Whose docstring says what the fields mean that a type here does not describe itself."""
