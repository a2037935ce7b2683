"""A fabric as people ask for one on the command line: what it is like, and its faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topocal.calibration import Calibration
    from topocal.measure.coordinator import Settings
    from topocal.measure.fabric.emulated import Fabric
    from topocal.measure.fabric.shape import Shape
    from topocal.measure.machine import Machine
    from topocal.measure.plan import Plan
    from topocal.measure.samples import Measurements
    from topocal.solve.adaptive import Step
    from topocal.topo.flow import Pattern

__all__ = [
    "SIZES_BYTES",
    "calibrate_on_fabric",
    "find_shape",
    "on_fabric",
    "plan_of",
    "preferring",
    "with_faults",
]

SIZES_BYTES: Final = (2.0**20, 3 * 2.0**20)
"""What a fabric is measured at unless told: at 50 MB/s they take 21 and 63 ms alone, long
against a start that is 0.2 ms late.  Much smaller ones tell nothing of capacities, larger
ones only take longer."""


def find_shape(
    like: str,
    *,
    endpoints: str | None = None,
    scale: float = 1.0,
    spread: float | None = None,
    seed: int = 0,
) -> Shape:
    """The fabric modelled on a file, a reference machine, or a shape of its own.

    Raises
    ------
    InputError
        When there is no such thing, or no fabric can be like it.
    """
    from topocal.machine import is_file, topology_of_file
    from topocal.measure.fabric.shape import SPREAD, shape_of
    from topocal.measure.fabric.shapes import build_shape
    from topocal.topo.endpoint_names import endpoint_list

    topology = topology_of_file(like) if is_file(like) else build_shape(like)
    chosen = None
    if endpoints is not None:
        chosen = endpoint_list(endpoints, topology.endpoints)
    return shape_of(
        topology,
        endpoints=chosen,
        scale=scale,
        spread=SPREAD if spread is None else spread,
        seed=seed,
    )


def with_faults(
    shape: Shape,
    *,
    slow: Sequence[str] = (),
    half_duplex: Sequence[str] = (),
    ingress: Sequence[str] = (),
) -> Shape:
    """The same with faults that the topology does not show.

    Parameters
    ----------
    slow
        ``LINK=FACTOR`` each.
    half_duplex
        ``LINK`` each.
    ingress
        ``ENDPOINT=RATE`` each, or ``ENDPOINT<-SOURCES=RATE``.

    Raises
    ------
    InputError
        When one cannot be read, or names nothing.
    """
    from topocal.measure.fabric import faults
    from topocal.topo.endpoint_names import endpoint_list, plain_arrows, resolve_endpoint
    from topocal.topo.errors import InputError, one_line
    from topocal.topo.units import parse_rate

    blueprint = shape.blueprint
    slow, half_duplex, ingress = (
        [plain_arrows(text) for text in texts] for texts in (slow, half_duplex, ingress)
    )
    for text in slow:
        link, value = _split(text, "LINK=FACTOR")
        try:
            factor = float(value)
        except ValueError as error:
            raise InputError(
                f"{one_line(value)!r} is no factor", remedy="write --slow 'LINK=0.5'"
            ) from error
        blueprint = faults.slow(blueprint, link, factor)
    for link in half_duplex:
        blueprint = faults.half_duplex(blueprint, link)
    for text in ingress:
        name, value = _split(text, "ENDPOINT=RATE")
        root, arrow, peers = name.partition("<-")
        endpoint = resolve_endpoint(root, blueprint.endpoints)
        sources = endpoint_list(peers, blueprint.endpoints) if arrow else []
        blueprint = faults.limit_ingress(blueprint, endpoint, parse_rate(value), sources)
    return replace(shape, blueprint=blueprint)


def _split(text: str, form: str) -> tuple[str, str]:
    from topocal.topo.errors import InputError, one_line

    name, sign, value = text.rpartition("=")
    if not (sign and name and value):
        raise InputError(f"{one_line(text)!r} is not {form}", remedy=f"write {form}")
    return name, value


def calibrate_on_fabric(
    shape: Shape,
    calibration: Calibration,
    settings: Settings,
    finish: Callable[[Step], None],
    *,
    resume: bool = False,
    quiet: bool = False,
) -> None:
    """The loop of ``topocal calibrate``, with real messages over an emulated fabric.

    Parameters are those of :func:`topocal.calibration.calibrate_in_processes`.

    Raises
    ------
    EmulationError
        Where the system refuses namespaces.
    TopocalError
        As :func:`topocal.calibration.calibrate_in_processes`.
    """
    from topocal.calibration import calibrate_in_processes
    from topocal.measure.fabric.emulated import Fabric

    with Fabric(shape.blueprint) as fabric:
        calibrate_in_processes(
            calibration,
            settings,
            finish,
            spawn=True,
            backend="gloo",
            resume=resume,
            quiet=quiet,
            enter=preferring(fabric),
            wrap=_Preferred,
            provenance={"emulated": shape.blueprint.name},
        )


def on_fabric(
    shape: Shape,
    work: Callable[[Machine], None],
    *,
    settings: Settings | None = None,
    advance: Callable[[float, int], None] = lambda done, total: None,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Let rank 0 of a group of real processes on an emulated fabric do some measuring.

    Parameters
    ----------
    work
        Called on rank 0, which is a process of its own: what it finds goes into files.
    settings, advance, tell
        As of :class:`topocal.measure.distributed.Session`.

    Raises
    ------
    EmulationError
        Where the system refuses namespaces.
    TopocalError
        What ``work`` and measuring raise.
    """
    from topocal.measure.coordinator import Settings
    from topocal.measure.distributed import Session, subject_of, take_part
    from topocal.measure.fabric.emulated import Fabric
    from topocal.processes import run_ranks

    session = Session(
        names=shape.blueprint.endpoints,
        subject=subject_of(shape.blueprint.truth),
        settings=settings or Settings(),
        provenance={"emulated": shape.blueprint.name},
        advance=advance,
        tell=tell,
    )
    with Fabric(shape.blueprint) as fabric:
        run_ranks(
            lambda place: take_part(
                place, session, lambda machine: work(_Preferred(machine)), backend="gloo"
            ),
            session.names,
            spawn=True,
            enter=preferring(fabric),
        )


def plan_of(
    shape: Shape,
    patterns: Sequence[Pattern],
    *,
    sizes_bytes: Sequence[float] = SIZES_BYTES,
    repeats: int = 3,
) -> Plan:
    """A plan that measures just these patterns, one after the other.

    Raises
    ------
    InputError
        When sizes make no sense.
    """
    from topocal.measure.plan import Plan, PlannedPattern, checked_sizes, fingerprint

    sizes = checked_sizes(sizes_bytes)
    return Plan(
        machine=shape.topology.name,
        topology_sha256=fingerprint(shape.topology),
        endpoints=shape.blueprint.endpoints,
        sizes_bytes=sizes,
        repeats=repeats,
        warm_ups=1,
        clear_ratio=1.4,
        patterns=tuple(
            PlannedPattern(flows=tuple(p.pairs), reasons=(), seconds=0.0, memory_bytes=0.0)
            for p in patterns
        ),
        rounds=tuple((k,) for k in range(len(patterns))),
        resources=(),
    )


def preferring(fabric: Fabric) -> Callable[[int], None]:
    """What lets a rank into a fabric, to run there before what else the machine does."""
    from topocal.measure.fabric.priority import prefer

    def enter(rank: int) -> None:
        fabric.enter(rank)
        prefer(True)

    return enter


@dataclass(frozen=True)
class _Preferred:
    """A machine whose rank 0 runs before ordinary processes while it measures, and only then."""

    machine: Machine

    def run(self, plan: Plan) -> Measurements:
        from topocal.measure.fabric.priority import prefer

        prefer(True)
        try:
            return self.machine.run(plan)
        finally:
            prefer(False)
