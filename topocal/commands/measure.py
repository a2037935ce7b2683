"""``topocal measure``: time what a plan says, in a group of processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.options import (
    Backend,
    Device,
    MinDuration,
    RankEndpoints,
    Resume,
    Spawn,
    Timeout,
    Verify,
)

if TYPE_CHECKING:
    from topocal.measure.coordinator import Coordinator
    from topocal.measure.distributed import Session
    from topocal.measure.plan import Plan
    from topocal.measure.samples import Measurements

__all__ = ["measure"]


def measure(
    plan: Annotated[Path, typer.Argument(help="plan.json, of topocal plan.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to write the timings: calibration.json.")
    ],
    spawn: Spawn = None,
    backend: Backend = None,
    device: Device = None,
    endpoints: RankEndpoints = None,
    topology: Annotated[
        str | None,
        typer.Option("-t", "--topology", help="The machine: refuses a plan for another one."),
    ] = None,
    issue: Annotated[
        str,
        typer.Option(
            metavar="HOW", help="How messages are handed over: group, one-by-one, or both."
        ),
    ] = "group",
    verify: Verify = True,
    shortest: MinDuration = "5ms",
    timeout: Timeout = "60s",
    resume: Resume = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Time every pattern of a plan, with real messages between real processes.

    Timings are on disk as they come, in OUTPUT.journal until all are done; --resume goes on
    from there, with fewer processes too (--endpoints then says which).

        topocal measure plan.json -o calibration.json --spawn 8

        torchrun --nproc-per-node 8 -m topocal measure plan.json -o calibration.json

        topocal measure plan.json -o calibration.json --spawn 8 --issue both --resume
    """
    from topocal.measure.calibration import read_calibration, write_calibration
    from topocal.measure.distributed import Session, rank_endpoints, subject_of, take_part
    from topocal.measure.journal import journal_path
    from topocal.measure.plan import plan_to_document, read_plan
    from topocal.measuring import Progress, explained, measuring_settings, whoever_listens
    from topocal.outputs import check_outputs
    from topocal.processes import group_size, is_writer, run_ranks
    from topocal.topo.endpoint_names import split_list

    check_outputs([output, journal_path(output)], [plan, topology], writes=is_writer())
    what = read_plan(plan)
    machine_hosts = {} if topology is None else _hosts(what, topology, plan)
    count = group_size(spawn)
    given = None if endpoints is None else split_list(endpoints, of="endpoints")
    progress = Progress(quiet=as_json)
    is_complete = resume and output.exists() and not journal_path(output).exists()
    session = Session(
        names=rank_endpoints(what.endpoints, count, given),
        subject=subject_of(plan_to_document(what)),
        told={"command": "topocal measure", "plan": subject_of(plan_to_document(what))},
        settings=measuring_settings(issue, verify, shortest, timeout),
        journal=journal_path(output),
        resume=resume,
        advance=progress.advance,
        tell=progress.tell,
    )

    def work(machine: Coordinator) -> None:
        if is_complete:
            found = read_calibration(output)
            _refuse_of_another_plan(found, what, session, output)
        else:
            steps = len(what.rounds) * len(what.sizes_bytes) * len(session.settings.issues)
            with progress.shown("measuring", steps):
                found = machine.run(what)
            write_calibration(found, output)
        with whoever_listens():
            _finish(found, what, output, machine_hosts, as_json, progress.told)

    with explained(journal_path(output)):
        run_ranks(
            lambda place: take_part(place, session, work, backend=backend, device=device),
            session.names,
            spawn=spawn is not None,
            journal=journal_path(output),
        )


def _refuse_of_another_plan(
    found: Measurements, plan: Plan, session: Session, output: Path
) -> None:
    """What is complete has all that this group can measure of the plan.

    Raises
    ------
    InputError
        When it has not; it stays as it is.
    """
    from topocal.measure.schedule import batches
    from topocal.topo.errors import InputError, Where
    from topocal.topo.units import format_bytes

    measured = {
        (tuple(s.pattern.pairs), s.pattern.flows[0].size_bytes, s.issue or "")
        for s in found.samples
    }
    due = list(batches(plan, session.settings.issues, session.names, measured))
    if due:
        raise InputError(
            f"is complete, and not of this plan: it lacks {due[0].patterns[0].name} "
            f"of {format_bytes(due[0].size_bytes)}",
            where=Where(file=str(output)),
            remedy="write elsewhere",
        )


def _hosts(plan: Plan, topology: str, file: Path) -> dict[str, str]:
    """The host of each endpoint, by the topology that the plan is for; refuses another one."""
    from topocal.machine import find_topology
    from topocal.measure.plan import fingerprint
    from topocal.measure.reach import hosts_of
    from topocal.topo.errors import InputError, Where

    machine = find_topology(topology)
    if fingerprint(machine) != plan.topology_sha256:
        raise InputError(
            f"is a plan for another machine than {topology}",
            where=Where(file=str(file)),
            remedy=f"make one with topocal plan {topology}",
        )
    return hosts_of(machine)


def _finish(
    found: Measurements,
    plan: Plan,
    output: Path,
    hosts: dict[str, str],
    as_json: bool,
    told: Collection[str],
) -> None:
    from topocal.console import print_json

    summary = _summary(found, output)
    placement = found.runs[0].provenance.get("placement", {}) if found.runs else {}
    summary["relays"] = _relays(found, hosts or placement)
    if as_json:
        print_json(summary)
    else:
        _print(summary, len(plan.patterns), told)


def _summary(found: Measurements, output: Path) -> dict[str, Any]:
    reasons: dict[str, int] = {}
    for sample in found.set_aside:
        word = (sample.set_aside or "").partition(":")[0]
        reasons[word] = reasons.get(word, 0) + 1
    return {
        "output": str(output),
        "patterns": len({tuple(s.pattern.pairs) for s in found.samples}),
        "samples": len(found.samples),
        "set_aside": reasons,
        "seconds": sum(run.provenance.get("duration_s", 0.0) for run in found.runs),
        "backend": found.runs[0].provenance["backend"] if found.runs else None,
        "remarks": list(
            dict.fromkeys(r for run in found.runs for r in run.provenance.get("remarks", ()))
        ),
    }


def _relays(found: Measurements, hosts: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    """Of each relay, which messages leave their host, by process and direction."""
    from topocal.measure.reach import relay_reach

    patterns = {s.name: s.pattern for s in found.samples}
    reach = {name: relay_reach(pattern, hosts) for name, pattern in patterns.items()}
    return {
        name: [{"endpoint": n.endpoint, "receives": n.receives, "sends": n.sends} for n in ends]
        for name, ends in reach.items()
        if ends and len({hosts[n.endpoint] for n in ends}) > 1
    }


def _print(summary: dict[str, Any], planned: int, told: Collection[str]) -> None:
    """For people; what they were ``told`` on the way is not said again."""
    from topocal.console import console, safe
    from topocal.topo.units import format_seconds

    out = console()
    out.print(
        f"{summary['samples']} timings of {summary['patterns']} patterns over "
        f"{safe(summary['backend'])} in {format_seconds(summary['seconds'])}"
    )
    for reason, count in summary["set_aside"].items():
        out.print(f"set aside {count}: {safe(reason)}")
    for remark in (r for r in summary["remarks"] if r not in told):
        out.print(f"note: {safe(remark)}")
    for name, ends in summary["relays"].items():
        kinds = Counter((end["receives"], end["sends"]) for end in ends)
        words = (f"{n} receive {r} and send {s}" for (r, s), n in kinds.most_common())
        out.print(f"relay {safe(name)}: of its processes {', '.join(words)}")
    have = summary["patterns"]
    missing = (
        f"; {planned - have} of the plan's {planned} patterns are not" if have < planned else ""
    )
    out.print(f"wrote {safe(summary['output'])}: all that was measured is in it{missing}")
