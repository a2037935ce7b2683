"""``topocal read``: what other tools print about a machine, as topology.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topocal.completing import choices
from topocal.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topocal.topo.merge import Merged
    from topocal.topo.topology import Topology

__all__ = ["read"]

_MOST_ENDPOINTS = 2_000
"""Routes of all pairs are counted up to so many endpoints: beyond, they take too long."""

_KIND_WORDS = {
    "gpu": ("GPU", "GPUs"),
    "nic": ("NIC", "NICs"),
    "cpu": ("CPU", "CPUs"),
    "memory": ("memory node", "memory nodes"),
    "pcie-switch": ("PCIe switch", "PCIe switches"),
    "host-bridge": ("host bridge", "host bridges"),
    "socket": ("socket", "sockets"),
    "nvswitch": ("fabric switch", "fabric switches"),
    "net-switch": ("network switch", "network switches"),
    "group": ("group", "groups"),
}


def _kinds() -> list[str]:
    from topocal.topo.readers.registry import READERS

    return [reader.name for reader in READERS]


def read(
    files: Annotated[
        list[Path],
        typer.Argument(help="Outputs of tools about one machine; - for standard input."),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="FORMAT",
            autocompletion=choices(_kinds),
            help="What the files are, if not told by content.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write topology.json."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read what other tools print about a machine.

    The kind of each file is told by its content; gzip is unpacked.  Several files
    of one machine are merged; where they disagree, both sides are printed.

        topocal read topo.xml -o topology.json

        topocal read topo-m.txt lspci.txt topo.xml -o topology.json

        nvidia-smi topo -m | topocal read -

    docs/topology.md lists what can be read.
    """
    from topocal.console import print_json
    from topocal.outputs import check_outputs
    from topocal.topo.io import write_topology
    from topocal.topo.merge import merge

    if output is not None:
        _refuse_to_overwrite(files, output)
    check_outputs(output)
    topologies = [_read_one(path, kind) for path in files]
    merged = merge(topologies, [_called(path) for path in files])
    if output is not None:
        write_topology(merged.topology, output)
    if as_json:
        print_json(_document(files, topologies, merged, output))
    else:
        _print(files, topologies, merged, output)


def _called(path: Path) -> str:
    from topocal.topo.errors import file_words, printable

    return printable(file_words(path.name))


def _refuse_to_overwrite(files: Sequence[Path], output: Path) -> None:
    """A tool's output is not replaced by what was read from it; topology.json may be."""
    from topocal.topo.errors import InputError, Where
    from topocal.topo.files import read_limited
    from topocal.topo.io import FORMAT

    for path in files:
        if _are_one_file(path, output) and FORMAT.encode() not in read_limited(path, 65_536):
            raise InputError(
                "would be overwritten", where=Where(file=str(path)), remedy="choose another -o"
            )


def _are_one_file(one: Path, other: Path) -> bool:
    if one == other:
        return True
    try:
        return str(one) != "-" and one.samefile(other)
    except OSError:
        return False


def _read_one(path: Path, kind: str | None) -> Topology:
    from topocal.topo.errors import FormatError
    from topocal.topo.readers.registry import read_any

    try:
        return read_any(path, kind=kind)
    except FormatError as error:
        if kind is None and str(path) != "-":
            _tell_measurement(path, error)
        raise


def _tell_measurement(path: Path, error: Exception) -> None:
    """Say so where a file that is no topology is a measurement.

    Raises
    ------
    FormatError
        When it is one.
    """
    from topocal.measure.importers.registry import sniff_or_none
    from topocal.topo.errors import FormatError, TopocalError, Where
    from topocal.topo.readers.reader import read_text
    from topocal.topo.readers.registry import READERS

    try:
        text = read_text(path)
    except TopocalError:
        return
    damaged = any(reader.looks_like(text) for reader in READERS)
    found = None if damaged else sniff_or_none(text)
    if found is not None:
        raise FormatError(
            f"is a measurement ({found.title}) and no topology",
            where=Where(file=str(path)),
            remedy="give it to topocal explain or topocal fit",
        ) from error


def _counts(topology: Topology) -> dict[str, int]:
    """Nodes of each kind that there are, endpoints first."""
    from topocal.topo.resource import NodeKind

    kinds = [kind for _, kind in topology.graph.nodes(data="kind")]
    return {str(kind): kinds.count(kind) for kind in NodeKind if kind in kinds}


def _class_counts(topology: Topology) -> dict[str, int]:
    """Pairs of GPUs (of all endpoints where there are none) by path class, near to far."""
    import numpy as np

    from topocal.topo.resource import PathClass

    if len(topology.accelerators or topology.endpoints) > _MOST_ENDPOINTS:
        return {}
    routes = topology.routes()
    n = len(routes.endpoints)
    codes = routes.path_class[np.triu_indices(n, k=1)]
    counts = np.bincount(codes.astype(np.int64), minlength=len(PathClass))
    return {c.name: int(counts[c]) for c in PathClass if counts[c]}


def _unknown_links(topology: Topology) -> tuple[int, int]:
    """Links without a nominal capacity, and all links."""
    links = topology.links.values()
    return sum(link.nominal_Bps is None for link in links), len(links)


def _document(
    files: Sequence[Path], topologies: Sequence[Topology], merged: Merged, output: Path | None
) -> dict[str, Any]:
    from topocal.topo.errors import printable
    from topocal.topo.io import topology_to_document

    unknown, links = _unknown_links(merged.topology)
    return {
        "files": [
            {
                "file": printable(path),
                "read_as": topology.graph.graph["provenance"],
                "nodes": _counts(topology),
                "notes": topology.graph.graph["notes"],
            }
            for path, topology in zip(files, topologies, strict=True)
        ],
        "notes": list(merged.notes),
        "contradictions": [
            {"about": c.about, "what": c.what, "evidence": list(c.evidence)}
            for c in merged.contradictions
        ],
        "nodes": _counts(merged.topology),
        "path_classes": _class_counts(merged.topology),
        "links": links,
        "links_without_nominal": unknown,
        "output": None if output is None else printable(output),
        "topology": topology_to_document(merged.topology),
    }


def _print(
    files: Sequence[Path], topologies: Sequence[Topology], merged: Merged, output: Path | None
) -> None:
    from rich.text import Text

    from topocal.console import console
    from topocal.topo.errors import file_words, printable

    out = console()

    def line(text: str, *, style: str = "", indent: int = 0) -> None:
        # Text, because file names may hold brackets, which Rich would take for markup.
        # One line each, however long: a terminal wraps them, and a pipe need not.
        out.print(Text(" " * indent + printable(text), style=style), soft_wrap=True)

    for path, topology in zip(files, topologies, strict=True):
        line(file_words(path), style="bold")
        for source in topology.graph.graph["provenance"]:
            line(f"read as {source.partition(': ')[2] or source}", indent=2)
        line(_words(_counts(topology)), indent=2)
        for note in topology.graph.graph["notes"]:
            line(f"note: {note}", indent=2)
    if merged.contradictions:
        number = len(merged.contradictions)
        line(f"{number} contradiction{'s' if number > 1 else ''}", style="bold")
        for contradiction in merged.contradictions:
            line(f"- {contradiction}", indent=2)
    elif len(files) > 1:
        line("the files do not contradict each other", style="bold")
    summary = [_words(_counts(merged.topology))] if len(files) > 1 else []
    summary += [f"note: {note}" for note in merged.notes]
    if classes := _class_counts(merged.topology):
        what = "pairs of GPUs" if len(merged.topology.accelerators) > 1 else "pairs of endpoints"
        summary.append(f"{what}: " + ", ".join(f"{n} {name}" for name, n in classes.items()))
    unknown, links = _unknown_links(merged.topology)
    if unknown:
        summary.append(f"nominal capacity unknown for {unknown} of {links} links")
    if output is not None:
        summary.append(f"written to {output}")
    if summary:
        line("machine", style="bold")
    for text in summary:
        line(text, indent=2)


def _words(counts: dict[str, int]) -> str:
    texts = []
    for kind, number in counts.items():
        one, many = _KIND_WORDS.get(kind, (kind, kind))
        texts.append(f"{number} {one if number == 1 else many}")
    return ", ".join(texts) or "nothing"
