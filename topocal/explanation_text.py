"""An explanation for people, and as JSON: the answer first, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from topocal.explaining import Part
    from topocal.solve.evidence import Finding
    from topocal.solve.explain import Explanation
    from topocal.solve.minimum import Minimum
    from topocal.solve.model import Model
    from topocal.topo.topology import Topology

__all__ = [
    "explanation_document",
    "findings_document",
    "of_the_fit",
    "tell_explanations",
    "tell_findings",
]


def tell_explanations(
    found: Sequence[Explanation], parts: Sequence[Part], notes: Sequence[str]
) -> None:
    """Print what was found of each part."""
    from topocal.console import console, safe

    out = console()
    for k, (one, part) in enumerate(zip(found, parts, strict=True)):
        if len(found) > 1:
            out.print(f"{chr(10) * (k > 0)}[bold]== {safe(part.title)} ==[/bold]")
        _tell_one(out, one)
    shown = [
        *notes,
        *dict.fromkeys(n for one in found for n in (*one.model.notes, one.model.sharing)),
    ]
    _tell_notes(out, dict.fromkeys(shown))


def _tell_one(out: Console, found: Explanation) -> None:
    from topocal.console import print_indented, safe

    model = found.model
    out.print("[bold]Measured[/bold]")
    for line in found.overview:
        print_indented(out, line, "- ")
    out.print("\n[bold]Findings[/bold]")
    texts = [(str(f.severity), f.text) for f in found.findings]
    for severity, text in texts:
        print_indented(out, f": {text}", "- ", bold=severity)
    if not texts:
        out.print(f"- {found.quiet}")
    for text in _left_out(model):
        print_indented(out, f"left out of the fit: {text}", "- ")
    for text in of_the_fit(found):
        print_indented(out, text, "- ")
    if found.blind_spot:
        print_indented(out, found.blind_spot, "- ")
    if found.fewest is None and found.not_tried:
        out.print(f"\nThe fewest resources are not looked for: {safe(found.not_tried)}.")
    if found.fewest is not None and (each_its_own := _each_its_own(found.fewest)):
        out.print(f"\n{safe(each_its_own)}")
    elif found.fewest is not None:
        out.print("\n[bold]The fewest resources that reproduce the figures[/bold]")
        if found.blind_spot and found.fewest.chosen:
            out.print(
                "They suffice, and need not be the cause: one transfer at a time cannot tell what "
                "several share from what each has of its own."
            )
        for sentence in found.fewest.sentences:
            out.print(safe(sentence))


_FIGURES_EACH = 2
"""Resources that explain fewer figures each on average are no explanation."""


def _each_its_own(fewest: Minimum) -> str:
    """What is said where as good as every figure needs a resource; empty where fewer explain."""
    count, figures = len(fewest.chosen), len(fewest.explanation)
    if not count or _FIGURES_EACH * count <= figures:
        return ""
    return (
        f"No few resources reproduce the {figures} figures: at least {fewest.at_least} are "
        "needed, so that most have a limit of their own, as direct links and ports have (--json "
        "lists them)."
        if figures > 1
        else "One figure shows no resource that others share."
    )


def of_the_fit(found: Explanation) -> list[str]:
    """What the fit says of itself and no finding says already."""
    told = {f.text for f in found.findings}
    if found.model.fading is not None:
        told.add(found.model.fading.text)  # a finding, or else for a reason none
    explained = any(str(f.kind) in _WHY_UNLIKE for f in found.findings)
    return [
        text
        for text in found.model.findings
        if text not in told and not (explained and text.startswith(_SCATTER))
    ]


_SCATTER = "the figures scatter by "
_WHY_UNLIKE = ("straggler", "slow uplink", "unlike pairs")
"""Findings that say why figures differ which a fit without a topology takes to be alike."""

_LEFT_OUT_SHOWN = 3


def _left_out(model: Model) -> list[str]:
    """Each reason once, with what it is of; a few of many."""
    found = []
    for reason in dict.fromkeys(model.left_out.values()):
        names = [n for n, r in model.left_out.items() if r == reason]
        shown = ", ".join(names[:_LEFT_OUT_SHOWN])
        more = f" and {len(names) - _LEFT_OUT_SHOWN} more" if len(names) > _LEFT_OUT_SHOWN else ""
        found.append(f"{shown}{more}: {reason}")
    if len(found) > _LEFT_OUT_SHOWN:
        rest = len(found) - _LEFT_OUT_SHOWN
        found[_LEFT_OUT_SHOWN:] = [f"and {rest} more, for reasons like these"]
    return found


def _tell_notes(out: Console, notes: Sequence[str] | dict[str, None]) -> None:
    from topocal.console import print_indented

    if notes:
        out.print("\n[bold]Notes[/bold]")
    for note in notes:
        print_indented(out, note, "- ")


def tell_findings(
    findings: Sequence[Finding], machine: Topology | None, notes: Sequence[str]
) -> None:
    """Print findings where there is no model: collectives, costs, a topology alone."""
    from topocal.console import console, print_indented
    from topocal.solve.structure import structure

    out = console()
    if machine is not None:
        out.print("[bold]The machine[/bold]")
        for line in structure(machine):
            print_indented(out, line, "- ")
        out.print()
    out.print("[bold]Findings[/bold]")
    for f in findings:
        print_indented(out, f": {f.text}", "- ", bold=str(f.severity))
    if not findings:
        nothing = "nothing that the topology alone shows; give measurements of its transfers"
        if machine is None:
            nothing = "nothing that these figures show by themselves"
        out.print(f"- {nothing}")
    _tell_notes(out, dict.fromkeys(notes))


def findings_document(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as JSON."""
    return [
        {
            "kind": str(f.kind),
            "severity": str(f.severity),
            "about": list(f.about),
            "text": f.text,
            "evidence": [{"name": s.name, "rate_Bps": s.rate_Bps} for s in f.evidence],
        }
        for f in findings
    ]


def explanation_document(found: Explanation) -> dict[str, Any]:
    """An explanation as JSON."""
    from topocal.solve.model import model_to_document

    return {
        "measured": list(found.overview),
        "findings": findings_document(found.findings),
        "blind_spot": found.blind_spot,
        "fewest": None if found.fewest is None else _fewest_document(found.fewest),
        "model": model_to_document(found.model),
    }


def _fewest_document(fewest: Minimum) -> dict[str, Any]:
    return {
        "status": str(fewest.status),
        "resources": [
            {"resource": c.resource, "capacity_Bps": c.capacity_Bps} for c in fewest.chosen
        ],
        "time_shared": list(fewest.time_shared),
        "at_least": fewest.at_least,
        "unique": fewest.unique,
        "sentences": list(fewest.sentences),
    }
