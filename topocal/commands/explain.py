"""``topocal explain``: why a machine is as slow as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from topocal.measure.samples import Measurements
    from topocal.solve.explain import Explanation
    from topocal.topo.topology import Topology

__all__ = ["explain"]


def explain(
    files: Annotated[
        list[Path],
        typer.Argument(help="Measurements, and topology files if there are: told by content."),
    ],
    topology: Annotated[
        str | None,
        typer.Option("-t", "--topology", help="topology.json, or a reference machine such as b70."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", help="For the fewest resources.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what the figures tell about a machine: findings, and the fewest resources that do.

    topocal explain p2p.txt

    topocal explain topo.txt p2p.txt

    topocal explain pairs.csv fans.csv -t b70
    """
    from topocal.console import print_json
    from topocal.solve.explain import explain as explain_machine

    measurements, machine = _sort(files, topology)
    found = explain_machine(measurements, machine, time_limit_s=time_limit)
    if as_json:
        print_json(_document(found))
    else:
        _print(found)


def _sort(files: list[Path], topology: str | None) -> tuple[Measurements, Topology | None]:
    """Measurements, and the topology: the files that a topology reader knows, merged.

    Raises
    ------
    InputError
        When a file is neither, or no file holds measurements.
    """
    from topocal.machine import find_topology
    from topocal.measure.importers.registry import sniff_or_none
    from topocal.measure.load import load
    from topocal.topo.errors import FormatError, InputError
    from topocal.topo.merge import merge
    from topocal.topo.readers.reader import read_text
    from topocal.topo.readers.registry import parse_any

    measured: list[Path] = []
    machines: list[Topology] = [] if topology is None else [find_topology(topology)]
    for path in files:
        text = read_text(path)
        if sniff_or_none(text) is None:
            try:
                machines.append(parse_any(text, file=str(path)))
                continue
            except FormatError:
                # Not a topology: the loader says what is wrong with it as a measurement.
                pass
        measured.append(path)
    if not measured:
        raise InputError(
            "no measurements among the files", remedy="give a table or a tool's output"
        )
    machine = machines[0] if len(machines) == 1 else merge(machines).topology if machines else None
    return load(measured), machine


def _print(found: Explanation) -> None:
    from topocal.console import console, safe

    out, model = console(), found.model
    for note in model.notes:
        out.print(f"note: {safe(note)}")
    for reason in dict.fromkeys(model.left_out.values()):
        names = ", ".join(n for n, r in model.left_out.items() if r == reason)
        out.print(f"left out {safe(names)}: {safe(reason)}")
    out.print(safe(model.sharing) + "\n")
    out.print("[bold]Findings[/bold]" if found.findings else "[bold]No findings[/bold]")
    for finding in found.findings:
        out.print(f"- {safe(finding.severity)}: {safe(finding.text)}")
    for text in model.findings:
        out.print(f"- {safe(text)}")
    if found.fewest is None:
        return
    out.print("\n[bold]The fewest resources that reproduce the figures[/bold]")
    for sentence in found.fewest.sentences:
        out.print(safe(sentence))


def _document(found: Explanation) -> dict[str, Any]:
    from topocal.solve.model import model_to_document

    fewest = found.fewest
    return {
        "findings": [
            {
                "kind": str(f.kind),
                "severity": str(f.severity),
                "about": list(f.about),
                "text": f.text,
                "evidence": [{"name": s.name, "rate_Bps": s.rate_Bps} for s in f.evidence],
            }
            for f in found.findings
        ],
        "fewest": None
        if fewest is None
        else {
            "status": str(fewest.status),
            "resources": [
                {"resource": c.resource, "capacity_Bps": c.capacity_Bps} for c in fewest.chosen
            ],
            "time_shared": list(fewest.time_shared),
            "at_least": fewest.at_least,
            "unique": fewest.unique,
            "sentences": list(fewest.sentences),
        },
        "model": model_to_document(found.model),
    }
