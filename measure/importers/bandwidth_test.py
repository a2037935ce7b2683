"""CUDA's bandwidthTest: one GPU and host memory.

What the figures are (Samples/1_Utilities/bandwidthTest in NVIDIA/cuda-samples): the rate of
copies of one size, one direction at a time.  ``MB/s`` is taken as it is written, a million
bytes per second; the releases that print it divide by 2**20 in their source, which would
make their rates 4.9 % higher, and the notes say so.  The tool numbers devices within
``CUDA_VISIBLE_DEVICES``, and does not say which socket's memory it used: host memory is
``cpu0`` (:meth:`~topocal.measure.importers.imported.Imported.renamed` tells two apart).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from topocal.measure.importers.figures import alone, is_rate, to_number
from topocal.measure.importers.imported import Draft, Imported, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.visible_devices import VisibleDevices
from topocal.measure.samples import Sample
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import rate_unit_Bps

__all__ = ["BANDWIDTH_TEST", "looks_like_bandwidth_test", "parse_bandwidth_test"]

TITLE: Final = "CUDA bandwidthTest"
HOST: Final = "cpu0"

_BANNER: Final = re.compile(r"\[?CUDA Bandwidth Test\]")
_SECTION: Final = re.compile(
    r"\s{0,8}(Host|Device) to (Host|Device) Bandwidth(?:,\s{0,4}([0-9]{1,4}) Device)?"
)
_MEMORY: Final = re.compile(r"\s{0,8}(PINNED|PAGEABLE) Memory Transfers", re.IGNORECASE)
_UNIT: Final = re.compile(r"Transfer Size \(Bytes\)\s{1,40}Bandwidth\s{0,4}\(([KMG]i?B/s)\)")
_DEVICE: Final = re.compile(r"\s{0,8}Device ([0-9]{1,4}): (\S.{0,100})")
_CSV: Final = re.compile(
    r"\s{0,8}bandwidthTest-(H2D|D2H|D2D)-(Pinned|Paged),\s{0,4}Bandwidth = ([0-9.]{1,20}) "
    r"([KMG]i?B/s),.{0,60}Size = ([0-9]{1,15}) bytes.{0,100}"
)
_WAYS: Final = {"H2D": ("Host", "Device"), "D2H": ("Device", "Host"), "D2D": ("Device", "Device")}


def looks_like_bandwidth_test(text: str) -> bool:
    """Whether a text has one of the tool's tables."""
    return _UNIT.search(text) is not None or "bandwidthTest-H2D-" in text


def parse_bandwidth_test(text: str, *, file: str) -> Imported:
    """The tables of one output.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="bandwidth-test", title=TITLE, file=file)
    collected: dict[tuple[str, str, str], list[Sample]] = {}
    local: dict[int, list[Reading]] = {}
    run, devices, way, memory, unit = 1, list[str](), ("", ""), "pinned", ""
    seen: set[tuple[str, str]] = set()
    several = others = False
    visible = VisibleDevices()
    for line_number, line in enumerate(plain_lines(text), start=1):
        if visible.read(line):
            continue
        if _BANNER.search(line):
            if seen:
                run, devices, seen = run + 1, [], set()
        elif device := _DEVICE.match(line):
            name, model = f"gpu{int(visible.of(device[1]))}", device[2].strip()
            devices.append(name)
            others |= draft.devices.setdefault(name, {"model": model})["model"] != model
        elif section := _SECTION.match(line):
            way, unit = (section[1], section[2]), ""
            several = int(section[3] or "1") > 1
            if (way[0], way[1]) in seen:
                run, seen = run + 1, set()
            seen.add(way)
        elif found := _MEMORY.match(line):
            memory = found[1].lower()
        elif header := _UNIT.search(line):
            unit = header[1]
        elif row := _CSV.fullmatch(line):
            way, memory = _WAYS[row[1]], {"Pinned": "pinned", "Paged": "pageable"}[row[2]]
            _add(draft, collected, local.setdefault(run, []), (str(run), memory), way, devices,
                 (row[5], row[3]), row[4], line_number)  # fmt: skip
        elif unit and way != ("", "") and line.strip():
            words = line.split()
            if len(words) != 2 or to_number(words[0]) is None:
                unit = ""
            elif several:
                draft.note(
                    f"line {line_number}: the sum over several devices that ran one after another "
                    "is no throughput: it is left out"
                )
            else:
                _add(draft, collected, local.setdefault(run, []), (str(run), memory), way, devices,
                     words, unit, line_number)  # fmt: skip
    for (run_of, memory_of, label), samples in collected.items():
        draft.add(
            label,
            samples,
            conditions={"run": run_of, "memory": memory_of, "direction": "one way"},
        )
    for run_of_local, readings in local.items():
        draft.add(
            "inside one GPU",
            readings=readings,
            conditions={"run": str(run_of_local)},
            default=False,
        )
    if others:
        draft.note(
            "the runs are of different GPUs that have the same number: give each machine, or each "
            "CUDA_VISIBLE_DEVICES, its own file"
        )
    draft.prefer_one_run()
    return draft.done()


def _add(
    draft: Draft,
    collected: dict[tuple[str, str, str], list[Sample]],
    local: list[Reading],
    key: tuple[str, str],
    way: tuple[str, str],
    devices: Sequence[str],
    row: Sequence[str],
    unit: str,
    line: int,
) -> None:
    """A row of a table."""
    size, figure = to_number(row[0]), to_number(row[1])
    if size is None or figure is None or size <= 0:
        return
    rate, where = figure * rate_unit_Bps(unit), draft.where(line)
    if not is_rate(rate):
        raise draft.fail(f"{figure:g} {unit} is no rate", line=line, remedy="check the figure")
    if unit.startswith("M"):
        draft.note(
            "MB/s is taken as a million bytes per second, as it is written; the source of the "
            "releases that print it divides by 2**20, which would make these rates 4.9 % higher"
        )
    gpu = devices[-1] if devices else "gpu0"
    if way == ("Device", "Device"):
        local.append(
            Reading(
                what=f"copy inside {gpu}",
                value=rate,
                unit="B/s",
                reason="the bytes stay inside one GPU",
                where=where,
            )
        )
        return
    source, destination = (HOST, gpu) if way[0] == "Host" else (gpu, HOST)
    label = f"{'host to GPU' if way[0] == 'Host' else 'GPU to host'}, {key[1]}"
    collected.setdefault((*key, label), []).append(
        alone(source, destination, rate, where=where, size_bytes=size)
    )


BANDWIDTH_TEST: Final = Importer(
    name="bandwidth-test",
    title=TITLE,
    looks_like=looks_like_bandwidth_test,
    parse=parse_bandwidth_test,
)
"""The importer that the registry lists."""
