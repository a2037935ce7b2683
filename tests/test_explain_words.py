"""How endpoints, pairs and patterns are named, and what is found between patterns and tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from topocal.measure.importers.figures import alone
from topocal.measure.importers.registry import import_any
from topocal.measure.patterns import bundle, fan_out, peer, relay
from topocal.measure.samples import Measurements, Sample
from topocal.solve.evidence import Concurrent, Evidence, FindingKind, Severity
from topocal.solve.findings_host import find_slow_host_links
from topocal.solve.findings_levels import levels
from topocal.solve.findings_sharing import find_shared
from topocal.solve.groups import infer_topology
from topocal.solve.resource_words import labels_in_words, resources_in_words
from topocal.solve.settings import compare_settings, settings_of
from topocal.solve.words import pairs_in_words, pattern_in_words, ranges, sentence
from topocal.topo.errors import Where
from topocal.topo.flow import Pattern

GB = 1e9
Pair = tuple[str, str]


def among(*numbers: int) -> set[Pair]:
    ends = [f"gpu{n}" for n in numbers]
    return set(itertools.permutations(ends, 2))


def across(left: Iterable[int], right: Iterable[int]) -> set[Pair]:
    forth = {(f"gpu{a}", f"gpu{b}") for a in left for b in right}
    return forth | {p[::-1] for p in forth}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["gpu3", "gpu1", "gpu2"], "gpu1-gpu3"),
        (["gpu1", "gpu2"], "gpu1 and gpu2"),
        (["gpu10", "gpu9", "gpu8", "cpu0"], "cpu0 and gpu8-gpu10"),
        ([], ""),
    ],
)
def test_names_in_a_row_are_a_range(names: list[str], words: str) -> None:
    assert ranges(names) == words


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (among(0, 1), "gpu0<->gpu1"),
        (among(0, 1, 2), "among gpu0-gpu2"),
        (among(0, 1, 2) | among(4, 5), "among gpu0-gpu2 and gpu4<->gpu5"),
        (across([0, 1], [2, 3]), "gpu0 and gpu1 with gpu2 and gpu3"),
        (across([3], [0, 1, 2]), "gpu3 with all others"),
        ({("gpu0", "gpu1")}, "gpu0->gpu1"),
        ({("gpu6", f"gpu{k}") for k in range(3)}, "gpu6 to gpu0-gpu2"),
        (among(0, 1) | {("gpu2", "gpu0")}, "gpu0<->gpu1 and gpu2->gpu0"),
    ],
)
def test_pairs_are_named_by_what_they_are(pairs: set[Pair], words: str) -> None:
    assert pairs_in_words(pairs) == words


def test_patterns_of_many_flows_are_named_by_what_they_are() -> None:
    ends = [f"gpu{k}" for k in range(8)]
    assert pattern_in_words(relay(ends, 1, 1.0)) == "each of gpu0-gpu7 to the next (8 flows)"
    assert (
        pattern_in_words(relay(ends, 3, 1.0)) == "each of gpu0-gpu7 to the one 3 further (8 flows)"
    )
    assert pattern_in_words(fan_out("cpu0", ends, 1.0)) == "cpu0 to each of gpu0-gpu7 (8 flows)"
    assert pattern_in_words(bundle(list(among(*range(4))), 1.0)) == (
        "all to all of gpu0-gpu3 (12 flows)"
    )
    assert sentence("each of gpu0") == "Each of gpu0"
    assert sentence("gpu0 sends") == "gpu0 sends"


def test_like_resources_stand_on_one_line() -> None:
    told = resources_in_words(
        [("gpu0->switch0", 26e9, 3), ("gpu1->switch0", 26e9, 4), ("socket0->socket1", 9e9, 2)]
    )
    assert told == [
        "gpu0 and gpu1->switch0, each: 26 GB/s (7 figures)",
        "socket0->socket1: 9 GB/s (2 figures)",
    ]
    assert labels_in_words(["sent by gpu0", "sent by gpu1", "sent by gpu2"]) == [
        "sent by gpu0-gpu2"
    ]


def test_levels_are_a_step_apart() -> None:
    assert levels([26.0, 26.5, 13.0, 13.2]) == [[1, 0], [3, 2]]
    assert len(levels([1.2**k for k in range(30)])) <= 6


# --- what several transfers share --------------------------------------------------------


def evidence(rates: dict[Pair, float], *figures: tuple[Pattern, float]) -> Evidence:
    samples = [Sample(pattern=peer(a, b, 1.0), seconds=1 / (r * GB)) for (a, b), r in rates.items()]
    return Evidence(
        topology=infer_topology(Measurements.of(samples)),
        pair_rates_Bps={p: r * GB for p, r in rates.items()},
        concurrent=tuple(Concurrent(pattern=p, throughput_Bps=t * GB) for p, t in figures),
        noise=0.01,
    )


def flows(*pairs: tuple[int, int]) -> Pattern:
    return bundle([(f"gpu{a}", f"gpu{b}") for a, b in pairs], 1.0)


FLAT = dict.fromkeys(among(0, 1, 2, 3), 50.0)


def test_an_uplink_shows_in_what_several_pass_in_all() -> None:
    asked = evidence(FLAT, (flows((0, 2), (1, 3)), 50.0), (flows((0, 1), (2, 3)), 100.0))
    (found,) = find_shared(asked)
    assert found.kind is FindingKind.SHARED
    assert found.severity is Severity.WARNING
    assert found.text == (
        "gpu0->gpu2 + gpu1->gpu3 passes 50 GB/s in all, where 100 GB/s would pass if nothing were "
        "shared (one alone reads 50 GB/s). gpu0->gpu1 + gpu2->gpu3 (100 GB/s) does not share it."
    )


def test_ports_alone_are_no_sharing() -> None:
    fan = fan_out("gpu0", ["gpu1", "gpu2"], 1.0)
    assert find_shared(evidence(FLAT, (flows((0, 1), (2, 3)), 98.0), (fan, 50.0))) == []
    assert find_shared(evidence(FLAT)) == []


# --- settings ------------------------------------------------------------------------------


def table(*rows: str, head: str) -> str:
    return "\n".join([head, *rows]) + "\n"


def found(text: str) -> list[str]:
    return [f.text for f in compare_settings(settings_of(import_any(text, file="t.csv"), "t.csv"))]


def test_what_peer_access_changes_is_told() -> None:
    head = "p2p,source,destination,bandwidth_GBps"
    on = [f"on,gpu{a},gpu{b},{r}" for (a, b), r in (((0, 1), 26), ((1, 0), 26))]
    off = [f"off,gpu{a},gpu{b},{r}" for (a, b), r in (((0, 1), 13), ((1, 0), 13))]
    same = [line.replace("13", "26") for line in off]
    slower = [line.replace("13", "52") for line in off]
    (text,) = found(table(*on, *off, head=head))
    assert text.startswith("Everything is 2 times as fast with peer access: one way 26 GB/s for 13")
    (text,) = found(table(*on, *same, head=head))
    assert text.startswith("With and without peer access everything reads alike (26 GB/s)")
    (text,) = found(table(*on, *slower, head=head))
    assert text.startswith("With peer access copies between the cards are slower than without it")
    assert "52 GB/s falls to 26 GB/s on 2 of 2 figures" in text


def test_what_machines_a_table_tells_apart_is_no_finding() -> None:
    rows = [f"{box},gpu0,gpu1,{r}" for box, r in (("a", 25), ("b", 50))]
    assert found(table(*rows, head="box,source,destination,bandwidth_GBps")) == []
    (text,) = found(table(*rows, head="setup,source,destination,bandwidth_GBps"))
    assert "gpu0->gpu1 50 GB/s with setup b, 25 GB/s with setup a: 2 times." in text


def test_pairs_that_gain_by_peer_access_where_others_lose_are_named() -> None:
    head = "p2p,source,destination,bandwidth_GBps"
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    joined = {(0, 1), (1, 0)}
    on = [f"on,gpu{a},gpu{b},{52 if (a, b) in joined else 1}" for a, b in pairs]
    off = [f"off,gpu{a},gpu{b},11" for a, b in pairs]
    texts = [t for t in found(table(*on, *off, head=head)) if "peer access" in t]
    (text,) = texts
    assert "11 GB/s falls to 1 GB/s on 4 of 6 figures" in text
    assert "gpu0–gpu1 gain by it (11 GB/s without, 52 GB/s with)" in text


def of_host(rates_GBps: dict[tuple[str, str], float]) -> list[str]:
    """What copies with the host say, one at a time."""
    rates = {pair: rate * 1e9 for pair, rate in rates_GBps.items()}
    where = Where(file="t.csv")
    samples = [alone(a, b, rate, where=where) for (a, b), rate in rates.items()]
    machine = infer_topology(Measurements.of(samples))
    # A fit without a topology takes all cards to be alike, and their difference for noise.
    evidence = Evidence(topology=machine, pair_rates_Bps=rates, noise=1.0)
    return [f.text for f in find_slow_host_links(evidence)]


def test_one_card_is_slow_with_the_host_both_ways() -> None:
    rates = {("cpu0", "gpu0"): 12.9, ("gpu0", "cpu0"): 13.1}
    (text,) = of_host(rates | {("cpu0", "gpu1"): 3.2, ("gpu1", "cpu0"): 3.3})
    assert text.startswith(
        "gpu1 copies to and from the host at 3.2 to 3.3 GB/s, gpu0 at 12.9 to 13.1 GB/s"
    )
    assert "generation 3 x4 passes as much" in text


def test_a_direction_that_is_slower_on_every_card_is_no_slow_card() -> None:
    rates = {("cpu0", "gpu0"): 12.0, ("gpu0", "cpu0"): 6.0}
    assert of_host(rates | {("cpu0", "gpu1"): 12.2, ("gpu1", "cpu0"): 6.1}) == []


def test_cards_that_differ_one_way_only_are_not_said_to_be_slow_both_ways() -> None:
    rates = {("cpu0", "gpu0"): 12.0, ("gpu0", "cpu0"): 12.0}
    assert of_host(rates | {("cpu0", "gpu1"): 12.0, ("gpu1", "cpu0"): 4.0}) == []
