"""All readers, and which of them a text is for."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from topocal.topo.choices import one_of
from topocal.topo.errors import (
    FormatError,
    InputError,
    TopologyError,
    Where,
    file_words,
    one_line,
    printable,
)
from topocal.topo.files import read_limited
from topocal.topo.io import stated_format
from topocal.topo.merge import merge
from topocal.topo.readers.accelerator_matrix import ACCELERATOR_MATRIX
from topocal.topo.readers.amd_smi import AMD_SMI
from topocal.topo.readers.archive import inflate, is_tar, unpack
from topocal.topo.readers.gathered import topology_from_gathered
from topocal.topo.readers.hwloc import HWLOC
from topocal.topo.readers.lspci import LSPCI
from topocal.topo.readers.lstopo_text import LSTOPO_TEXT
from topocal.topo.readers.nccl_log import NCCL_LOG
from topocal.topo.readers.nccl_xml import NCCL_XML
from topocal.topo.readers.numa_text import LSCPU, NUMACTL
from topocal.topo.readers.nvidia_lists import NVIDIA_LISTS, parse_nvidia_list
from topocal.topo.readers.nvidia_query import NVIDIA_QUERY
from topocal.topo.readers.paste import undress
from topocal.topo.readers.reader import MAX_FILE_BYTES, Reader, decode_text
from topocal.topo.readers.rocm_showtopo import ROCM_SHOWTOPO
from topocal.topo.readers.smi_errors import looks_like_tool_error, refuse_tool_error
from topocal.topo.readers.topo_matrix import TOPO_MATRIX
from topocal.topo.readers.topology_json import TOPOLOGY_JSON
from topocal.topo.readers.transferbench_topology import TRANSFERBENCH
from topocal.topo.readers.xpu_smi import XPU_SMI
from topocal.topo.readers.xpu_smi_device import XPU_SMI_DEVICE
from topocal.topo.topology import Topology

__all__ = ["READERS", "is_topology", "parse_any", "parse_content", "read_any", "sniff"]

READERS: tuple[Reader, ...] = (
    TOPOLOGY_JSON,
    NCCL_XML,
    HWLOC,
    NCCL_LOG,
    ACCELERATOR_MATRIX,
    TOPO_MATRIX,
    XPU_SMI,
    XPU_SMI_DEVICE,
    AMD_SMI,
    ROCM_SHOWTOPO,
    TRANSFERBENCH,
    LSTOPO_TEXT,
    LSPCI,
    NVIDIA_QUERY,
    NVIDIA_LISTS,
    NUMACTL,
    LSCPU,
)
"""In the order they are asked: the most particular first."""


def sniff(text: str, *, file: str) -> Reader:
    """The reader for a text, by its content.

    Raises
    ------
    FormatError
        When no reader knows it.
    """
    return _sniff(text, file=file)[0]


def is_topology(text: str) -> bool:
    """Whether some reader knows a text."""
    return _known(text) is not None


def _known(text: str) -> tuple[Reader, str] | None:
    """The reader, and the text as it is or without what surrounds it."""
    for prepare in (str, undress):
        shape = prepare(text)
        for reader in READERS:
            if reader.looks_like(shape):
                return reader, shape
    return None


def _sniff(text: str, *, file: str) -> tuple[Reader, str]:
    found = _known(text)
    if found is not None:
        return found
    if looks_like_tool_error(text):
        refuse_tool_error(text, file=file)
    own = stated_format(text)
    if own:
        raise FormatError(
            f"is a {own} file and no topology",
            where=Where(file=file),
            remedy="give topology.json, or what a tool prints about the machine",
        )
    raise FormatError(
        f"is of no known kind (begins with {one_line(text[:60])!r})",
        where=Where(file=file),
        remedy="name its kind with --as, one of " + ", ".join(r.name for r in READERS),
    )


def _with_lists(topology: Topology, text: str, file: str) -> Topology:
    """With what ``nvidia-smi -L`` and ``nvlink`` say of the GPUs in the same paste."""
    if not NVIDIA_LISTS.looks_like(text):
        return topology
    try:
        lists = parse_nvidia_list(text, file=file, alone=False)
        return merge([topology, lists], ["nvidia-smi topo", "nvidia-smi -L or nvlink"]).topology
    except InputError as error:
        topology.graph.graph["notes"].append(f"the lists of GPUs in it are left out: {error.what}")
        return topology


def _parse(reader: Reader, text: str, file: str) -> Topology:
    try:
        topology = reader.parse(text, file=file)
        return _with_lists(topology, text, file) if reader is TOPO_MATRIX else topology
    except FormatError:
        # What surrounds it may be what is wrong.
        bare = undress(text)
        if bare == text or not reader.looks_like(bare):
            raise
        with suppress(FormatError):
            return reader.parse(bare, file=file)
        raise


def parse_any(text: str, *, file: str, kind: str | None = None) -> Topology:
    """Parse a text with the reader called ``kind``, or the one that its content names.

    Raises
    ------
    InputError
        When there is no such kind.
    FormatError
        When the text is of no known kind, or damaged.
    """
    known = {reader.name: reader for reader in READERS}
    kind = None if kind is None else one_of(kind, known, what="kind of file")
    reader, shape = _sniff(text, file=file) if kind is None else (known[kind], text)
    try:
        return _parse(reader, shape, file)
    except TopologyError as error:
        # What a file describes contradicts itself: say which file.
        error.where = error.where or Where(file=file)
        raise


def parse_content(content: bytes, *, file: str, kind: str | None = None) -> Topology:
    """Parse a file's bytes: a text, one that gzip has packed, or an archive of ``topocal gather``.

    Raises
    ------
    InputError
        As :func:`parse_any`.
    """
    if len(content) <= MAX_FILE_BYTES:
        content = inflate(content, file=file)
    if kind is None and is_tar(content):
        return topology_from_gathered(unpack(content, file=file), file=file)
    return parse_any(decode_text(content, file=file), file=file, kind=kind)


def read_any(path: str | Path, *, kind: str | None = None) -> Topology:
    """Read a file; as :func:`parse_content`."""
    content = read_limited(path, MAX_FILE_BYTES + 1)
    return parse_content(content, file=printable(file_words(path)), kind=kind)
