"""Measuring in a group of processes: every rank calls the same function.

Rank 0 coordinates and has the result; all others do what it says.  Three ways lead here:

* inside a running job: :func:`run_plan` on a process group of its own;
* processes started for the purpose, by torchrun, srun or
  :mod:`topocal.measure.launch`: :func:`take_part`, which makes and ends the group;
* either of them with more than one plan (``topocal calibrate``): :func:`coordinate`.

Nothing here imports torch; :mod:`topocal.measure.worker` does, once it is needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from topocal.measure.conditions import conditions, run_name
from topocal.measure.coordinator import Coordinator, Settings
from topocal.measure.crew import Crew, serve
from topocal.measure.journal import Journal
from topocal.measure.plan import Plan, plan_to_document
from topocal.measure.provenance import ISSUE_MODES, check_provenance
from topocal.topo.endpoint_names import resolve_endpoint
from topocal.topo.errors import InputError, one_line

if TYPE_CHECKING:
    from topocal.measure.instructions import Instructions
    from topocal.measure.places import Place
    from topocal.measure.samples import Measurements
    from topocal.measure.worker import Member

__all__ = [
    "Session",
    "coordinate",
    "ensure_torch",
    "rank_endpoints",
    "run_plan",
    "subject_of",
    "take_part",
]

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Session:
    """Who measures, how, and where the timings go; the same on every rank.

    Attributes
    ----------
    names
        The endpoint of each rank.
    subject
        What is measured: a journal of something else is not gone on with.
    settings
        How plans are run.
    journal
        Where timings go as they come; ``None``: nowhere until the end.
    resume
        Whether to go on with what the journal has.
    provenance
        More about the conditions, in place of what is found.
    told
        What else all ranks must have been told alike, by what a user calls it.
    advance, tell
        As of :class:`~topocal.measure.coordinator.Coordinator`.
    """

    names: tuple[str, ...]
    subject: str
    settings: Settings = field(default_factory=Settings)
    journal: Path | None = None
    resume: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)
    told: Instructions = field(default_factory=dict)
    advance: Callable[[float, int], None] = lambda done, total: None
    tell: Callable[[str], None] = lambda text: None

    @property
    def instructions(self) -> Instructions:
        """What this rank was told to do, the most telling first."""
        return {
            **self.told,
            "endpoints": ",".join(self.names),
            "--issue": " and ".join(self.settings.issues),
            "--verify": "yes" if self.settings.verify else "no",
        }


def ensure_torch() -> None:
    """Import torch and all that measuring needs; before a fork, so that it happens once.

    Raises
    ------
    InputError
        When it is not installed, or cannot be loaded.
    """
    if find_spec("torch") is None:
        raise InputError(
            "measuring needs torch, which is not installed",
            remedy="pip install 'topocal[measure]'",
        )
    # CUDA puts the fastest card first unless told to number them as nvidia-smi does.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        import_module("torch")
    except (ImportError, OSError) as error:
        raise InputError(
            f"torch cannot be loaded: {one_line(error)}",
            remedy="try python -c 'import torch', and install a build for this machine",
        ) from error
    import_module("topocal.measure.worker")


def rank_endpoints(
    known: Sequence[str], size: int, given: Sequence[str] | None = None
) -> tuple[str, ...]:
    """The endpoint of each rank: those that take part in their order, unless told.

    Raises
    ------
    InputError
        When there are not as many as ranks, or one is named twice.
    UnknownEndpointError
        When a name is none of them.
    """
    names = (
        tuple(known) if given is None else tuple(resolve_endpoint(name, known) for name in given)
    )
    if len(set(names)) != len(names):
        raise InputError("an endpoint stands for two ranks", remedy="name each once")
    if len(names) != size:
        who = "named" if given is not None else "of the machine"
        raise InputError(
            f"{len(names)} endpoints {who} for {size} processes",
            remedy="start one process for each, or say with --endpoints which ones take part",
        )
    return names


def subject_of(*parts: object) -> str:
    """A digest of what is measured."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def run_plan(
    plan: Plan,
    group: Any = None,
    *,
    endpoints: Sequence[str] | None = None,
    issue: str | Sequence[str] = "group",
    verify: bool = True,
    journal: str | Path | None = None,
    resume: bool = False,
    device: str | None = None,
    settings: Settings | None = None,
) -> Measurements | None:
    """Measure a plan on a process group of a running job; every rank of it calls this.

    Ranks are numbered as in the group.  The group's own backend and settings are what is
    measured, so calibrate on the group that will do the transfers.

    Parameters
    ----------
    plan
        What to measure.
    group
        A group of ``torch.distributed``; the default group unless given.
    endpoints
        The endpoint of each rank of the group; those of the plan in their order unless
        given.
    issue
        How messages are handed over: ``group``, ``one-by-one``, or both.
    verify
        Whether every payload is read back and compared.
    journal
        A file that rank 0 writes timings to as they come.
    resume
        Whether to go on with what is in it.
    device
        ``cpu``, ``cuda`` or ``xpu``, where the backend does not say it.
    settings
        How long timings last and how long anything may take; its issue modes and
        verification give way to those above.

    Returns
    -------
    The timings on rank 0, ``None`` on all others.

    Raises
    ------
    InputError
        When torch is missing, there is no group, endpoints and ranks do not match, or ranks
        were given different plans or options.
    MeasurementError
        When a rank dies, hangs, or gets other bytes than were sent.
    """
    issues = _issue_modes(issue)
    ensure_torch()
    from topocal.measure.worker import Member

    base = settings or Settings()
    chosen = Settings(
        issues=issues,
        verify=verify,
        shortest_s=base.shortest_s,
        timeout_s=base.timeout_s,
        check_every_s=base.check_every_s,
    )
    member = Member(group, device=device, limit_s=chosen.join_s)
    session = Session(
        names=rank_endpoints(plan.endpoints, member.size, endpoints),
        subject=subject_of(plan_to_document(plan)),
        told={"plan": subject_of(plan_to_document(plan))},
        settings=chosen,
        journal=None if journal is None else Path(journal),
        resume=resume,
    )
    found = coordinate(member, session, lambda machine: machine.run(plan))
    member.close()
    return found


def _issue_modes(issue: str | Sequence[str]) -> tuple[str, ...]:
    issues = (issue,) if isinstance(issue, str) else tuple(issue)
    for mode in issues:
        if mode not in ISSUE_MODES:
            raise InputError(
                f"no way {one_line(mode)!r} to issue messages",
                remedy=f"use {' or '.join(ISSUE_MODES)}",
            )
    if not issues or len(set(issues)) != len(issues):
        raise InputError("no issue mode, or one twice", remedy="name each once")
    return issues


def take_part(
    place: Place,
    session: Session,
    work: Callable[[Coordinator], Result],
    *,
    backend: str | None = None,
    device: str | None = None,
    member_class: type[Member] | None = None,
) -> Result | None:
    """Join the group of all processes, measure, and leave it; every process calls this.

    Parameters
    ----------
    place
        This process's place.
    work
        What rank 0 does with the machine.
    backend
        Of the measured group; by the devices that there are unless given.
    member_class
        Another kind of member.

    Returns
    -------
    What ``work`` returned on rank 0, ``None`` on all others.

    Raises
    ------
    InputError, MeasurementError
        As :func:`run_plan`.
    """
    ensure_torch()
    from topocal.measure.worker import Member, join, leave

    limit_s = session.settings.join_s
    join(place, backend, limit_s=limit_s, names=session.names)
    member = (member_class or Member)(device=device, limit_s=limit_s, promise=place.promise)
    found = coordinate(member, session, work)
    member.close()
    leave()
    return found


def coordinate(
    member: Member, session: Session, work: Callable[[Coordinator], Result]
) -> Result | None:
    """Rank 0 works with the machine that the group is; all others serve.

    Raises
    ------
    InputError, MeasurementError
        As :func:`run_plan`; on rank 0 also what ``work`` raises, after all others were let
        go.
    """
    if member.rank != 0:
        serve(member, session.settings.timeout_s, session.instructions)
        return None
    crew = Crew(member, session.names, session.settings.timeout_s, session.instructions)
    try:
        found = _work(crew, session, work)
    except BaseException:
        crew.stop(failed=True)
        raise
    crew.stop(failed=False)
    return found


def _work(crew: Crew, session: Session, work: Callable[[Coordinator], Result]) -> Result:
    settings = session.settings
    provenance = {
        **conditions(
            crew.survey(),
            names=session.names,
            backend=crew.member.backend,
            issues=settings.issues,
            verified=settings.verify,
            shortest_s=settings.shortest_s,
        ),
        **session.provenance,
    }
    check_provenance(provenance)
    journal = Journal(
        session.journal, subject=session.subject, run=run_name(), resume=session.resume
    )
    done = False
    try:
        journal.begin(provenance)
        machine = Coordinator(
            crew,
            settings=settings,
            journal=journal,
            advance=session.advance,
            tell=session.tell,
        )
        found = work(machine)
        done = True
    finally:
        journal.close(done=done)
    return found
