"""Machines whose figures were posted: concurrent ones are predicted from the rest.

What comes out is asserted line by line: within 10 %, or off for a reason that is known
and named.  The posts are read where they are; without them the tests are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
CASES = REPO.parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the posts are not here")

sys.path.insert(0, str(REPO / "benchmarks"))
import posted_figures  # noqa: E402
import posted_machines  # noqa: E402
import public_machines  # noqa: E402

sys.path.remove(str(REPO / "benchmarks"))

MACHINES = {m.slug: m for m in posted_machines.machines()}

SHOWN = {
    "contend-wrx90-two-switch": [
        "flows that cross switches share one uplink of about 53.5",
        "pairs inside a switch do not",
    ],
    "contend-wrx90-root-switch": ["flows of two leaves do not"],
    "nvbw-h800-8gpu": ["a GPU takes in from seven what it takes in from one"],
    "old-7gpu-x1-risers": ["what GPU 6 sends is not held up, what it gets across is"],
    "pix-no-p2p-2080ti": ["both ways pass hardly more than one way"],
    "p2p-straggler-and-small-boxes:7": ["the small card's port is slow, not six pairs"],
    "phb-hides-chipset-link:a": ["GPU 0's own port is the slow one"],
}
"""What the posts establish of a machine's structure and a fit of all figures shows."""


@pytest.mark.parametrize("slug", [s for s, m in MACHINES.items() if m.basis and m.asked])
def test_concurrent_figures_from_single_ones(slug: str) -> None:
    lines = public_machines.evaluate(MACHINES[slug], from_rest=False)
    assert lines
    for line in lines:
        assert line.is_close or line.misfit in posted_figures.REASONS, line


@pytest.mark.heavy
@pytest.mark.parametrize("slug", [s for s, m in MACHINES.items() if m.asked])
def test_concurrent_figures_from_the_rest(slug: str) -> None:
    for line in public_machines.evaluate(MACHINES[slug], from_rest=True):
        assert line.is_close or line.misfit in posted_figures.REASONS, line


def test_two_switches_from_pairs_alone() -> None:
    """Every figure but all-to-all inside a switch, from pairs and the topology."""
    lines = {
        line.family: line
        for line in public_machines.evaluate(MACHINES["contend-wrx90-two-switch"], from_rest=False)
    }
    crossing = {
        "gpu0->gpu4 + gpu1->gpu5": 53.8,
        "gpu0->gpu4 + gpu1->gpu5 + gpu2->gpu6 + gpu3->gpu7": 53.3,
        "16 flows from 4 GPUs": 51.6,
    }
    for family, wanted in crossing.items():
        predicted = lines[family].predicted_GBps
        assert predicted == pytest.approx(wanted, rel=0.06)
    for shift, wanted in enumerate((50.59, 37.89, 25.64, 12.62, 25.70, 37.96, 50.35), start=1):
        predicted = lines[f"every i to i+{shift}, mean rate of a flow"].predicted_GBps
        assert predicted == pytest.approx(wanted, rel=0.05)
    assert not lines["all to all, 12 flows of gpu0 and on"].narrow


def test_an_nvswitch_node_from_pairs_alone() -> None:
    lines = {
        line.family: line
        for line in public_machines.evaluate(MACHINES["nvbw-h800-8gpu"], from_rest=False)
    }
    for family in ("two GPUs both ways", "all into one GPU", "one GPU to all"):
        error = lines[family].error
        assert error is not None
        assert abs(error) < 0.03


def test_full_duplex_pairs_are_predicted_and_staged_ones_are_flagged() -> None:
    for slug in ("p2p-straggler-and-small-boxes:3", "phb-hides-chipset-link:b on"):
        (line,) = public_machines.evaluate(MACHINES[slug], from_rest=False)
        assert line.error is not None
        assert abs(line.error) < 0.03
    for slug in ("p2p-straggler-and-small-boxes:2 off", "phb-hides-chipset-link:b off"):
        (line,) = public_machines.evaluate(MACHINES[slug], from_rest=False)
        assert line.misfit == "duplex"


@pytest.mark.parametrize(("slug", "claims"), SHOWN.items(), ids=SHOWN.keys())
def test_structure_that_the_posts_establish(slug: str, claims: list[str]) -> None:
    found = public_machines.structure(MACHINES[slug])
    assert {c: found[c] for c in claims} == dict.fromkeys(claims, True)


def test_the_page_has_every_machine_and_its_source() -> None:
    text = (REPO / "docs" / "public-machines.md").read_text(encoding="utf-8")
    for machine in MACHINES.values():
        assert f"## {machine.title}\n" in text
        assert f"<{machine.url}>" in text
    assert "| ? |" not in text
    assert str(CASES) not in text


def test_no_family_is_excused_that_is_not_asked() -> None:
    for machine in MACHINES.values():
        asked = {a.family for a in machine.asked}
        assert set(machine.misfits) <= asked, machine.slug
        assert set(machine.misfits.values()) <= set(posted_figures.REASONS)
