"""``topocal calibrate``: from a topology to a fitted model, measuring on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.completing import machines
from topocal.options import (
    Backend,
    Device,
    MinDuration,
    RankEndpoints,
    Resume,
    Spawn,
    Timeout,
    Verify,
    checked_seed,
    refuse_idle,
)

if TYPE_CHECKING:
    from topocal.calibration import Calibration
    from topocal.measure.fabric.shape import Shape
    from topocal.solve.adaptive import Step
    from topocal.topo.topology import Topology

__all__ = ["calibrate"]

_OF_PROCESSES = (
    *("--spawn", "--backend", "--device", "--issue"),
    *("--verify", "--min-duration", "--timeout", "--resume"),
)
"""Options of measuring in processes."""


def calibrate(
    context: typer.Context,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the model.")],
    topology: Annotated[
        str | None,
        typer.Argument(
            autocompletion=machines,
            help="topology.json, another tool's output, or a reference machine (b70).",
        ),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(help="Where to write every timing; default: beside the model."),
    ] = None,
    spawn: Spawn = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=machines,
            help="A model or machine that answers in place of a real one.",
        ),
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Measure an emulated fabric like this (topocal fabric)."),
    ] = None,
    noise: Annotated[float, typer.Option(help="Of one simulated timing, as a share.")] = 0.01,
    seed: Annotated[int, typer.Option(help="Of the simulated noise.")] = 0,
    backend: Backend = None,
    device: Device = None,
    endpoints: RankEndpoints = None,
    sizes: Annotated[
        str | None,
        typer.Option(metavar="SIZES", help="Bytes of every flow; default: 4KiB,16KiB … 256MiB."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Timed runs of each pattern and size.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="At most so many rounds of measuring.")] = 4,
    issue: Annotated[
        str, typer.Option(metavar="HOW", help="How messages are handed over: group or one-by-one.")
    ] = "group",
    verify: Verify = True,
    shortest: MinDuration = "5ms",
    timeout: Timeout = "60s",
    resume: Resume = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the model as JSON.")] = False,
) -> None:
    """Measure, fit, and measure what the fit does not know yet, until nothing is open.

    Timings are on disk as they come; --resume goes on with them.

        topocal calibrate topology.json -o model.json --spawn 8

        torchrun --nproc-per-node 8 -m topocal calibrate topology.json -o model.json

        topocal calibrate dgx-h100 -o model.json --simulate dgx-h100 --noise 0.02

        topocal calibrate --fabric b70 -o model.json
    """
    from topocal.calibration import calibrate_in_processes, simulated_machine
    from topocal.fabrics import calibrate_on_fabric, find_shape
    from topocal.machine import find_topology
    from topocal.measure.journal import journal_path
    from topocal.measure.provenance import ISSUE_MODES
    from topocal.measuring import Progress, measuring_settings
    from topocal.outputs import check_outputs
    from topocal.processes import is_writer
    from topocal.topo.errors import InputError, one_line

    if fabric is not None:
        own = ("--spawn", "--simulate", "--backend", "--device")
        refuse_idle(context, own, "with --fabric, which has processes and a backend of its own")
    if simulate is not None:
        refuse_idle(context, _OF_PROCESSES, "with --simulate, which starts no processes")
    else:
        refuse_idle(context, ("--noise", "--seed"), "without --simulate")
    beside = samples or _beside(output)
    check_outputs(
        [output, beside, None if simulate else journal_path(beside)],
        [topology, fabric, simulate],
        writes=is_writer(),
    )
    if issue not in ISSUE_MODES:
        raise InputError(
            f"--issue {one_line(issue)}", remedy="a model is of one of group and one-by-one"
        )
    settings = measuring_settings(issue, verify, shortest, timeout)
    if (topology is None) == (fabric is None):
        raise InputError(
            "no machine" if fabric is None else "a machine and --fabric",
            remedy="name a topology, or an emulated fabric with --fabric",
        )
    shape = None if fabric is None else find_shape(fabric, endpoints=endpoints)
    machine = find_topology(str(topology)) if shape is None else shape.topology
    what = _calibration(
        machine, output, samples, spawn, simulate, endpoints, sizes, repeats, rounds, shape
    )

    def finish(step: Step) -> None:
        _finish(step, what, as_json)

    if shape is not None:
        calibrate_on_fabric(shape, what, settings, finish, resume=resume, quiet=as_json)
        return

    if simulate is not None:
        tell = Progress(quiet=as_json).tell
        finish(what.run(simulated_machine(simulate, noise=noise, seed=checked_seed(seed)), tell))
        return
    calibrate_in_processes(
        what,
        settings,
        finish,
        spawn=spawn is not None,
        backend=backend,
        device=device,
        resume=resume,
        quiet=as_json,
    )


def _calibration(
    machine: Topology,
    output: Path,
    samples: Path | None,
    spawn: int | None,
    simulate: str | None,
    endpoints: str | None,
    sizes: str | None,
    repeats: int | None,
    rounds: int,
    shape: Shape | None,
) -> Calibration:
    from topocal.calibration import Calibration
    from topocal.fabrics import SIZES_BYTES
    from topocal.measure.distributed import rank_endpoints
    from topocal.measure.plan import checked_sizes
    from topocal.pattern_options import size_list
    from topocal.processes import group_size
    from topocal.topo.endpoint_names import endpoint_list
    from topocal.topo.errors import InputError

    if rounds < 1:
        raise InputError(f"--rounds {rounds}", remedy="give one or more")
    given = None
    if endpoints is not None:
        given = endpoint_list(endpoints, machine.endpoints)
    known = given or list(machine.accelerators or machine.endpoints)
    here = simulate is not None or shape is not None
    count = len(known) if here else group_size(spawn)
    chosen: tuple[float, ...] | None = None if shape is None else SIZES_BYTES
    if sizes is not None:
        chosen = checked_sizes(size_list(sizes))
    return Calibration(
        topology=machine,
        endpoints=rank_endpoints(known, count, given),
        sizes_bytes=chosen,
        repeats=repeats,
        rounds=rounds,
        model=output,
        samples=samples or _beside(output),
    )


def _beside(model: Path) -> Path:
    return model.parent / f"{model.stem}.calibration.json"


def _finish(step: Step, what: Calibration, as_json: bool) -> None:
    from topocal.console import console, print_json, safe
    from topocal.solve.model import model_to_document
    from topocal.tables import capacity_table

    if as_json:
        print_json(model_to_document(step.model))
        return
    out = console()
    for finding in step.model.findings:
        out.print(f"finding: {safe(finding)}")
    for remark in _remarks(step):
        out.print(f"note: {safe(remark)}")
    out.print(safe(step.model.sharing))
    out.print(capacity_table(step.model, out.width))
    out.print(f"wrote {safe(what.model)} and {safe(what.samples)}")


def _remarks(step: Step) -> list[Any]:
    runs = step.measurements.runs
    return list(dict.fromkeys(r for run in runs for r in run.provenance.get("remarks", ())))
