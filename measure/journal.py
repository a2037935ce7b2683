"""What has been measured so far, on disk the moment it is.

One line of JSON for each step (:mod:`topocal.measure.journal_lines`): a header, a session (who
measures, under which conditions) each time that measuring begins or goes on, the timings of a
batch, what is to be set aside after all, remarks.  Lines are only ever appended, each with one
flush and fsync.  A process that is killed while it writes leaves half a line at the end, which
counts as not written; so does what a full disk did not take.  Each line ends with a check of its
own bytes, so that a changed digit is noticed.

When all is done, the journal becomes calibration.json and goes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from topocal.measure.journal_lines import (
    FORMAT,
    VERSION,
    Line,
    decoded,
    encoded,
    sample_of,
    timing_of,
)
from topocal.measure.provenance import KEYS, require_agreement
from topocal.measure.samples import Measurements, Run, Sample
from topocal.topo.errors import FormatError, InputError, Where, one_line

__all__ = ["Journal", "journal_path"]

_OF_THE_GROUP: Final = ("ranks", "devices", "hosts", "machine", "placement")
"""Keys that differ when a smaller group goes on."""

Key = tuple[tuple[tuple[str, str], ...], float, str]
"""A scenario: its flows, their size, how it was issued."""


def journal_path(output: str | Path) -> Path:
    """Where the journal of an output lies: beside it."""
    return Path(f"{output}.journal")


class Journal:
    """A journal that is being written, or one in memory alone.

    Parameters
    ----------
    path
        The file; ``None``: nowhere.
    subject
        What is measured; only the same is gone on with.
    run
        Name of the run, if it is a new one.
    resume
        Go on with what is there.

    Raises
    ------
    InputError
        When there is a journal and it is not to be gone on with; when it is of another
        subject; when somebody else writes it; when it cannot be written.
    FormatError
        When it is damaged otherwise than at its end.
    """

    def __init__(
        self, path: str | Path | None, *, subject: str, run: str, resume: bool = False
    ) -> None:
        self.path = None if path is None else Path(path)
        self.run = run
        self._sessions: list[dict[str, Any]] = []
        self._seconds: list[float] = []
        self._remarks: list[str] = []
        self._links: dict[str, str] = {}
        self._copies: dict[str, float] = {}
        self._samples: list[tuple[int, int, Sample]] = []  # batch's step, session, sample
        self._left: dict[tuple[int, Key], int] = {}
        self._file: int | None = None
        self._length = 0
        if self.path is not None:
            try:
                self._open(subject, resume)
            except BaseException:
                self._let_go()  # Somebody else may want to go on with the file.
                raise

    # The file.

    def _open(self, subject: str, resume: bool) -> None:
        assert self.path is not None
        where = Where(file=str(self.path))
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = self.path.read_bytes()
        except BlockingIOError as error:
            raise InputError(
                "somebody else is measuring into it", where=where, remedy="wait until it is done"
            ) from error
        except OSError as error:
            raise _unwritable(where, error) from error
        whole = content[: content.rfind(b"\n") + 1]
        if whole and not resume:
            raise InputError(
                "holds a measurement that was not finished",
                where=where,
                remedy="go on with --resume, or remove it",
            )
        self._length = len(whole)
        if whole:
            self._read(whole, subject, where)
        self._cut(self._length)
        if not whole:
            _sync_folder(self.path.parent)
            self._append(Line(format=FORMAT, version=VERSION, subject=subject, run=self.run))

    def _read(self, content: bytes, subject: str, where: Where) -> None:
        for number, text in enumerate(content.splitlines(), start=1):
            here = Where(file=where.file, line=number)
            try:
                line = decoded(text)
                if number == 1:
                    self._check_header(line, subject, here)
                else:
                    self._take(line)
            except (msgspec.DecodeError, IndexError, InputError) as error:
                if isinstance(error, InputError) and error.where is not None:
                    raise
                remedy = f"keep the {number - 1} lines before it, or remove the file"
                raise FormatError(
                    f"damaged journal: {one_line(error)}",
                    where=here,
                    remedy="remove it" if number == 1 else remedy,
                ) from error

    def _check_header(self, line: Line, subject: str, here: Where) -> None:
        if line.format != FORMAT or line.version is None or line.version > VERSION:
            raise FormatError(
                f"is not a {FORMAT} of version {VERSION}", where=here, remedy="remove it"
            )
        if line.subject != subject:
            raise InputError(
                "is the journal of another plan",
                where=here,
                remedy="give the plan it was begun with, or remove it",
            )
        self.run = line.run or self.run

    def _take(self, line: Line) -> None:
        """What a line says, into memory."""
        if line.session is not None:
            self._sessions.append(line.session)
            self._seconds.append(0.0)
        elif line.batch is not None:
            step, number = line.batch
            session = len(self._sessions) - 1
            self._seconds[session] = max(self._seconds[session], line.after_s)
            new = [sample_of(t, number) for t in line.samples]
            self._samples += [(step, session, x) for x in new]
            self._left |= {(step, _key(x)): line.left for x in new}
        elif line.aside is not None:
            self._samples = [
                (s, k, _set_aside(x, line.reason) if _is_meant(line, s, x) else x)
                for s, k, x in self._samples
            ]
        elif line.remark is not None:
            self._remarks.append(line.remark)
        elif line.links is not None:
            self._links |= line.links
        elif line.copies is not None:
            self._copies |= line.copies

    def _append(self, line: Line) -> None:
        """One line at the end, on disk when this returns."""
        if self._file is None or self.path is None:
            return
        content = encoded(line)
        try:
            os.lseek(self._file, self._length, os.SEEK_SET)
            done = 0
            while done < len(content):
                done += os.write(self._file, content[done:])
            os.fsync(self._file)
            is_gone = not os.fstat(self._file).st_nlink
        except OSError as error:
            self._cut(self._length)
            raise _unwritable(Where(file=str(self.path)), error) from error
        if is_gone:
            # Hours of measuring would go nowhere.
            raise InputError(
                "was removed while it was being written",
                where=Where(file=str(self.path)),
                remedy="measure anew",
            )
        self._length += len(content)

    def _cut(self, length: int) -> None:
        """Take back what was written of a line."""
        assert self._file is not None
        try:
            os.ftruncate(self._file, length)
        except OSError as error:
            raise _unwritable(Where(file=str(self.path)), error) from error

    def close(self, *, done: bool) -> None:
        """Let go of the file; ``done``: it is needed no more, nor is one without timings."""
        if self._file is not None and self.path is not None:
            if done or not self._samples:
                self.path.unlink(missing_ok=True)
            self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # What is put in.

    def begin(self, provenance: Mapping[str, Any]) -> None:
        """A session begins under these conditions.

        Raises
        ------
        InputError
            When they are not those of the sessions before, but for a smaller group.
        """
        new = dict(provenance)
        for old in self._sessions:
            group_is_same = old.get("ranks") == new.get("ranks")
            runs = [Run(provenance=old, source="the journal"), Run(provenance=new, source="now")]
            require_agreement(runs, ignoring=() if group_is_same else _agreeing_group_keys())
        line = Line(session=new)
        self._append(line)
        self._take(line)

    def add(
        self,
        step: int,
        round_: int,
        samples: Sequence[Sample],
        *,
        after_s: float,
        left: int = 0,
    ) -> None:
        """The timings of one batch, or of a part of it: ``left`` repeats are to come.

        Raises
        ------
        InputError
            When they cannot be written; the file is then as before.
        """
        line = Line(
            batch=(step, round_),
            after_s=after_s,
            left=left,
            samples=[timing_of(sample) for sample in samples],
        )
        self._append(line)
        self._take(line)

    def set_aside(
        self,
        step: int,
        round_: int,
        patterns: Sequence[str],
        size_bytes: float,
        issue: str,
        reason: str,
    ) -> None:
        """What was measured so far of a batch is not to be used after all; raises as
        :meth:`add`."""
        line = Line(
            aside=(step, round_),
            patterns=list(patterns),
            size=size_bytes,
            issue=issue,
            reason=reason,
        )
        self._append(line)
        self._take(line)

    def remark(self, text: str) -> None:
        """Something to keep with the timings, once; raises as :meth:`add`."""
        if text not in self._remarks:
            line = Line(remark=text)
            self._append(line)
            self._take(line)

    def links(self, states: Mapping[str, str]) -> None:
        """State of links under load; raises as :meth:`add`."""
        new = {k: v for k, v in states.items() if self._links.get(k) != v}
        if new:
            line = Line(links=new)
            self._append(line)
            self._take(line)

    def copies(self, rates_Bps: Mapping[str, float]) -> None:
        """What endpoints copy within their own memory; raises as :meth:`add`."""
        line = Line(copies=dict(rates_Bps))
        self._append(line)
        self._take(line)

    # What is taken out.

    def measured(self, step: int) -> set[Key]:
        """Scenarios of a step that have all timings that are to be used."""
        return {key for key in self._used(step) if not self._left[step, key]}

    def left(self, step: int) -> dict[Key, int]:
        """How many repeats are to come of the scenarios of a step that have some."""
        return {k: left for k in self._used(step) if (left := self._left[step, k])}

    def _used(self, step: int) -> set[Key]:
        return {_key(x) for s, _, x in self._samples if s == step and x.set_aside is None}

    def measurements(self, step: int | None = None) -> Measurements:
        """All timings, or those of one step, with the sessions they come from.

        Sessions of one group are one run; a smaller group is a run of its own, which does
        not say who its ranks were: that is told in a remark, and fits take it along.
        """
        groups: list[Any] = []
        of_session = []
        for session in self._sessions:
            ranks = session.get("ranks")
            if ranks not in groups:
                groups.append(ranks)
            of_session.append(groups.index(ranks))
        runs = []
        for number in range(len(groups)):
            members = [k for k, g in enumerate(of_session) if g == number]
            provenance = dict(self._sessions[members[0]])
            provenance["run"] = self.run if number == 0 else f"{self.run}-{number}"
            provenance["duration_s"] = sum(self._seconds[k] for k in members)
            remarks = [*provenance.get("remarks", ()), *self._remarks]
            if number:
                for key in _OF_THE_GROUP:
                    provenance.pop(key, None)
                remarks.append(f"measured by a group of {len(groups[number] or ())}")
            if remarks:
                provenance["remarks"] = remarks
            if self._copies:
                provenance["local_copy_Bps"] = dict(self._copies)
            if self._links:
                provenance["links"] = dict(self._links)
            runs.append(Run(provenance=provenance, source=str(self.path or "")))
        samples = [
            msgspec.structs.replace(x, run=of_session[k])
            for s, k, x in self._samples
            if step is None or s == step
        ]
        return Measurements.of(samples, runs=runs)


def _key(sample: Sample) -> Key:
    return tuple(sample.pattern.pairs), sample.pattern.flows[0].size_bytes, sample.issue or ""


def _agreeing_group_keys() -> Iterable[str]:
    return [key for key in _OF_THE_GROUP if KEYS[key].must_agree]


def _sync_folder(folder: Path) -> None:
    """The name of a new file on disk, too; where the file system does not do that, it does not."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritable(where: Where, error: OSError) -> InputError:
    return InputError(
        f"cannot be written: {(error.strerror or 'no reason given').lower()}",
        where=where,
        remedy="make room or choose another place; what is in it can be gone on with (--resume)",
    )


def _is_meant(line: Line, step: int, sample: Sample) -> bool:
    """Whether a line sets a sample aside."""
    return (
        line.aside == (step, sample.round)
        and sample.name in line.patterns
        and sample.pattern.flows[0].size_bytes == line.size
        and sample.issue == line.issue
    )


def _set_aside(sample: Sample, reason: str) -> Sample:
    if sample.set_aside is not None:
        return sample
    return msgspec.structs.replace(sample, set_aside=reason)
