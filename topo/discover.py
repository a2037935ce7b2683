"""This machine, as its own kernel describes it; or a captured one, replayed."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.nvml import NvmlReading, connect_nvlinks, read_nvml
from topocal.topo.readers.kfd import connect_kfd
from topocal.topo.readers.pci_function import PciFunction, Role
from topocal.topo.readers.pci_role import AMD, INTEL, NVIDIA
from topocal.topo.readers.sysfs import SysfsMachine, add_machine, read_machine
from topocal.topo.readers.sysfs_capture import capture_sysfs
from topocal.topo.topology import Topology

__all__ = ["LIVE_SYSFS", "discover", "topology_from_sysfs"]

LIVE_SYSFS: Final = "/sys"


def discover(sysfs: str | Path = LIVE_SYSFS, *, nvml: bool | None = None) -> Topology:
    """The machine that a sysfs tree describes.

    Parameters
    ----------
    sysfs
        ``/sys``, or a directory with a copy of another machine's.
    nvml
        Whether to ask NVIDIA's management library, too; by default only for the
        live machine, for a copy is another machine's.

    Returns
    -------
    Sockets, memory, processors, GPUs and NICs with what is between them.  What
    was looked for and not found stands in the topology's notes.

    Raises
    ------
    InputError
        When there is no sysfs at that place.
    FormatError
        When it lists more devices than any machine has.
    """
    live = Path(sysfs) == Path(LIVE_SYSFS)
    reading = read_nvml() if (live if nvml is None else nvml) else None
    name = (platform.node() or "machine") if live else "machine"
    return topology_from_sysfs(capture_sysfs(sysfs), nvml=reading, name=name, source=str(sysfs))


def topology_from_sysfs(
    files: Mapping[str, str],
    *,
    nvml: NvmlReading | None = None,
    name: str = "machine",
    source: str = "sysfs",
) -> Topology:
    """The machine that captured files of sysfs describe.

    Parameters
    ----------
    files
        Content by path below ``/sys`` (:func:`~topocal.topo.readers.sysfs_capture.capture_sysfs`).
    nvml
        What NVML said on the same machine.
    source
        What the provenance calls the files.
    """
    builder = TopologyBuilder(name)
    builder.source(f"{source}: {len(files)} files of sysfs")
    machine = read_machine(files)
    _merge_nvml(machine, nvml)
    ids, sockets = add_machine(builder, machine)
    if nvml is not None and nvml.gpus:
        builder.source("NVML: GPU numbers, names and NVLinks")
        homes = {
            ids[g.address]: sockets.of(*_numa(machine.functions[g.address]))
            for g in nvml.gpus
            if g.address in ids
        }
        connect_nvlinks(builder, [g for g in nvml.gpus if g.address in ids], ids, homes)
    with_cpus = [n.number for n in machine.nodes if n.cpu_list != ""]
    links = connect_kfd(builder, files, ids, sockets, with_cpus)
    if links:
        builder.source("amdkfd: xGMI links")
    _note_gaps(builder, machine, ids, nvml, links)
    return builder.build()


def _numa(function: PciFunction) -> tuple[int, ...]:
    return () if function.numa is None else (function.numa,)


def _merge_nvml(machine: SysfsMachine, nvml: NvmlReading | None) -> None:
    """Numbers and names; and the GPUs that only NVML shows (a virtual machine hides the bus)."""
    for gpu in () if nvml is None else nvml.gpus:
        function = machine.functions.get(gpu.address)
        if function is None:
            if gpu.address.startswith("unknown"):
                continue
            function = PciFunction(address=gpu.address, role=Role.GPU, vendor=NVIDIA)
            machine.functions[gpu.address] = function
        function.index = gpu.index
        function.role = Role.GPU
        function.model = gpu.model or function.model


def _note_gaps(
    builder: TopologyBuilder,
    machine: SysfsMachine,
    ids: Mapping[str, str],
    nvml: NvmlReading | None,
    xgmi_links: int,
) -> None:
    """Say what was looked for and not found."""
    gpus = [machine.functions[address] for address in ids if ids[address].startswith("gpu")]
    if not machine.functions:
        builder.note("no PCI device found: GPUs and NICs, if any, are hidden from this system")
    elif not gpus:
        builder.note(
            f"no GPU found among {len(machine.functions)} PCI functions: the topology has "
            "sockets, memory, processors and NICs only"
        )
    if len(gpus) == len(ids) and not machine.other_nets:
        builder.note("no NIC found")
    if not machine.nodes:
        builder.note("no memory node found: one socket is assumed")
    vendors = {gpu.vendor for gpu in gpus}
    if NVIDIA in vendors:
        if nvml is None:
            builder.note("NVLinks are not in sysfs; add `nvidia-smi topo -m` to see them")
        elif nvml.absence:
            builder.note(f"NVLinks and nvidia-smi's GPU numbers are not known: {nvml.absence}")
    if AMD in vendors and len(gpus) > 1 and not xgmi_links:
        builder.note("no xGMI link found: the amdkfd driver lists none")
    if INTEL in vendors and len(gpus) > 1:
        builder.note("Xe Links are not in sysfs; add `xpu-smi topology -m` to see them")
