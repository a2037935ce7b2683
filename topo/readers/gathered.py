"""A machine that ``topocal gather`` captured: its sysfs, and what tools printed on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from topocal.topo.discover import topology_from_sysfs
from topocal.topo.errors import FormatError, TopocalError, Where, one_line
from topocal.topo.io import decode_document
from topocal.topo.merge import merge
from topocal.topo.readers.amd_smi import AMD_SMI
from topocal.topo.readers.archive import read_archive
from topocal.topo.readers.hwloc import HWLOC
from topocal.topo.readers.lspci import LSPCI
from topocal.topo.readers.nvidia_lists import NVIDIA_LISTS
from topocal.topo.readers.nvidia_query import NVIDIA_QUERY
from topocal.topo.readers.reader import Reader, decode_text
from topocal.topo.readers.rocm_showtopo import ROCM_SHOWTOPO
from topocal.topo.readers.topo_matrix import TOPO_MATRIX
from topocal.topo.readers.xpu_smi import XPU_SMI
from topocal.topo.topology import Topology

__all__ = [
    "FORMAT",
    "MANIFEST",
    "OUTPUTS",
    "SYSFS",
    "VERSION",
    "read_gathered",
    "topology_from_gathered",
]

FORMAT: Final = "topocal/gathered"
VERSION: Final = 1
MANIFEST: Final = "topocal.json"
SYSFS: Final = "sysfs/"
OUTPUTS: Final = "outputs/"

_READERS: Final[Mapping[str, Reader]] = {
    "nvidia-smi-topo.txt": TOPO_MATRIX,
    "nvidia-smi-query.txt": NVIDIA_QUERY,
    "nvidia-smi-nvlink.txt": NVIDIA_LISTS,
    "rocm-smi-topo.txt": ROCM_SHOWTOPO,
    "amd-smi-topo.json": AMD_SMI,
    "xpu-smi-topo.txt": XPU_SMI,
    "lspci-tree.txt": LSPCI,
    "lspci-devices.txt": LSPCI,
    "hwloc.xml": HWLOC,
}
"""Which reader each captured output is for."""


def read_gathered(path: str | Path) -> Topology:
    """The machine in an archive that ``topocal gather`` wrote.

    Raises
    ------
    InputError
        When it cannot be read.
    FormatError
        When it is no such archive, damaged, hostile, or newer than this release.
    """
    return topology_from_gathered(read_archive(path), file=str(path))


def topology_from_gathered(members: Mapping[str, bytes], *, file: str) -> Topology:
    """The machine in the unpacked files of such an archive.

    Outputs that cannot be read (a tool that only printed an error) are left out
    and noted; where the others disagree, the merge says so.

    Raises
    ------
    FormatError
        When the manifest is missing, of another kind, or newer than this release.
    """
    top = next((n.removesuffix(MANIFEST) for n in sorted(members) if _is_manifest(n)), None)
    if top is None:
        raise FormatError(
            f"has no {MANIFEST} in it, so it is no machine that was gathered",
            where=Where(file=file),
            remedy="give a file that `topocal gather` wrote",
        )
    decode_document(members[top + MANIFEST], format=FORMAT, version=VERSION, file=file)
    sysfs = {
        name.removeprefix(top + SYSFS): content.decode("utf-8", errors="replace")
        for name, content in members.items()
        if name.startswith(top + SYSFS)
    }
    label = Path(file).name
    described = [topology_from_sysfs(sysfs, name=Path(file).name.partition(".")[0], source=label)]
    notes = []
    for name, reader in _READERS.items():
        content = members.get(top + OUTPUTS + name)
        if content is None:
            continue
        try:
            text = decode_text(content, file=name)
            found = reader.parse(text, file=name)
            described = [merge([*described, found]).topology]
        except TopocalError as error:
            notes.append(f"{name} in {label} is left out: {one_line(error.what)}")
    return _noted(described[0], notes)


def _is_manifest(name: str) -> bool:
    return name.rpartition("/")[2] == MANIFEST and name.count("/") <= 1


def _noted(topology: Topology, notes: list[str]) -> Topology:
    if not notes:
        return topology
    graph = topology.graph.copy()
    graph.graph["notes"] = [*graph.graph["notes"], *notes]
    return Topology(graph)
