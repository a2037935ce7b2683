"""What is known of every published machine comes out of the explanation of its figures.

For each case: the files that a user would give together, the part of the explanation that is
meant, and words that its text must have, findings and overview together; and words that it
must not have, where a wrong answer is near.  The files are read where they are; without them
the tests are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from topocal.explaining import Inputs, sort_inputs
from topocal.explanation_text import of_the_fit
from topocal.measure.importers.registry import sniff_or_none
from topocal.solve.explain import Explanation, explain, find_in_settings
from topocal.solve.findings_topology import find_in_topology
from topocal.topo.readers.reader import read_text

CASES = Path(__file__).parents[1].parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the published files are not here")


@dataclass(frozen=True)
class Case:
    """What is given, and what is known.

    Attributes
    ----------
    files
        In the case's folder.
    says
        Words that must be in the answer.
    never
        Words that must not be.
    part
        Which part, by its title; the first where empty.
    """

    files: tuple[str, ...]
    says: tuple[str, ...]
    never: tuple[str, ...] = ()
    part: str = ""


def case(files: str, *says: str, never: tuple[str, ...] = (), part: str = "") -> Case:
    """Files of one folder, written as they would be on the command line."""
    folder, *names = files.split()
    return Case(tuple(f"{folder}/{n}" for n in names), says, never, part)


KNOWN: dict[str, Case] = {
    "both ways the host's writes win": case(
        "contend-host-bothways-a100 topology.txt bothways.csv",
        "cpu0->gpu falls to 11 GB/s (alone 25 GB/s)",
        "the other direction keeps 25 GB/s",
        "36 GB/s in all",
        "all_gpus_both_ways_GBps of h2d 5.5 GB/s",
    ),
    "and on the other machine": case(
        "contend-host-bothways-a100 bothways.csv",
        "cpu0->gpu falls to 12.5 GB/s (alone 25.5 GB/s)",
        "keeps 24 GB/s",
        part="bothways.csv (machine issue11)",
    ),
    "identical pairs are blind": case(
        "contend-host-dma-shared-root p2p_groupB.txt",
        "56 pairs, one at a time: 56.3 GB/s",
        "shows only where several run at once",
        never=("warning", "serious"),
    ),
    "eight host copies at once tell the roots apart": case(
        "contend-host-dma-shared-root p2p_groupA.txt p2p_groupB.txt transfers.csv",
        "cpu0 to each of gpu0-gpu7 (8 flows) 114 GB/s and cpu0 to each of gpu8-gpu15 (8 flows) "
        "73.1 GB/s in all",
        "The ways of gpu8-gpu15 share more than those of the others, which no single copy shows",
        "each of gpu8-gpu15 to cpu0 (8 flows) 72.9 GB/s",
        "gpu0-gpu3 to gpu4-gpu7 (or gpu8-gpu11 to gpu12-gpu15) share something that passes 56.4",
        never=("every further flow",),
    ),
    "near is slower than far without peer access": case(
        "contend-shm-uplink-twice topology_1130.txt allreduce_1130.csv",
        "24 GB/s over gpu0-gpu3 and 35 GB/s over gpu0, gpu1, gpu6 and gpu7 (0.69 times)",
        "near is slower than far",
        "Peer access is off",
    ),
    "writes stop at the source's uplink, whatever the root": case(
        "contend-wrx90-16gpu-roots transfers.csv",
        "gpu0-gpu3 to gpu4-gpu9 and gpu12 share something that passes 53.1 to 56.4 GB/s in all, "
        "however many flows",
        "gpu0->gpu2 + gpu1->gpu3 (112 GB/s) does not share it",
        "84.5 GB/s by reads, 56.4 GB/s by writes",
        "13.5 GB/s",
        "old-software",
        "108 GB/s with setup 4root",
    ),
    "a flat matrix says nothing of sharing": case(
        "contend-wrx90-root-switch topology.txt p2p_uni.txt",
        "PIX 54.2 to 55.6 GB/s; PXB 54.1 to 55.9 GB/s; NODE 53.7 to 56.4 GB/s",
        "shows only where several run at once",
        never=("warning", "serious"),
    ),
    "sums of both directions are known as such": case(
        "contend-wrx90-root-switch p2p_bi.txt p2p_uni.txt",
        "28 pairs, both ways at once: 103 to 104 GB/s in all",
        never=("another machine", "disagree"),
    ),
    "two cards of a leaf share one way to the other switch": case(
        "contend-wrx90-root-switch topology.txt p2p_bi.txt p2p_uni.txt stagger.txt transfers.csv",
        "gpu0 and gpu1 to gpu4-gpu6 share something that passes 53.9 to 54.5 GB/s in all",
        "gpu0->gpu4 + gpu2->gpu6 (108 GB/s)",
        "It is no link of the topology: bridge0->socket0",
        "51.5 GB/s at +1",
        "25.6 GB/s at +4",
        "+N and its mirror agree",
    ),
    "one uplink of each switch": case(
        "contend-wrx90-two-switch topology.txt p2p_bi.txt stagger.txt transfers.csv",
        "gpu0-gpu3 to gpu4-gpu7 share something that passes 51.6 to 54.4 GB/s in all, however many "
        "flows",
        "2 flows pass 53.1 to 54.4 GB/s, 4 flows pass 53.3 GB/s and 16 flows pass 51.6 GB/s",
        "gpu0->gpu1 + gpu2->gpu3 (108 GB/s) does not share it",
        "all to all of gpu0-gpu7 (56 flows) 168 GB/s",
        "the busiest link carries 1 at +1, 2 at +2, 3 at +3, 4 at +4",
        never=("disagree", "scatter"),
    ),
    "an engine's limit and a fan that contradicts its flows": case(
        "gpucopy-superbench-2gpu gpu_copy.txt",
        "531 GB/s by copy engines, 440 GB/s by a kernel",
        "259 GB/s (pairs one way, write, kernel) and 55.7 GB/s (all at once, write, kernel)",
        "4 pairs with the host, both ways at once: 49.4 GB/s in all",
        "9.31 GB/s by a kernel",
    ),
    "host memory on another socket": case(
        "host-far-socket-p100 topology.txt bandwidthTest_near.txt bandwidthTest_far.txt",
        "3.2 to 5.1 times as fast in bandwidthTest_near.txt",
        "12.2 to 12.9 GB/s for 2.54 to 3.78 GB/s in bandwidthTest_far.txt",
        "the slower copies cross the link between them",
    ),
    "a copy engine hides the widths of links": case(
        "mi250x-frontier-engine-vs-link hipMemcpyAsync_GPUToGPU.json implicit_mapped_GPUWrGPU.json",
        "gpu0->gpu1 152 GB/s by a kernel, 50.9 GB/s by copy engines",
        "that is the copy engine's own limit, not the links'",
        never=("wrong or it is not steady",),
    ),
    "which kernels show": case(
        "mi250x-frontier-engine-vs-link implicit_mapped_GPUWrGPU.json",
        "152 GB/s (gpu0->gpu1)",
        "36 to 38.9 GB/s (gpu0 to gpu2-gpu5)",
        "about 4, 2 and 1 times the least, as so many links do",
    ),
    "one memory carries both directions": case(
        "nvbw-gb300-station nvbandwidth.txt",
        "cpu0<->gpu0, both directions at once, passes 347 GB/s, 0.98 times what one way passes",
        "that is the memory, or the way to it",
    ),
    "host copies of eight cards": case(
        "nvbw-h800-8gpu nvbandwidth.txt",
        "gpu0 and gpu2-gpu7 to cpu0 fall to 34.3 to 34.7 GB/s (alone 55.1 GB/s)",
        "gpu1 does not give way",
        "Each of gpu0-gpu7 to cpu0 (8 flows) passes 359 GB/s in all",
        "cpu0 to each of gpu0-gpu7 (8 flows) passes 441 GB/s: the other direction shares nothing",
        "262 GB/s of 441 GB/s from the host, 193 GB/s of 359 GB/s to the host",
        "176 GB/s",
    ),
    "narrow risers": case(
        "old-7gpu-x1-risers topology.txt p2p.txt",
        "PIX 810 to 820 MB/s; PHB 730 to 820 MB/s",
        "PCIe generation 3 x1",
        "gpu6 to gpu0-gpu2 read 820 MB/s, where the others read 730 MB/s",
        "gpu0-gpu2 with gpu3-gpu5 (9 of 21 pairs) pass 1.80 to 1.81 times one way",
    ),
    "cards that all say they are the first": case(
        "old-7gpu-x1-risers " + " ".join(f"bandwidthTest_gpu{k}.txt" for k in range(7)),
        "6.23 GB/s cpu0->gpu6; 763 MB/s cpu0 to gpu0-gpu5",
        never=("wrong or it is not steady",),
    ),
    "two halves of one board, though the topology is flat": case(
        "old-azure-m60-vm topology_4gpu.txt p2p_4gpu.txt",
        "gpu0<->gpu2 and gpu1<->gpu3 (2 of 6 pairs) pass 5.47 to 5.53 GB/s, 1.04 to 1.05 times",
        "no peer access",
        "twice, up and down",
    ),
    "a pair that is one board": case(
        "old-azure-m60-vm topology_2gpu.txt p2p_2gpu.txt",
        "gpu0<->gpu1, both directions at once, passes 5.48 GB/s, 1.04 times",
    ),
    "bridged pairs, one socket, the other": case(
        "p2p-a40-nvlink-pairs-epyc p2p.txt",
        "102 GB/s both ways (gpu0<->gpu1 and gpu2<->gpu3)",
        "50.2 GB/s both ways (gpu0 and gpu1 with gpu2 and gpu3)",
        "39.2 to 41.5 GB/s both ways (gpu0-gpu2 with gpu4-gpu7)",
        "for 19.2 to 20.5 GB/s without peer access",
    ),
    "one slow card and not six slow pairs": case(
        "p2p-straggler-and-small-boxes p2p_7gpu.txt",
        "gpu6 is slow with every partner: 3.93 GB/s both ways with each of 6",
        "others read 50.2 to 51.1 GB/s both ways",
        "generation 4 x1 or generation 3 x2",
        never=("near is slower",),
    ),
    "a cap that peer access lifts": case(
        "p2p-straggler-and-small-boxes p2p_3gpu_a.txt",
        "1.6 times as fast with peer access: both ways 41.4 GB/s for 25.6 to 26 GB/s",
    ),
    "full duplex": case(
        "p2p-straggler-and-small-boxes p2p_3gpu_b.txt",
        "25.8 to 26.3 GB/s",
        "50.7 to 51.7 GB/s in all",
        never=("warning", "serious", "not 2 times"),
    ),
    "a narrow link, and staging": case(
        "p2p-straggler-and-small-boxes p2p_2gpu.txt",
        "12.9 GB/s with peer access, 8.66 GB/s without peer access",
        "generation 4 x4",
    ),
    "boxes are not mixed": case(
        "p2p-straggler-and-small-boxes p2p_2gpu.txt p2p_3gpu_a.txt p2p_7gpu.txt",
        "gpu6 is slow with every partner",
        never=("wrong or it is not steady",),
        part="p2p_7gpu.txt",
    ),
    "the chipset's port": case(
        "phb-hides-chipset-link pairs.csv",
        "gpu0 is slow with every partner: 6.5 GB/s with each of 2",
        "others read 13.2 GB/s",
        "2.4 to 3.2 times as fast with peer access",
        "gpu0<->gpu1 54.2 GB/s for 16.8 GB/s",
    ),
    "an uplink crossed twice": case(
        "pix-no-p2p-2080ti topology.txt p2p.txt",
        "passes 6.1 GB/s, 1.07 times what one way passes alone",
        "no peer access",
        "twice, up and down",
    ),
    "collectives beside it": case(
        "pix-no-p2p-2080ti nccl_tests.txt",
        "all_reduce bus bandwidth 4 GB/s at 128 MiB",
        never=("reduce bus bandwidth 2", "PB/s", "TB/s"),
    ),
    "host links of two cards": case(
        "rbt-7900xtx-no-p2p rbt.txt",
        "2 copies from the host, one at a time: 28.4 GB/s",
        "2 copies to the host, one at a time: 29 GB/s",
        "pass 1.69 to 1.70 times one way in all, not 2 times",
        never=("gpu0->gpu1", "gpu0<->gpu1"),
    ),
    "a sparse fabric": case(
        "transferbench-mi250-8gcd transferbench.txt",
        "64.6 to 66.5 GB/s (gpu0<->gpu1, gpu2<->gpu3, gpu4<->gpu5 and gpu6<->gpu7)",
        "gpu0<->gpu6",
        "16 copies from the host, one at a time: 14.8 to 17.5 GB/s",
        "16 copies to the host, one at a time: 23.3 to 24.4 GB/s",
        never=("cpu0 is slow with every partner",),
    ),
    "engines cap, and sockets are near and far": case(
        "transferbench-mi250-8gcd rbt_bidirectional.txt",
        "47.6 GB/s both ways (cpu0 with gpu0-gpu3 and cpu1 with gpu4-gpu7)",
        "36.5 to 38.4 GB/s both ways (cpu0 with gpu4-gpu7 and cpu1 with gpu0-gpu3)",
        "101 GB/s both ways",
    ),
    "costs agree once their units do": case(
        "alpha-beta-ndv2-dgx2 topo-ndv2-1KB.json topo-ndv2-32KB.json topo-ndv2-1MB.json",
        "class 1 of 2 300 ns + 23 us per MB (43.5 GB/s)",
        "class 2 of 2 300 ns + 46 us per MB (21.7 GB/s)",
        "network card 2.6 us + 105 us per MB (9.53 GB/s)",
        "agree once their units do",
        "One network card serves 8 GPUs: k flows at once to other nodes share 9.53 GB/s",
    ),
    "a chunk's cost": case(
        "alpha-beta-ndv2-dgx2 topo-ndv2-1KB.json",
        "A chunk of 1 kB takes 323 ns over GPU links, class 1 of 2 (93% start-up)",
        "start-up",
    ),
    "a card without a fabric": case(
        "topo-b200-lost-nvlink topology.txt",
        "gpu2 has no fabric link to any other card (NODE or SYS instead)",
    ),
}


def answered(known: Case) -> tuple[str, Inputs]:
    """All sentences of the explanation of the part that is meant."""
    inputs = sort_inputs([CASES / name for name in known.files], None)
    more = find_in_settings(inputs.settings, inputs.machine)
    if not inputs.parts:
        found = more + (find_in_topology(inputs.machine) if inputs.machine else [])
        return "\n".join(f"{f.severity}: {f.text}" for f in found), inputs
    part = next((p for p in inputs.parts if p.title == known.part), inputs.parts[0])
    first = part is inputs.parts[0]
    one: Explanation = explain(
        part.measurements,
        part.machine,
        no_peer=part.no_peer,
        also=more if first or not known.part else (),
        time_limit_s=0.0,
    )
    texts = [*one.overview, *(f"{f.severity}: {f.text}" for f in one.findings), one.blind_spot]
    return "\n".join([*texts, *of_the_fit(one)]), inputs


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN.keys())
def test_what_is_known_comes_out(known: Case) -> None:
    text, _ = answered(known)
    for words in known.says:
        assert words in text, text
    for words in known.never:
        assert words not in text, text


def test_every_measurement_is_in_the_table() -> None:
    asked = {name for known in KNOWN.values() for name in known.files}
    measured = {
        f"{path.parent.name}/{path.name}"
        for path in CASES.glob("*/*")
        if path.name != "case.md" and sniff_or_none(read_text(path)) is not None
    }
    # Of profiles and cards alike, one stands for all.
    alike = ("topo-dgx2", "bandwidthTest_4gpu", "rbt_h2d")
    left = {n for n in measured - asked if not n.split("/")[1].startswith(alike)}
    assert left == set()


def _measured(folder: Path) -> list[Path]:
    files = [p for p in sorted(folder.iterdir()) if p.name != "case.md"]
    return [p for p in files if sniff_or_none(read_text(p)) is not None]


@pytest.mark.parametrize(
    "measured",
    [
        pytest.param(found, id=folder.name)
        for folder in sorted(CASES.glob("*"))
        if folder.is_dir() and (found := _measured(folder))
    ],
)
def test_any_files_of_a_case_together_are_explained(measured: list[Path]) -> None:
    inputs = sort_inputs(measured, None)
    assert inputs.parts or find_in_settings(inputs.settings, None)
    for part in inputs.parts:
        assert part.measurements.samples
        assert part.title
