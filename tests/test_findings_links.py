"""Findings of links: what passes less than its nominal, and what a file says of its state."""

from __future__ import annotations

from finding_figures import GB, box, evidence, only

from topocal.solve.evidence import (
    FindingKind,
    Severity,
)
from topocal.solve.findings_links import find_slow_links
from topocal.topo.machines import b70, dgx_h100, l40s


def test_a_link_at_half_its_nominal_is_named_with_the_state_it_looks_like() -> None:
    topology = l40s()
    name = next(n for n in topology.resources if n.startswith("gpu3->"))
    nominal = topology.resources[name].nominal_Bps
    assert nominal is not None
    found = only(
        find_slow_links(evidence(topology, {}, fitted={name: 0.46 * nominal})),
        FindingKind.SLOW_LINK,
    )
    assert found.about == (name,)
    assert found.text == (
        f"{name} passes 13.3 GB/s, 46% of its nominal 28.8 GB/s, as one trained down to PCIe "
        "generation 4 x8 or generation 3 x16 would (14.4 GB/s; it should be generation 4 x16)."
    )
    assert found.severity is Severity.SERIOUS
    assert find_slow_links(evidence(topology, {}, fitted={name: 0.85 * nominal})) == []


def test_lost_nvlinks_are_counted() -> None:
    topology = dgx_h100()
    name = next(n for n in topology.resources if n.startswith("gpu0->nvswitch"))
    (found,) = find_slow_links(evidence(topology, {}, fitted={name: 190 * GB}))
    assert found.text.endswith("as 8 of its 18 parallel links would.")


def test_an_unknown_nominal_is_not_judged() -> None:
    topology = b70()
    fitted = dict.fromkeys(topology.resources, 1 * GB)
    assert find_slow_links(evidence(topology, {}, fitted=fitted)) == []


def test_what_a_file_says_of_a_link_is_told_once_per_connection() -> None:
    narrow = box(2, 1, generation=4, width=8, max_width=16, max_generation=4)
    found = find_slow_links(evidence(narrow, {}))
    assert [f.about for f in found] == [("gpu0", "switch0"), ("gpu1", "switch0")]
    assert found[0].text == "The link gpu0–switch0 runs at x8 though x16 is possible."
    assert found[0].severity is Severity.WARNING
    idle = box(2, 1, generation=1, width=16, max_width=16, max_generation=4)
    found = find_slow_links(evidence(idle, {}))
    assert "Idle cards lower the generation" in found[0].text
    assert found[0].severity is Severity.NOTE
    fine = box(2, 1, generation=4, width=16, max_width=16, max_generation=4)
    assert find_slow_links(evidence(fine, {})) == []
