"""Files of any kind as one question: what was measured, on which machine, and what is passed over.

Data flows so: each file is told by its content, and one paste may be both; topologies are merged,
measurements loaded.  What the importers have to say of a file is told.  A file whose figures no fit
can use is passed over where others have some, and so are figures of host memory where the topology
shows none; both are told, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from topocal.measure.samples import Measurements, Sample
    from topocal.topo.topology import Topology

__all__ = ["Inputs", "sort_inputs"]

_HOST_MEMORY: Final = re.compile(r"(?:.*/)?(?:cpu|mem|host)[0-9]*")
"""What importers call the host's memory; nvidia-smi's matrix, for one, has no such node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What there is to explain.

    Attributes
    ----------
    measurements
        The samples of all files that have some.
    machine
        The topology of those that describe one; ``None`` where none does.
    notes
        What was passed over, in sentences.
    """

    measurements: Measurements
    machine: Topology | None
    notes: tuple[str, ...]


def sort_inputs(files: Sequence[Path], topology: str | None) -> Inputs:
    """Tell measurements from topologies, and make one of each.

    Parameters
    ----------
    topology
        A further topology file, or a reference machine.

    Raises
    ------
    InputError
        When a file is neither, no file holds measurements, or none of them can be used.
    """
    from topocal.machine import find_topology
    from topocal.measure.importers.registry import sniff_or_none
    from topocal.measure.load import load
    from topocal.topo.errors import FormatError, InputError, TopologyError, file_words
    from topocal.topo.merge import merge
    from topocal.topo.readers.archive import is_tar
    from topocal.topo.readers.reader import decode_text
    from topocal.topo.readers.registry import is_topology, parse_any, parse_content

    measured: list[Path] = []
    passed_over: list[str] = []
    machines: list[Topology] = [] if topology is None else [find_topology(topology)]
    for path in files:
        content, file = _unpacked(path), file_words(path)
        if is_tar(content):
            machines.append(parse_content(content, file=file))
            continue
        text = decode_text(content, file=file)
        is_measured = sniff_or_none(text) is not None
        try:
            machines.append(parse_any(text, file=file))
        except (FormatError, TopologyError) as error:
            # Where it is no measurement either, the loader says what is wrong with it.
            if is_measured and is_topology(text):
                name = file_words(path.name)
                passed_over.append(f"{name}: no topology could be read in it: {error.what}")
            is_measured = True
        if is_measured:
            measured.append(path)
    if not measured:
        raise InputError(
            "no measurements among the files", remedy="give a table or a tool's output"
        )
    usable, notes = _usable(measured)
    notes = passed_over + notes
    machine = machines[0] if len(machines) == 1 else merge(machines).topology if machines else None
    measurements = load(usable)
    if machine is not None:
        measurements, machine, more = _on_machine(measurements, machine)
        notes += more
    return Inputs(measurements=measurements, machine=machine, notes=tuple(notes))


def _usable(files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The files that hold samples (all of them where none does), and what is to be told of each."""
    from topocal.measure.importers.registry import import_all, sniff_or_none
    from topocal.topo.errors import file_words
    from topocal.topo.readers.reader import decode_text

    usable, notes = [], []
    for path in files:
        file = file_words(path)
        text = decode_text(_unpacked(path), file=file)
        if sniff_or_none(text) is not None:
            found = import_all(text, file=file)
            told = f"{file_words(path.name)}: " if len(files) > 1 else ""
            notes += [told + note for one in found for note in one.notes]
            for one in found:
                if not one.usable:
                    what = f" in {one.title}" if len(found) > 1 else ""
                    notes.append(
                        f"{file_words(path.name)}: no figure that a fit can use{what}, passed over"
                        + one.why_not()
                    )
            if not any(one.usable for one in found):
                continue
        usable.append(path)
    return (usable, notes) if usable else (list(files), [])


def _unpacked(path: Path) -> bytes:
    """A file's bytes; gzip is unpacked.

    Raises
    ------
    InputError
        When it cannot be read, or is too large.
    """
    from topocal.topo.errors import file_words
    from topocal.topo.files import read_limited
    from topocal.topo.readers.archive import inflate
    from topocal.topo.readers.reader import MAX_FILE_BYTES

    content = read_limited(path, MAX_FILE_BYTES + 1)
    return inflate(content, file=file_words(path)) if len(content) <= MAX_FILE_BYTES else content


def _on_machine(
    measurements: Measurements, machine: Topology
) -> tuple[Measurements, Topology | None, list[str]]:
    """Without figures of host memory that the topology does not show.

    Where they are all that there is, it is the topology that is of no use.
    """
    known = set(machine.endpoints)
    absent = {n for n in measurements.endpoints if n not in known and _HOST_MEMORY.fullmatch(n)}
    if not absent:
        return measurements, machine, []
    names = ", ".join(sorted(absent))

    def inside(samples: Sequence[Sample]) -> tuple[Sample, ...]:
        return tuple(
            s for s in samples if not any(n in absent for pair in s.pattern.pairs for n in pair)
        )

    kept = inside(measurements.samples)
    if not kept:
        return (
            measurements,
            None,
            [f"the topology does not show {names}, to which all figures lead: it is not used"],
        )
    fewer = replace(measurements, samples=kept, set_aside=inside(measurements.set_aside))
    count = len(measurements.samples) - len(kept)
    return (
        fewer,
        machine,
        [
            f"the topology does not show {names}: {count} figures to and from there are passed "
            "over (explained by themselves without a topology)"
        ],
    )
