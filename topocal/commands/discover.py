"""``topocal discover``: this machine as topology.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topocal.options import AsJson

__all__ = ["discover"]


def discover(
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write topology.json."),
    ] = None,
    sysfs: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY", help="A copy of another machine's /sys, instead of this one's."
        ),
    ] = Path("/sys"),
    as_json: AsJson = False,
) -> None:
    """Describe this machine: GPUs, NICs, PCIe switches, sockets and memory.

    Reads sysfs, and NVIDIA's management library where the module pynvml is
    installed.  Needs no root and no accelerator; what it did not find, it says.

        topocal discover -o topology.json

        topocal discover --sysfs copied/sys --json
    """
    from topocal.console import console, print_json
    from topocal.outputs import check_outputs
    from topocal.topo.discover import discover as discover_machine
    from topocal.topo.errors import printable
    from topocal.topo.io import topology_to_document, write_topology
    from topocal.topo.resource import NodeKind

    check_outputs(output)
    topology = discover_machine(sysfs)
    if output is not None:
        write_topology(topology, output)
    kinds = [kind for _, kind in topology.graph.nodes(data="kind")]
    counts = {str(kind): kinds.count(kind) for kind in NodeKind if kind in kinds}
    if as_json:
        print_json(
            {
                "output": None if output is None else printable(output),
                "nodes": counts,
                "notes": topology.graph.graph["notes"],
                "topology": topology_to_document(topology),
            }
        )
        return
    from rich.text import Text

    out = console()
    lines = [", ".join(f"{n} {kind}" for kind, n in counts.items())]
    for gpu in topology.accelerators:
        data = topology.graph.nodes[gpu]
        words = [gpu, str(data.get("bus_id", "")), str(data.get("model", ""))]
        lines.append("  ".join(w for w in words if w))
    lines += [f"note: {note}" for note in topology.graph.graph["notes"]]
    if output is not None:
        lines.append(f"written to {output}")
    out.print(Text(printable(topology.name), style="bold"), soft_wrap=True)
    for line in lines:
        out.print(Text(f"  {printable(line)}"), soft_wrap=True)
