"""How the processes of a measurement come to be: started here, or by torchrun or srun."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from topocal.console import tell

if TYPE_CHECKING:
    from topocal.measure.places import Place

__all__ = ["group_size", "is_writer", "run_ranks"]


def is_writer() -> bool:
    """Whether this process writes what is measured: alone, or the first of its group."""
    from topocal.measure.places import place_from_environment

    place = place_from_environment()
    return place is None or place.rank == 0


def group_size(spawn: int | None) -> int:
    """How many processes there will be, or are.

    Raises
    ------
    InputError
        When nothing says so, or two things do.
    """
    from topocal.measure.places import place_from_environment
    from topocal.topo.errors import InputError

    place = place_from_environment()
    if spawn is not None:
        if spawn < 2:
            raise InputError(f"--spawn {spawn}", remedy="transfers need two processes or more")
        if place is not None and place.size > 1:
            raise InputError(
                f"--spawn {spawn} in each of {place.size} processes that torchrun or srun started",
                remedy="leave out --spawn, or start one process",
            )
        return spawn
    if place is None:
        raise InputError(
            "nothing says how many processes measure",
            remedy="start them here with --spawn N, or run this under torchrun or srun",
        )
    return place.size


def run_ranks(
    work: Callable[[Place], None],
    names: Sequence[str],
    *,
    spawn: bool,
    journal: Path | None = None,
    enter: Callable[[int], None] | None = None,
) -> None:
    """Do the work in every process: in ones that are started here, or in this one.

    In one of torchrun's or srun's, an error ends the process here and now: a backend whose
    peers are gone may otherwise keep it.

    Parameters
    ----------
    names
        The endpoint of each rank.
    spawn
        Whether to start them here.
    journal
        Where timings go, to be named when it ends early.
    enter
        As of :func:`topocal.measure.launch.launch`.

    Raises
    ------
    TopocalError
        From processes that were started here.
    """
    from topocal.measure.distributed import ensure_torch
    from topocal.measure.launch import launch
    from topocal.measure.places import place_from_environment
    from topocal.topo.errors import TopocalError

    ensure_torch()
    if spawn:
        launch(work, len(names), enter=enter, names=names)
        return
    place = place_from_environment()
    assert place is not None  # Or there would be no number of processes.
    # A wait inside a backend does not see Python's handlers: Ctrl-C has to end it all the same.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        work(place)
    except TopocalError as error:
        _leave(place, error, journal)


def _leave(place: Place, error: Exception, journal: Path | None) -> NoReturn:
    """One line, of rank 0 or of who is at fault, and the end."""
    from topocal.measure.crew import DismissedError
    from topocal.measuring import with_journal
    from topocal.topo.errors import MeasurementError

    if place.rank == 0 and journal is not None and isinstance(error, MeasurementError):
        error = with_journal(error, journal)
    is_own = not getattr(error, "others_fault", False)
    # Of a complaint that all ranks have, one line will do.
    if place.rank == 0 or is_own or (place.rank == 1 and not isinstance(error, DismissedError)):
        tell(f"topocal: {error}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)
