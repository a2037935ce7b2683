"""What the commands that measure have in common: options, progress, and how an end is told."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from topocal.console import tell

if TYPE_CHECKING:
    from topocal.measure.coordinator import Settings
    from topocal.topo.errors import MeasurementError

__all__ = ["Progress", "explained", "measuring_settings", "whoever_listens", "with_journal"]


def measuring_settings(issue: str, verify: bool, shortest: str, timeout: str) -> Settings:
    """Settings from options.

    Raises
    ------
    InputError
        When one cannot be read, or is not positive.
    """
    from topocal.measure.coordinator import Settings
    from topocal.measure.provenance import ISSUE_MODES
    from topocal.topo.choices import one_of
    from topocal.topo.errors import InputError, one_line
    from topocal.topo.units import parse_seconds

    issue = one_of(issue, (*ISSUE_MODES, "both"), what="--issue")
    limit = parse_seconds(timeout)
    if limit <= 0:
        raise InputError(f"--timeout {one_line(timeout)}", remedy="give more than nothing")
    return Settings(
        issues=ISSUE_MODES if issue == "both" else (issue,),
        verify=verify,
        shortest_s=parse_seconds(shortest),
        timeout_s=limit,
    )


@contextmanager
def whoever_listens() -> Iterator[None]:
    """Print to standard output, if there is still somebody (``topocal measure … | head``): what
    is being measured does not depend on it."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # The second is how Rich takes the first.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Progress:
    """A bar on standard error and sentences on standard output, in whichever process it is."""

    def __init__(self, *, quiet: bool) -> None:
        self.told: set[str] = set()
        self._quiet = quiet
        self._step: Callable[[float], None] = lambda _: None
        self._total: int | None = None
        self._at = 0.0

    def tell(self, text: str) -> None:
        """A sentence for the user; ``told`` has all that were."""
        self.told.add(text)
        if not self._quiet:
            from topocal.console import console, safe

            with whoever_listens():
                console().print(safe(text))

    def advance(self, done: float, total: int) -> None:
        """So many of all that were to do are done; what the journal has is not among them."""
        at = done if self._total is None else self._total - total + done
        self._step(at - self._at)
        self._at = at

    @contextmanager
    def shown(self, what: str, total: int | None = None) -> Iterator[None]:
        """A bar while the block runs."""
        from topocal.progress import progress

        with progress(what, total) as step:
            self._step, self._total, self._at = step, total, 0.0
            try:
                yield
            finally:
                self._step = lambda _: None


def _restore_terminal() -> None:
    """Take away the bar of a process that has been ended, and show the cursor again."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K\x1b[?25h")
        sys.stderr.flush()


def with_journal(error: MeasurementError, journal: Path) -> MeasurementError:
    """The same error, whose remedy says where what was measured is."""
    from topocal.topo.errors import MeasurementError

    if not journal.exists():
        return error
    remedy = f"{error.remedy}; " if error.remedy else ""
    return MeasurementError(
        error.what,
        where=error.where,
        remedy=f"{remedy}what was measured is in {journal}; go on with --resume",
        about=error.about,
    )


@contextmanager
def explained(journal: Path) -> Iterator[None]:
    """Say where what was measured is, and how to go on, when measuring ends early.

    Raises
    ------
    MeasurementError
        With that in its remedy.
    typer.Exit
        With status 130, after Ctrl-C.
    SystemExit
        With status 143, after SIGTERM (:func:`topocal.measure.launch.launch`).
    """
    from topocal.topo.errors import MeasurementError

    try:
        yield
    except MeasurementError as error:
        _restore_terminal()
        raise with_journal(error, journal) from error
    except KeyboardInterrupt as stop:
        _tell_end("interrupted", journal)
        raise typer.Exit(130) from stop
    except SystemExit as stop:
        if stop.code == 128 + signal.SIGTERM:
            _tell_end("ended by SIGTERM", journal)
        raise


def _tell_end(how: str, journal: Path) -> None:
    _restore_terminal()
    kept = f"; what was measured is in {journal}, go on with --resume"
    tell(f"topocal: {how}{kept if journal.exists() else ''}")
