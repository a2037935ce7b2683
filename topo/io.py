"""topology.json: a topology on disk, exactly as it is in memory; and what all our files share.

Every file names its format, its version and the digest of its content
(:mod:`topocal.topo.digest`); without a digest, as in files written by hand or by earlier
releases, nothing is compared.

History of the schema: 1 (2026-11) first version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import networkx as nx

from topocal.topo.digest import check_digest, with_digest
from topocal.topo.errors import (
    FormatError,
    TopocalError,
    TopologyError,
    Where,
    one_line,
)
from topocal.topo.files import read_limited, write_atomically
from topocal.topo.json_values import from_json_value, to_json_value
from topocal.topo.resource import LinkKind, NodeKind, PathClass, Resource, Use
from topocal.topo.strict_json import decode_json, decoded_if_marked
from topocal.topo.topology import Topology

__all__ = [
    "CHANGED",
    "FORMAT",
    "decode_document",
    "encode_document",
    "read_bytes",
    "read_topology",
    "stated_format",
    "topology_from_document",
    "topology_to_document",
    "write_atomically",
    "write_topology",
]

FORMAT: Final = "topocal/topology"
VERSION: Final = 1

CHANGED: Final = 'write it again; if you changed it on purpose, remove "digest"'
"""Remedy for a file that is not what its digest says."""

_FORMAT: Final = re.compile(r'"format"\s*:\s*"(topocal/[a-z-]{1,40})"')
_BEGINNING: Final = 4096

_PAIR_LISTS: Final = ("no_peer_pairs", "stated_classes", "class_overrides")
"""Graph attributes that list pairs of endpoints, and a path class where they state one."""

_GRAPH_FIELDS: Final = ("peer_access", *_PAIR_LISTS, "provenance", "notes")
"""Graph attributes with a place of their own in the file; others stand under ``attributes``."""

_OWN_FIELDS: Final = ("name", "resources", "uses")


def read_bytes(path: str | Path) -> bytes:
    """The content of a file.

    Raises
    ------
    InputError
        When it cannot be read.
    """
    return read_limited(path)


def encode_document(document: dict[str, Any]) -> bytes:
    """JSON with an end of line; floats survive the round trip exactly.

    A document that names its format gets a digest (:func:`~topocal.topo.digest.with_digest`).

    Raises
    ------
    TopocalError
        When the document holds what JSON cannot.
    """
    try:
        content = msgspec.json.encode(with_digest(document))
        return msgspec.json.format(content, indent=1) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TopocalError(
            f"cannot be written as JSON: {one_line(error)}",
            remedy="use numbers, text, lists and objects",
        ) from error


class _Head(msgspec.Struct):
    format: str = ""


def stated_format(content: str | bytes) -> str:
    """The format that a file of ours says it has, wherever it says so; empty where it says none.

    Of a damaged file, what its beginning says: its reader then tells what is wrong.

    >>> stated_format('{"a": [], "format": "topocal/model"}'), stated_format("GPU0 X PIX")
    ('topocal/model', '')
    """
    text = content if isinstance(content, str) else decoded_if_marked(content)
    if text.lstrip()[:1] not in ("{", b"{"):
        return ""
    try:
        found = msgspec.json.decode(text, type=_Head).format
    except (msgspec.MsgspecError, ValueError, RecursionError):
        head = text[:_BEGINNING] if isinstance(text, str) else text[:_BEGINNING].decode("latin-1")
        match = _FORMAT.search(head)
        return "" if match is None else match[1]
    return found if _FORMAT.fullmatch(f'"format":"{found}"') else ""


_WRITTEN_BY: Final = {
    "topology": "read",
    "plan": "plan",
    "calibration": "measure",
    "model": "fit",
    "caps": "caps",
}
"""The command that writes each of our files."""


def _give(format: str) -> str:
    name = format.rpartition("/")[2]
    by = f", which `topocal {_WRITTEN_BY[name]}` writes" if name in _WRITTEN_BY else ""
    return f"give a file of the format {format}{by}"


def decode_document(content: bytes, *, format: str, version: int, file: str) -> dict[str, Any]:
    """A JSON object that names its ``format`` and a ``version`` no newer than ours.

    Raises
    ------
    FormatError
        When it is not JSON, names a field twice, is of another kind, newer than this release, or
        not what its digest says.
    """
    where = Where(file=file)
    document = decode_json(content, file=file, remedy=_give(format))
    kind = document.get("format") if isinstance(document, dict) else None
    if kind != format:
        raise FormatError(
            f"is not a {format} file but {one_line(kind) if kind else 'something else'}",
            where=where,
            remedy=_give(format),
        )
    found = document.get("version")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= version:
        raise FormatError(
            f"has version {one_line(found)} of {format}; this release reads up to {version}",
            where=where,
            remedy="update topocal, or write the file again with this release",
        )
    check_digest(document, where=where, remedy=CHANGED)
    return dict(document)


def topology_to_document(topology: Topology) -> dict[str, Any]:
    """The topology as JSON values.

    Raises
    ------
    TopologyError
        When an attribute has no JSON form, or the name of a field of its record.
    """
    graph = topology.graph
    known = {name: graph.graph[name] for name in _GRAPH_FIELDS if name in graph.graph}
    more = {k: v for k, v in graph.graph.items() if k not in _GRAPH_FIELDS and k not in _OWN_FIELDS}
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": topology.name,
        **{name: to_json_value(value) for name, value in known.items()},
        **({"attributes": to_json_value(more)} if more else {}),
        "nodes": [
            _entry({"id": node, "kind": str(data["kind"])}, data)
            for node, data in graph.nodes(data=True)
        ],
        "links": [
            _entry(
                {
                    "id": key,
                    "tail": tail,
                    "head": head,
                    "kind": str(data["kind"]),
                    "uses": [[resource, weight] for resource, weight in data.get("uses", ())],
                },
                data,
            )
            for tail, head, key, data in graph.edges(keys=True, data=True)
        ],
        "resources": [_record(r) for r in topology.resources.values()],
        "uses": [_record(u) for u in topology.uses],
    }


def _entry(fields: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """``fields`` of a node or link and whatever else its ``data`` says."""
    more = {k: v for k, v in data.items() if k not in ("kind", "uses")}
    taken = sorted(fields.keys() & more.keys())
    if taken:
        raise TopologyError(
            f"{fields['id']} has an attribute called {taken[0]}", remedy="give it another name"
        )
    return fields | {k: to_json_value(v) for k, v in more.items()}


def _record(value: Resource | Use) -> dict[str, Any]:
    found = {
        name: getattr(value, name)
        for name in value.__dataclass_fields__
        if getattr(value, name) is not None
    }
    for name, item in found.items():
        if isinstance(item, tuple):
            found[name] = [c.name if isinstance(c, PathClass) else c for c in item]
        else:
            found[name] = to_json_value(item)
    return found


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
            _add_node(graph, dict(node))
        keys: set[str] = set()
        for link in document["links"]:
            _add_link(graph, dict(link), keys)
        more = document.get("attributes", {})
        known: dict[str, Any] = {n: document[n] for n in _GRAPH_FIELDS if n in document}
        for name in _PAIR_LISTS:
            msgspec.convert(known.get(name, []), list[list[str]])
        for name in ("provenance", "notes"):
            msgspec.convert(known.get(name, []), list[str])
        msgspec.convert(known.get("peer_access"), bool | None)
        graph.graph.update(
            from_json_value(msgspec.convert(more, dict[str, Any])),
            name=msgspec.convert(document["name"], str),
            resources=_resources(document["resources"]),
            uses=[_use(u) for u in document["uses"]],
            **{name: from_json_value(value) for name, value in known.items()},
        )
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        FormatError,
        msgspec.ValidationError,
    ) as error:
        raise FormatError(
            f"damaged topology: {type(error).__name__} {one_line(error)}",
            where=Where(file=file),
            remedy="write it again with topocal read or discover",
        ) from error
    return Topology(graph)


def _add_node(graph: nx.MultiDiGraph, node: dict[str, Any]) -> None:
    name = msgspec.convert(node.pop("id"), str)
    if name in graph:
        raise ValueError(f"node {name} is listed twice")
    kind = NodeKind(node.pop("kind"))
    more = {key: from_json_value(value) for key, value in node.items()}
    graph.add_node(name, kind=kind, **more)


def _add_link(graph: nx.MultiDiGraph, link: dict[str, Any], keys: set[str]) -> None:
    key, tail, head = (msgspec.convert(link.pop(f), str) for f in ("id", "tail", "head"))
    if tail not in graph or head not in graph:
        raise ValueError(f"link {key} joins a node that is not listed")
    if key in keys:
        raise ValueError(f"link {key} is listed twice")
    keys.add(key)
    kind = LinkKind(link.pop("kind"))
    uses = tuple(msgspec.convert(link.pop("uses"), list[tuple[str, float]]))
    more = {name: from_json_value(value) for name, value in link.items()}
    msgspec.convert(more.get("nominal_Bps"), float | None)
    msgspec.convert(more.get("reverse"), str | None)
    graph.add_edge(tail, head, key=key, kind=kind, uses=uses, **more)


def _resources(entries: Any) -> dict[str, Resource]:
    found: dict[str, Resource] = {}
    for entry in entries:
        values = {name: from_json_value(value) for name, value in dict(entry).items()}
        resource = msgspec.convert(values, Resource)
        if resource.id in found:
            raise ValueError(f"resource {resource.id} is listed twice")
        found[resource.id] = resource
    return found


def _use(entry: Any) -> Use:
    values = dict(entry)
    if "path_classes" in values:
        values["path_classes"] = [PathClass[name].value for name in values["path_classes"]]
    return msgspec.convert(values, Use)


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
