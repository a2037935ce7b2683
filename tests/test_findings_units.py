"""Tables whose unit cannot be right."""

from __future__ import annotations

from itertools import permutations

import pytest

from topocal.measure.importers.registry import import_any
from topocal.solve.evidence import Evidence
from topocal.solve.findings_units import find_wrong_unit, unit_between
from topocal.solve.settings import compare_settings, settings_of
from topocal.topo.readers.registry import parse_any

ENDS = ("gpu0", "gpu1", "gpu2", "gpu3")


MACHINE = """\
<system version="1">
  <cpu numaid="0" affinity="00ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
{cards}
  </cpu>
</system>
"""
CARD = """\
    <pci busid="0000:{bus}:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="{k}" sm="80" rank="{k}" gdr="1"/>
    </pci>"""


def texts(factor: float) -> list[str]:
    """Findings on pairs that reach 25 GB/s of 28.8, times a factor."""
    cards = "\n".join(CARD.format(bus=18 + k, k=k) for k in range(4))
    machine = parse_any(MACHINE.format(cards=cards), file="topo.xml")
    rates = dict.fromkeys(permutations(ENDS, 2), 25e9 * factor)
    return [f.text for f in find_wrong_unit(Evidence(topology=machine, pair_rates_Bps=rates))]


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (8.0, "gigabits per second that are called gigabytes"),
        (1000.0, "megabytes per second that are called gigabytes"),
        (1e-3, "gigabytes per second that are called megabytes"),
    ],
)
def test_what_the_links_pass_says_the_unit(factor: float, words: str) -> None:
    (text,) = texts(factor)
    assert words in text


@pytest.mark.parametrize("factor", [1.0, 0.125, 0.02, 1.3])
def test_slow_links_and_caches_are_no_units(factor: float) -> None:
    assert texts(factor) == []


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (8.0, "Gb/s and GB/s"),
        (1 / 7.9, "Gb/s and GB/s"),
        (1000.0, "MB/s and GB/s"),
        (2.0, ""),
        (16.0, ""),
    ],
)
def test_factors_between_units(ratio: float, words: str) -> None:
    assert unit_between(ratio) == words


@pytest.mark.parametrize(("factor", "told"), [(8.0, True), (2.0, False)])
def test_two_files_that_differ_by_a_unit(factor: float, told: bool) -> None:
    tables = []
    for name, times in (("one.csv", 1.0), ("other.csv", factor)):
        rows = "".join(f"{a},{b},{20 * times}\n" for a, b in permutations(ENDS, 2))
        text = f"source,destination,bandwidth_GBps\n{rows}"
        tables += settings_of(import_any(text, file=name), name)
    (found,) = compare_settings(tables)
    assert ("the unit of one of them is likely wrong" in found.text) is told
