"""Our own topology.json, so that it can be read again beside another tool's output."""

from __future__ import annotations

from typing import Final

from topocal.topo.errors import FormatError, TopologyError, Where
from topocal.topo.io import (
    FORMAT,
    VERSION,
    decode_document,
    stated_format,
    topology_from_document,
)
from topocal.topo.readers.reader import Reader
from topocal.topo.topology import Topology

__all__ = ["TOPOLOGY_JSON", "looks_like_topology_json", "parse_topology_json"]


def looks_like_topology_json(text: str) -> bool:
    """Whether a text says that it is a topology of ours."""
    return FORMAT in text and stated_format(text) == FORMAT


def parse_topology_json(text: str, *, file: str) -> Topology:
    """The topology that :func:`topocal.topo.io.write_topology` wrote.

    Raises
    ------
    FormatError
        When it is damaged, of another kind or newer than this release.
    """
    content = text.encode("utf-8", errors="replace")
    document = decode_document(content, format=FORMAT, version=VERSION, file=file)
    try:
        return topology_from_document(document, file=file)
    except TopologyError as error:
        raise FormatError(
            f"contradicts itself: {error.what}", where=Where(file=file), remedy=error.remedy
        ) from error


TOPOLOGY_JSON: Final = Reader(
    name="topology",
    title="topology.json (topocal read, topocal discover)",
    looks_like=looks_like_topology_json,
    parse=parse_topology_json,
)
"""The reader that the registry lists."""
