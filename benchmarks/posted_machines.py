"""Machines of which many flows at once were posted, and the list of all machines."""

from __future__ import annotations

from typing import Final

from posted_figures import (
    CASES,
    Machine,
    all_to_all,
    asked_of,
    both_ways_in,
    every,
    gives,
    samples_of,
    shifted,
    shifts_in,
    single,
    switches,
    there_and_back,
)
from posted_pairs import bridged_pairs, chipset, one_slow_card, pairs_machines

from topocal.measure.patterns import PatternKind, kind_of
from topocal.measure.samples import Sample
from topocal.topo.readers.registry import read_any

SIXTEEN: Final = (range(4), range(4, 8), range(8, 12), range(12, 16))
"""GPUs of four switches."""


def two_switch() -> Machine:
    """Two independent switches of four GPUs on two root ports."""
    slug = "contend-wrx90-two-switch"
    transfers = samples_of(f"{slug}/transfers.csv")
    return Machine(
        slug=slug,
        title="8x RTX PRO 6000 on two PCIe switches",
        wiring="its nvidia-smi topo -m",
        topology=read_any(CASES / slug / "topology.txt"),
        basis=[*single(transfers), *both_ways_in(f"{slug}/p2p_bi.txt")],
        given="single flows and pairs both ways",
        asked=[*asked_of(transfers, all_to_all), *shifts_in(f"{slug}/stagger.txt")],
        structure={
            "flows that cross switches share one uplink of about 53.5": every(
                *(gives(53.5, *shifted(range(k), 4)) for k in (1, 2, 4))
            ),
            "pairs inside a switch do not": gives(107.5, ("gpu0", "gpu1"), ("gpu2", "gpu3")),
        },
        misfits={
            "all to all, 12 flows of gpu0 and on": "many",
            "all to all, 56 flows of gpu0 and on": "many",
        },
    )


def root_switch() -> Machine:
    """Leaf switches of two GPUs under two root switches."""
    slug = "contend-wrx90-root-switch"
    transfers = samples_of(f"{slug}/transfers.csv")
    crossing = [
        "gpu0->gpu4 + gpu1->gpu2",
        "gpu0->gpu4 + gpu1->gpu5",
        "gpu0->gpu4 + gpu1->gpu6",
        "gpu0->gpu4 + gpu2->gpu6",
        "gpu0->gpu4 + gpu1->gpu5 + gpu2->gpu6 + gpu3->gpu7",
        "16 flows from 4 GPUs",
        *(f"every i to i+{k}, mean rate of a flow" for k in range(1, 8)),
    ]
    return Machine(
        slug=slug,
        title="8x RTX PRO 6000 on four leaf switches under two root switches",
        wiring="its nvidia-smi topo -m, which leads from one root switch to the other through "
        "the processor, where they are joined directly",
        topology=read_any(CASES / slug / "topology.txt"),
        basis=single([*transfers, *samples_of(f"{slug}/p2p_uni.txt")]),
        asked=[
            *asked_of(both_ways_in(f"{slug}/p2p_bi.txt"), lambda _: "each pair both ways"),
            *asked_of(transfers, all_to_all),
            *shifts_in(f"{slug}/stagger.txt"),
        ],
        structure={
            "two flows of one leaf to the other root switch share one x16": gives(
                53.9, ("gpu0", "gpu4"), ("gpu1", "gpu6")
            ),
            "flows of two leaves do not": gives(107.8, ("gpu0", "gpu4"), ("gpu2", "gpu6")),
            "nor does what a leaf sends to the leaf beside it": gives(
                107.0, ("gpu0", "gpu4"), ("gpu1", "gpu2")
            ),
        },
        misfits={
            **dict.fromkeys(crossing, "switch"),
            "all to all, 56 flows of gpu0 and on": "many",
        },
    )


def shared_root() -> Machine:
    """Sixteen GPUs of which eight hang on two ports of one root complex."""
    slug = "contend-host-dma-shared-root"
    transfers = samples_of(f"{slug}/transfers.csv")
    to_a, to_b = ([("cpu0", f"gpu{k}") for k in range(a, a + 8)] for a in (0, 8))

    def family(s: Sample) -> str:
        group = "A" if "gpu0" in s.name else "B"
        if "cpu0" not in s.name:
            return all_to_all(s)
        way = "to" if kind_of(s.pattern) is PatternKind.FAN_OUT else "from"
        return f"host {way} all GPUs of group {group}"

    return Machine(
        slug=slug,
        title="16x RTX PRO 6000: group A on two root complexes, group B on one",
        wiring="built from the post: four switches, two of them on one root complex",
        topology=switches(SIXTEEN, [0, 1, 2, 2], host=True),
        basis=single(
            [
                *transfers,
                *samples_of(f"{slug}/p2p_groupA.txt"),
                *samples_of(f"{slug}/p2p_groupB.txt"),
            ]
        ),
        asked=asked_of(transfers, family),
        structure={
            "host copies to group A pass two uplinks": gives(114.1, *to_a),
            "host copies to group B share one root complex of about 73": gives(73.1, *to_b),
            "host copies from group B do as well": gives(72.9, *((b, a) for a, b in to_b)),
            "pairs of group B do not touch it": gives(109.3, *there_and_back("gpu8", "gpu12")),
        },
        misfits={
            **{f"host {w} all GPUs of group {g}": "host" for w in ("to", "from") for g in "AB"},
            **{f"all to all, 56 flows of gpu{k} and on": "many" for k in (0, 8)},
        },
    )


def four_roots(operation: str) -> Machine:
    """Sixteen GPUs on four switches, each on a root complex of its own."""
    slug = "contend-wrx90-16gpu-roots"
    name = f"{slug}/transfers.csv"
    asked = asked_of(samples_of(name, setup="4root", operation=operation))
    return Machine(
        slug=f"{slug}:{operation}s",
        title=f"16x RTX PRO 6000 on four switches and root complexes, {operation}s",
        wiring="built from the post: a switch of four GPUs on each of four root complexes",
        topology=switches(SIXTEEN, [0, 1, 2, 3]),
        basis=single(samples_of(name, setup="4root", operation="write")),
        given="one pair inside a switch",
        asked=asked,
        structure={
            "flows out of one switch to one other share an uplink of 56.4": gives(
                56.4, *shifted(range(4), 4)
            ),
            "pairs inside a switch do not": gives(112.0, ("gpu0", "gpu2"), ("gpu1", "gpu3")),
        },
        misfits={a.family: "blame" for a in asked},
        blind=True,
    )


def h800() -> Machine:
    """Eight GPUs behind NVSwitches, host memory on two sockets."""
    slug = "nvbw-h800-8gpu"
    samples = samples_of(f"{slug}/nvbandwidth.txt")

    def family(s: Sample) -> str:
        kind = kind_of(s.pattern)
        if "cpu0" not in s.name:
            return {
                PatternKind.BOTH_WAYS: "two GPUs both ways",
                PatternKind.FAN_IN: "all into one GPU",
            }.get(kind, "one GPU to all")
        if kind is PatternKind.BOTH_WAYS:
            return f"host and {'GPU 1' if s.name.endswith('gpu1') else 'another GPU'} both ways"
        return {
            PatternKind.FAN_IN: "host from all GPUs",
            PatternKind.FAN_OUT: "host to all GPUs",
        }.get(kind, "host and all GPUs both ways")

    return Machine(
        slug=slug,
        title="8x H800 behind NVSwitches",
        basis=single(samples),
        asked=asked_of(samples, family),
        structure={
            "a GPU takes in from seven what it takes in from one": gives(
                177.7, *((f"gpu{k}", "gpu0") for k in range(1, 8)), within=0.02
            ),
            "host copies from all GPUs share about 359": gives(
                358.7, *((f"gpu{k}", "cpu0") for k in range(8))
            ),
            "host copies to all GPUs share nothing": gives(
                441.3, *(("cpu0", f"gpu{k}") for k in range(8))
            ),
        },
        misfits={
            "host and another GPU both ways": "duplex",
            "host and GPU 1 both ways": "duplex",
            "host and all GPUs both ways": "host",
            "host from all GPUs": "host",
            "host to all GPUs": "host",
        },
    )


def machines() -> list[Machine]:
    """All that were posted, where their files are here."""
    if not CASES.is_dir():
        return []
    return [
        two_switch(),
        root_switch(),
        shared_root(),
        four_roots("write"),
        four_roots("read"),
        h800(),
        *pairs_machines(),
        one_slow_card(),
        bridged_pairs(),
        chipset(),
    ]
