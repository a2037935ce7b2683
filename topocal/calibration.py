"""The loop of ``topocal calibrate``: measure, fit, measure what the fit does not know yet.

Whatever answers to a plan is a machine (:class:`topocal.measure.machine.Machine`): real
processes, an emulated fabric's, or a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topocal.measure.coordinator import Coordinator, Settings
    from topocal.measure.machine import Machine
    from topocal.measure.plan import Plan
    from topocal.measure.samples import Measurements
    from topocal.solve.adaptive import Step
    from topocal.topo.topology import Topology

__all__ = ["Calibration", "calibrate_in_processes", "simulated_machine"]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What is calibrated, and where the results go.

    Attributes
    ----------
    topology
        The machine.
    endpoints
        Who takes part, by rank.
    sizes_bytes, repeats, rounds
        As of :func:`topocal.solve.adaptive.calibrate`; ``None``: its own choice.
    model, samples
        The files to write.
    """

    topology: Topology
    endpoints: tuple[str, ...]
    sizes_bytes: tuple[float, ...] | None
    repeats: int | None
    rounds: int
    model: Path
    samples: Path

    def run(self, machine: Machine, tell: Callable[[str], None]) -> Step:
        """The whole loop; both files are written after every round.

        Raises
        ------
        TopocalError
            What measuring, fitting and writing raise; also when there is nothing to
            measure.
        """
        from topocal.measure.calibration import write_calibration
        from topocal.solve.adaptive import calibrate
        from topocal.solve.model import write_model
        from topocal.topo.errors import InputError

        last: Step | None = None
        steps = calibrate(
            self.topology,
            machine.run,
            endpoints=self.endpoints,
            sizes_bytes=self.sizes_bytes,
            repeats=self.repeats,
            rounds=self.rounds,
        )
        for number, step in enumerate(steps, start=1):
            write_calibration(step.measurements, self.samples)
            write_model(step.model, self.model)
            tell(f"round {number}: {len(step.plan.patterns)} patterns; {_state(step)}")
            last = step
        if last is None:
            raise InputError(
                "there is nothing to measure", remedy="give two endpoints or more that are joined"
            )
        if number < self.rounds and (left := _left_open(last)):
            tell(f"nothing more can be told by measuring between these endpoints: {left}")
        return last

    @property
    def subject(self) -> str:
        """A digest of what is calibrated, by which a journal knows its own."""
        from topocal.measure.distributed import subject_of
        from topocal.measure.plan import fingerprint

        return subject_of(
            fingerprint(self.topology), self.sizes_bytes, self.repeats, self.rounds, "calibrate"
        )

    @property
    def told(self) -> dict[str, str]:
        """What every rank must have been told alike."""
        from topocal.measure.plan import fingerprint
        from topocal.topo.units import format_bytes

        sizes = self.sizes_bytes
        return {
            "command": "topocal calibrate",
            "machine": fingerprint(self.topology),
            "--sizes": "chosen" if sizes is None else ",".join(map(format_bytes, sizes)),
            "--repeats": "chosen" if self.repeats is None else str(self.repeats),
            "--rounds": str(self.rounds),
        }


def _state(step: Step) -> str:
    statuses = [str(r.status) for r in step.model.resources.values()]
    pinned = statuses.count("pinned")
    open_ones = sum(statuses.count(s) for s in ("confounded", "assumed", "unknown"))
    return f"{pinned} of {len(statuses)} resources pinned, {open_ones} open"


def _left_open(step: Step) -> str:
    """Why what is open stays so, once all is measured that could tell more."""
    resources = step.model.resources.values()
    alone = [r for r in resources if str(r.status) in ("assumed", "unknown")]
    either = [r for r in resources if str(r.status) == "confounded"]
    reasons = []
    if alone:
        reasons.append(f"{len(alone)} of {len(resources)} resources are crossed by no transfer")
    if either:
        reasons.append(
            f"{len(either)} explain what others, or flows that take turns, would explain as well"
        )
    return "; ".join(reasons)


@dataclass(frozen=True)
class _Simulated:
    """A model that answers, as a machine."""

    answer: Callable[[Plan], Measurements]

    def run(self, plan: Plan) -> Measurements:
        return self.answer(plan)


def simulated_machine(name: str, *, noise: float, seed: int) -> Machine:
    """A model, or a machine with nominal capacities, that answers in place of a real one.

    Raises
    ------
    InputError
        When it is none, or the noise is no number from zero on.
    """
    import math

    import numpy as np

    from topocal.case import find_case
    from topocal.measure.simulated import SimulatedMachine
    from topocal.topo.errors import InputError, TopologyError, one_line

    if not (math.isfinite(noise) and 0 <= noise < 1):
        raise InputError(f"a noise of {noise}", remedy="give a share such as 0.01")
    case = find_case(name).case
    machine = SimulatedMachine(topology=case.topology, capacities=case.capacities, noise=noise)
    rng = np.random.default_rng(seed)

    def answer(plan: Plan) -> Measurements:
        try:
            return machine.run(plan, rng)
        except TopologyError as error:
            raise InputError(
                f"{one_line(name)} cannot answer: {error.what}",
                remedy="simulate a fitted model, or a machine whose speeds are known",
            ) from error

    return _Simulated(answer)


def calibrate_in_processes(
    calibration: Calibration,
    settings: Settings,
    finish: Callable[[Step], None],
    *,
    spawn: bool,
    backend: str | None = None,
    device: str | None = None,
    resume: bool = False,
    quiet: bool = False,
    enter: Callable[[int], None] | None = None,
    wrap: Callable[[Machine], Machine] = lambda machine: machine,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """The loop on real processes, one for each endpoint.

    Parameters
    ----------
    finish
        Called on rank 0 with the result.
    spawn
        Whether to start the processes here.
    backend, device
        As of :func:`topocal.measure.distributed.take_part`.
    resume
        Whether to go on with the journal.
    quiet
        Whether to say nothing on the way.
    enter
        Called first in each process with its rank (an emulated fabric's namespaces).
    wrap
        Makes what rank 0 asks out of the group of processes.
    provenance
        More about the conditions, such as the name of an emulated fabric.

    Raises
    ------
    TopocalError
        As :meth:`Calibration.run`; and when a process dies, hangs, or gets other bytes.
    """
    from topocal.measure.distributed import Session, take_part
    from topocal.measure.journal import journal_path
    from topocal.measuring import Progress, explained, whoever_listens
    from topocal.processes import run_ranks

    progress = Progress(quiet=quiet)
    journal = journal_path(calibration.samples)
    session = Session(
        names=calibration.endpoints,
        subject=calibration.subject,
        told=calibration.told,
        settings=settings,
        journal=journal,
        resume=resume,
        provenance=provenance or {},
        advance=progress.advance,
        tell=progress.tell,
    )

    results = calibration.model, calibration.samples
    is_complete = resume and not journal.exists() and all(path.exists() for path in results)

    def work(machine: Coordinator) -> None:
        if is_complete:
            _refuse_of_another_machine(results[0], calibration.topology)
            progress.tell(f"{results[0]} and {results[1]} are complete")
            return
        with progress.shown("calibrating"):
            step = calibration.run(wrap(machine), progress.tell)
        with whoever_listens():
            finish(step)

    with explained(journal):
        run_ranks(
            lambda place: take_part(place, session, work, backend=backend, device=device),
            calibration.endpoints,
            spawn=spawn,
            journal=journal,
            enter=enter,
        )


def _refuse_of_another_machine(model: Path, topology: Topology) -> None:
    """What is complete is a model of the machine that is named.

    Raises
    ------
    InputError
        When it is not; it stays as it is.
    """
    from topocal.solve.model import read_model
    from topocal.topo.errors import InputError, Where

    if _nodes_and_links(read_model(model).topology) != _nodes_and_links(topology):
        raise InputError(
            "is complete, and a model of another machine",
            where=Where(file=str(model)),
            remedy="write elsewhere",
        )


def _nodes_and_links(topology: Topology) -> tuple[list[Any], list[Any]]:
    """What makes a machine that one; a fit adds resources to it and takes some away."""
    from topocal.topo.io import topology_to_document

    document = topology_to_document(topology)
    links = [{k: v for k, v in link.items() if k != "uses"} for link in document["links"]]
    return document["nodes"], links
