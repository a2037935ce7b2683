"""Capturing a machine so that it can be sent: what the readers need, and nothing that names it.

The archive holds ``topocal.json`` (what was captured and how), ``sysfs/`` (the
files that :mod:`topocal.topo.readers.sysfs` reads) and ``outputs/`` (what tools
printed).  :mod:`topocal.topo.readers.gathered` replays it.
"""

from __future__ import annotations

import gzip
import io
import platform
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from topocal.topo.errors import FormatError
from topocal.topo.io import encode_document, write_atomically
from topocal.topo.kept_output import keep_hwloc, keep_lspci, keep_nvidia_query
from topocal.topo.programs import Outcome, run_program
from topocal.topo.readers.gathered import FORMAT, MANIFEST, OUTPUTS, SYSFS, VERSION
from topocal.topo.readers.sysfs_capture import capture_sysfs
from topocal.topo.scrub import Scrubber, safe_interface

__all__ = ["Captured", "Program", "capture", "gather", "pack"]

Run = Callable[[Sequence[str]], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to ask.

    Attributes
    ----------
    member
        Name of its output in the archive.
    commands
        Name and arguments; the first that is installed is run.
    keep
        What of its output stays.
    """

    member: str
    commands: tuple[tuple[str, ...], ...]
    keep: Callable[[str], str] = str


PROGRAMS: Final = (
    Program(member="nvidia-smi-topo.txt", commands=(("nvidia-smi", "topo", "-m"),)),
    Program(
        member="nvidia-smi-query.txt",
        commands=(("nvidia-smi", "-q"),),
        keep=keep_nvidia_query,
    ),
    Program(member="nvidia-smi-nvlink.txt", commands=(("nvidia-smi", "nvlink", "-s"),)),
    Program(member="rocm-smi-topo.txt", commands=(("rocm-smi", "--showtopo"),)),
    Program(member="amd-smi-topo.json", commands=(("amd-smi", "topology", "--json"),)),
    Program(member="xpu-smi-topo.txt", commands=(("xpu-smi", "topology", "-m"),)),
    Program(member="lspci-tree.txt", commands=(("lspci", "-tv"),)),
    Program(member="lspci-devices.txt", commands=(("lspci", "-D", "-vvv"),), keep=keep_lspci),
    Program(
        member="hwloc.xml",
        commands=(
            ("lstopo-no-graphics", "--of", "xml"),
            ("lstopo", "--of", "xml"),
        ),
        keep=keep_hwloc,
    ),
)
"""What is asked, where it is installed."""


@dataclass(slots=True)
class Captured:
    """A machine as scrubbed texts.

    Attributes
    ----------
    sysfs
        Content by path below ``/sys``.
    outputs
        Content by member name.
    status
        For each program's member: ``ok``, or why there is nothing.
    """

    sysfs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)


def gather(
    path: str | Path,
    *,
    sysfs: str | Path = "/sys",
    run: Run | None = run_program,
    names: Sequence[str] | None = None,
) -> Captured:
    """Capture a machine and write it to a ``.tar.gz`` archive, atomically.

    Parameters
    ----------
    path
        Where to write.
    sysfs
        ``/sys``, or a copy of another machine's.
    run
        How to run a program; ``None`` to run none.
    names
        Host names to remove; by default this machine's.

    Raises
    ------
    InputError
        When there is no sysfs at that place, or the archive cannot be written.
    """
    captured = capture(sysfs=sysfs, run=run, names=names)
    write_atomically(path, pack(captured))
    return captured


def capture(
    *,
    sysfs: str | Path = "/sys",
    run: Run | None = run_program,
    names: Sequence[str] | None = None,
) -> Captured:
    """As :func:`gather`, without writing.

    Raises
    ------
    InputError
        When there is no sysfs at that place.
    """
    scrubber = Scrubber(_own_names() if names is None else names)
    captured = Captured(sysfs=_scrub_sysfs(capture_sysfs(sysfs), scrubber))
    for program in PROGRAMS if run is not None and str(sysfs) == "/sys" else ():
        outcome = Outcome(problem="not installed")
        for command in program.commands:
            outcome = run(command) if run is not None else outcome
            if outcome.text is not None:
                break
        text = outcome.text
        problem = outcome.problem
        if text is not None:
            try:
                text = scrubber.scrub(program.keep(text))
            except FormatError as error:
                text, problem = None, error.what
        if text is not None and text.strip():
            captured.outputs[program.member] = text
            problem = "ok"
        captured.status[program.member] = scrubber.scrub(problem or "nothing of use in it")
    return captured


def _own_names() -> list[str]:
    return [name for name in (platform.node(),) if name]


def _scrub_sysfs(files: Mapping[str, str], scrubber: Scrubber) -> dict[str, str]:
    """Contents scrubbed, and network devices with telling names called ``net0``, ``net1``, …"""
    renamed: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        name = match[2]
        if not safe_interface(name):
            name = renamed.setdefault(name, f"net{len(renamed)}")
        return f"{match[1]}{name}/"

    return {
        re.sub(r"((?:^|/)(?:net|infiniband)/)([^/]+)/", rename, path): scrubber.scrub(text)
        for path, text in files.items()
    }


def pack(captured: Captured) -> bytes:
    """The archive: the same bytes for the same machine, whenever and by whomever it is made."""
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "outputs": dict(sorted(captured.status.items())),
    }
    members = {MANIFEST: encode_document(manifest)}
    members |= {SYSFS + path: text.encode() for path, text in sorted(captured.sysfs.items())}
    members |= {OUTPUTS + name: text.encode() for name, text in sorted(captured.outputs.items())}
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), mtime=0)
