"""``topocal fit``: capacities from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topocal.options import TopologyOption

__all__ = ["fit"]


def fit(
    files: Annotated[
        list[Path], typer.Argument(help="Measurements, of any kind and number; topologies too.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the model.")
    ] = None,
    topology: TopologyOption = None,
    certify: Annotated[
        str | None,
        typer.Option(
            "--certify", metavar="TIME", help="Prove for so long how near the best it is."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the model as JSON.")] = False,
) -> None:
    """Fit every resource's capacity to measurements.

    Without a topology, groups of endpoints are inferred from the pair table.

        topocal fit pairs.csv fans.csv -o model.json

        topocal fit pairs.csv fans.csv -t topology.json -o model.json
    """
    from dataclasses import replace

    from topocal.console import console, print_json, safe
    from topocal.expected import fitting_s
    from topocal.explaining import sort_inputs
    from topocal.outputs import check_outputs
    from topocal.progress import progress
    from topocal.solve.fit import fit as fit_model
    from topocal.solve.model import model_to_document, write_model
    from topocal.tables import capacity_table, percent
    from topocal.topo.units import parse_seconds

    certify_s = None if certify is None else parse_seconds(certify)
    check_outputs(output, [*files, topology])
    part, notes = sort_inputs(files, topology).whole()
    samples = len(part.measurements.samples)
    expected_s = fitting_s(samples) + (certify_s or 0.0)
    with progress(f"fitting {samples} samples", expected_s=expected_s):
        model = fit_model(part.measurements, part.machine, certify_s=certify_s)
    model = replace(model, notes=(*notes, *model.notes))
    if output is not None:
        write_model(model, output)
    if as_json:
        print_json(model_to_document(model))
        return
    out = console()
    worst = max(model.residuals, key=lambda r: abs(r.error))
    out.print(
        f"{len(model.residuals)} patterns fitted, noise {model.noise:.1%}, "
        f"largest error {percent(worst.error)} ({safe(worst.name)})"
    )
    for note in model.notes:
        out.print(f"note: {safe(note)}")
    for finding in model.findings:
        out.print(f"finding: {safe(finding)}")
    for reason in dict.fromkeys(model.left_out.values()):
        names = ", ".join(n for n, r in model.left_out.items() if r == reason)
        out.print(f"left out {safe(names)}: {safe(reason)}")
    out.print(safe(model.sharing))
    out.print(capacity_table(model, out.width))
    for sentence in model.certificate.text:
        out.print(f"proven: {safe(sentence)}")
    rest = [r for r in model.resources.values() if r.status == "bounded"]
    if rest:
        out.print(f"{len(rest)} more never had to be the bottleneck; the data only bounds them")
    if output is not None:
        out.print(f"wrote {safe(output)}")
