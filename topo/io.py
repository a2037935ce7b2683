"""topology.json: a topology on disk, exactly as it is in memory.

History of the schema: 1 (2026-11) first version.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
import networkx as nx

from topocal.topo.errors import FormatError, InputError, Where, one_line
from topocal.topo.resource import LinkKind, NodeKind, PathClass, Resource, Use
from topocal.topo.topology import Topology

__all__ = [
    "decode_document",
    "encode_document",
    "read_bytes",
    "read_topology",
    "topology_from_document",
    "topology_to_document",
    "write_atomically",
    "write_topology",
]

FORMAT: Final = "topocal/topology"
VERSION: Final = 1

_PAIR_LISTS: Final = ("no_peer_pairs", "stated_classes", "class_overrides")
"""Graph attributes that list pairs of endpoints, and a path class where they state one."""


def read_bytes(path: str | Path) -> bytes:
    """The content of a file.

    Raises
    ------
    InputError
        When it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            (error.strerror or "cannot be read").lower(),
            where=Where(file=str(path)),
            remedy="check the path and its permissions",
        ) from error


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a file so that the old content or the new is there at any moment, never a part.

    Permissions follow the umask, as for any new file.

    Raises
    ------
    InputError
        When it cannot be written; an old file is then untouched.
    """
    target = Path(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(
            f"cannot be written: {(error.strerror or 'unknown error').lower()}",
            where=Where(file=str(path)),
            remedy="choose another place with -o",
        ) from error


def encode_document(document: dict[str, Any]) -> bytes:
    """JSON with an end of line; floats survive the round trip exactly."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_document(content: bytes, *, format: str, version: int, file: str) -> dict[str, Any]:
    """A JSON object that names its ``format`` and a ``version`` no newer than ours.

    Raises
    ------
    FormatError
        When it is not JSON, of another kind, or newer than this release.
    """
    where = Where(file=file)
    try:
        document: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(
            f"not a JSON file: {one_line(error)}", where=where, remedy=f"give a {format} file"
        ) from error
    kind = document.get("format") if isinstance(document, dict) else None
    if kind != format:
        raise FormatError(
            f"is not a {format} file but {one_line(kind) if kind else 'something else'}",
            where=where,
            remedy=f"give a file that topocal wrote as {format}",
        )
    found = document.get("version")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= version:
        raise FormatError(
            f"has version {one_line(found)} of {format}; this release reads up to {version}",
            where=where,
            remedy="update topocal, or write the file again with this release",
        )
    return dict(document)


def topology_to_document(topology: Topology) -> dict[str, Any]:
    """The topology as JSON values."""
    graph = topology.graph
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": topology.name,
        "peer_access": graph.graph.get("peer_access"),
        **{name: graph.graph[name] for name in _PAIR_LISTS if name in graph.graph},
        "provenance": graph.graph["provenance"],
        "notes": graph.graph["notes"],
        "nodes": [{"id": node, **data} for node, data in graph.nodes(data=True)],
        "links": [
            {"id": key, "tail": tail, "head": head, **data}
            for tail, head, key, data in graph.edges(keys=True, data=True)
        ],
        "resources": [_record(r) for r in topology.resources.values()],
        "uses": [_record(u) for u in topology.uses],
    }


def _record(value: Resource | Use) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def _pairs(value: object, graph: nx.MultiDiGraph) -> list[list[str]]:
    """Entries ``[a, b]`` or ``[a, b, class]`` of nodes that exist and classes that exist."""
    entries = msgspec.convert(value, list[list[str]])
    for entry in entries:
        if not 2 <= len(entry) <= 3 or not all(name in graph for name in entry[:2]):
            raise KeyError(f"pair {one_line(entry)} names a node that is not listed")
        for name in entry[2:]:
            PathClass[name]
    return entries


def topology_from_document(document: dict[str, Any], *, file: str) -> Topology:
    """The topology that :func:`topology_to_document` wrote.

    Raises
    ------
    FormatError
        When a part is missing or of the wrong type.
    TopologyError
        When it contradicts itself.
    """
    try:
        graph = nx.MultiDiGraph()
        for node in document["nodes"]:
            node = dict(node)
            graph.add_node(node.pop("id"), **node | {"kind": NodeKind(node["kind"])})
        for link in document["links"]:
            link = dict(link)
            key, tail, head = link.pop("id"), link.pop("tail"), link.pop("head")
            if tail not in graph or head not in graph:
                raise KeyError(f"link {key} joins a node that is not listed")
            link["kind"] = LinkKind(link["kind"])
            link["uses"] = tuple((str(r), float(w)) for r, w in link["uses"])
            graph.add_edge(tail, head, key=key, **link)
        resources = msgspec.convert(document["resources"], list[Resource])
        graph.graph.update(
            name=document["name"],
            resources={r.id: r for r in resources},
            uses=msgspec.convert(document["uses"], list[Use]),
            peer_access=document["peer_access"],
            **{name: _pairs(document[name], graph) for name in _PAIR_LISTS if name in document},
            provenance=document["provenance"],
            notes=document["notes"],
        )
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise FormatError(
            f"damaged topology: {type(error).__name__} {one_line(error)}",
            where=Where(file=file),
            remedy="write it again with topocal read or discover",
        ) from error
    return Topology(graph)


def write_topology(topology: Topology, path: str | Path) -> None:
    """Write topology.json atomically."""
    write_atomically(path, encode_document(topology_to_document(topology)))


def read_topology(path: str | Path) -> Topology:
    """Read topology.json.

    Raises
    ------
    InputError
        When the file cannot be read, is of another kind or newer than this release.
    TopologyError
        When it contradicts itself.
    """
    document = decode_document(read_bytes(path), format=FORMAT, version=VERSION, file=str(path))
    return topology_from_document(document, file=str(path))
