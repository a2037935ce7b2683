"""Every published measurement file imports, and the figures that are known of it come out.

The files are read where they are; without them the tests are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from topocal.measure.importers.imported import Imported
from topocal.measure.importers.pair_table import both_ways_of
from topocal.measure.importers.registry import IMPORTERS, import_file, sniff_or_none
from topocal.measure.samples import Measurements
from topocal.topo.errors import InputError
from topocal.topo.readers.reader import read_text

CASES = Path(__file__).parents[1].parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the published files are not here")

FILES: dict[str, str] = {
    "alpha-beta-ndv2-dgx2/topo-dgx2-1KB.json": "taccl",
    "alpha-beta-ndv2-dgx2/topo-dgx2-1MB.json": "taccl",
    "alpha-beta-ndv2-dgx2/topo-ndv2-1KB.json": "taccl",
    "alpha-beta-ndv2-dgx2/topo-ndv2-1MB.json": "taccl",
    "alpha-beta-ndv2-dgx2/topo-ndv2-32KB.json": "taccl",
    "contend-host-bothways-a100/bothways.csv": "rate-table",
    "contend-host-dma-shared-root/p2p_groupA.txt": "pair-table",
    "contend-host-dma-shared-root/p2p_groupB.txt": "pair-table",
    "contend-host-dma-shared-root/transfers.csv": "rate-table",
    "contend-shm-uplink-twice/allreduce_1130.csv": "rate-table",
    "contend-wrx90-16gpu-roots/transfers.csv": "rate-table",
    "contend-wrx90-root-switch/p2p_bi.txt": "pair-table",
    "contend-wrx90-root-switch/p2p_uni.txt": "pair-table",
    "contend-wrx90-root-switch/stagger.txt": "shift-rates",
    "contend-wrx90-root-switch/transfers.csv": "rate-table",
    "contend-wrx90-two-switch/p2p_bi.txt": "pair-table",
    "contend-wrx90-two-switch/stagger.txt": "shift-rates",
    "contend-wrx90-two-switch/transfers.csv": "rate-table",
    "gpucopy-superbench-2gpu/gpu_copy.txt": "superbench-copy",
    "host-far-socket-p100/bandwidthTest_far.txt": "bandwidth-test",
    "host-far-socket-p100/bandwidthTest_near.txt": "bandwidth-test",
    "mi250x-frontier-engine-vs-link/hipMemcpyAsync_GPUToGPU.json": "comm-scope",
    "mi250x-frontier-engine-vs-link/implicit_mapped_GPUWrGPU.json": "comm-scope",
    "nvbw-gb300-station/nvbandwidth.txt": "nvbandwidth",
    "nvbw-h800-8gpu/nvbandwidth.txt": "nvbandwidth",
    **{f"old-7gpu-x1-risers/bandwidthTest_gpu{k}.txt": "bandwidth-test" for k in range(7)},
    "old-7gpu-x1-risers/p2p.txt": "p2p",
    **{f"old-azure-m60-vm/bandwidthTest_4gpu_{k}.txt": "bandwidth-test" for k in range(4)},
    "old-azure-m60-vm/p2p_2gpu.txt": "p2p",
    "old-azure-m60-vm/p2p_4gpu.txt": "p2p",
    "p2p-a40-nvlink-pairs-epyc/p2p.txt": "p2p",
    "p2p-straggler-and-small-boxes/p2p_2gpu.txt": "p2p",
    "p2p-straggler-and-small-boxes/p2p_3gpu_a.txt": "p2p",
    "p2p-straggler-and-small-boxes/p2p_3gpu_b.txt": "p2p",
    "p2p-straggler-and-small-boxes/p2p_7gpu.txt": "p2p",
    "phb-hides-chipset-link/pairs.csv": "rate-table",
    "pix-no-p2p-2080ti/nccl_tests.txt": "nccl-tests",
    "pix-no-p2p-2080ti/p2p.txt": "p2p",
    "rbt-7900xtx-no-p2p/rbt.txt": "rocm-bandwidth-test",
    "transferbench-mi250-8gcd/rbt_bidirectional.txt": "rocm-bandwidth-test",
    "transferbench-mi250-8gcd/rbt_h2d.txt": "rocm-bandwidth-test",
    "transferbench-mi250-8gcd/transferbench.txt": "transferbench",
}


def load(name: str) -> Imported:
    return import_file(CASES / name)


def GBps(measured: Measurements) -> dict[str, float]:
    """Median GB/s of each pattern."""
    found: dict[str, list[float]] = {}
    for s in measured.samples:
        found.setdefault(s.name, []).append(s.throughput_Bps / 1e9)
    return {name: float(np.median(values)) for name, values in found.items()}


@pytest.mark.parametrize(("name", "kind"), FILES.items(), ids=FILES.keys())
def test_every_measurement_is_known_by_its_content(name: str, kind: str) -> None:
    found = load(name)
    assert found.kind == kind
    assert found.groups


def test_no_measurement_is_missing_and_no_topology_is_taken_for_one() -> None:
    for path in sorted(CASES.glob("*/*")):
        name = f"{path.parent.name}/{path.name}"
        if path.name == "case.md":
            continue
        found = sniff_or_none(read_text(path))
        assert (found.name if found else None) == FILES.get(name), name


@pytest.mark.parametrize("name", [n for n, kind in FILES.items() if kind != "taccl"])
def test_only_one_importer_but_the_last_resorts_claims_a_file(name: str) -> None:
    text = read_text(CASES / name)
    claims = [i.name for i in IMPORTERS if i.looks_like(text)]
    assert [c for c in claims if c not in ("pair-table", "rate-table")][:1] in ([], [FILES[name]])


FIGURES: dict[str, tuple[str, str | None, Mapping[str, float]]] = {
    "host to a GPU, near": (
        "host-far-socket-p100/bandwidthTest_near.txt",
        None,
        {"cpu0->gpu0": 12.1507, "gpu0->cpu0": 12.8906},
    ),
    "host to a GPU, far": (
        "host-far-socket-p100/bandwidthTest_far.txt",
        None,
        {"cpu0->gpu0": 3.7834, "gpu0->cpu0": 2.5392},
    ),
    "risers, peer access": (
        "old-7gpu-x1-risers/p2p.txt",
        "P2P enabled, unidirectional",
        {"gpu6->gpu0": 0.82, "gpu0->gpu6": 0.73, "gpu3->gpu6": 0.82, "gpu0->gpu3": 0.73},
    ),
    "risers, both ways": (
        "old-7gpu-x1-risers/p2p.txt",
        "P2P enabled, bidirectional",
        {"gpu0<->gpu1": 1.64, "gpu0<->gpu3": 1.315},
    ),
    "risers, host of the wide card": (
        "old-7gpu-x1-risers/bandwidthTest_gpu6.txt",
        None,
        {"cpu0->gpu0": 6.2345, "gpu0->cpu0": 6.4446},
    ),
    "two boards, one way": (
        "old-azure-m60-vm/p2p_4gpu.txt",
        "P2P disabled, unidirectional",
        {"gpu0->gpu2": 5.28, "gpu1->gpu3": 5.30, "gpu0->gpu1": 5.86},
    ),
    "two boards, both ways": (
        "old-azure-m60-vm/p2p_4gpu.txt",
        "P2P disabled, bidirectional",
        {"gpu0<->gpu2": 5.47, "gpu1<->gpu3": 5.47, "gpu0<->gpu1": 10.42},
    ),
    "bridged pairs, what is whole": (
        "p2p-a40-nvlink-pairs-epyc/p2p.txt",
        "P2P enabled, bidirectional",
        {"gpu0<->gpu1": 101.575, "gpu2<->gpu3": 101.60, "gpu0<->gpu4": 39.64},
    ),
    "one slow card": (
        "p2p-straggler-and-small-boxes/p2p_7gpu.txt",
        None,
        {"gpu0<->gpu6": 3.925, "gpu0<->gpu1": 50.73},
    ),
    "a table cut in its last figure": (
        "p2p-straggler-and-small-boxes/p2p_2gpu.txt",
        None,
        {"gpu0->gpu1": 6.60, "gpu0<->gpu1": 12.88},
    ),
    "chipset link": (
        "phb-hides-chipset-link/pairs.csv",
        "a",
        {"gpu1->gpu2": 13.17, "gpu0->gpu1": 6.5, "gpu0->gpu2": 6.5},
    ),
    "no peer access behind one switch": (
        "pix-no-p2p-2080ti/p2p.txt",
        "P2P disabled, bidirectional",
        {"gpu0<->gpu1": 6.11},
    ),
    "no access between two cards": (
        "rbt-7900xtx-no-p2p/rbt.txt",
        None,
        {"cpu0->gpu0": 28.411, "gpu0->cpu0": 29.013, "cpu0<->gpu0": 48.226},
    ),
    "sparse fabric, one way": (
        "transferbench-mi250-8gcd/transferbench.txt",
        "one way, GFX",
        {"gpu0->gpu1": 64.58, "gpu0->gpu6": 47.46, "gpu0->gpu7": 39.97, "gpu0->cpu0": 23.83},
    ),
    "engines hide links": (
        "transferbench-mi250-8gcd/rbt_bidirectional.txt",
        None,
        {"gpu0<->gpu1": 101.458, "gpu0<->gpu6": 101.526, "cpu0<->gpu0": 47.703},
    ),
    "one superchip": (
        "nvbw-gb300-station/nvbandwidth.txt",
        None,
        {"cpu0->gpu0": 359.05, "gpu0->cpu0": 377.15, "cpu0<->gpu0": 347.14},
    ),
    "all GPUs to the host": (
        "nvbw-h800-8gpu/nvbandwidth.txt",
        "all_to_host_memcpy_ce",
        {"cpu0<-gpu0,gpu1,gpu2,gpu3,gpu4,gpu5,gpu6,gpu7": 358.66},
    ),
    "all into one": (
        "nvbw-h800-8gpu/nvbandwidth.txt",
        "all_to_one_write_ce",
        {"gpu1<-gpu0,gpu2,gpu3,gpu4,gpu5,gpu6,gpu7": 177.63},
    ),
    "copy engines of two GPUs": (
        "gpucopy-superbench-2gpu/gpu_copy.txt",
        None,
        {"gpu0->gpu1": 279.287, "gpu0<->gpu1": 531.244, "cpu0<->gpu0": 49.46},
    ),
    "two links of a switch are one uplink": (
        "contend-wrx90-two-switch/transfers.csv",
        "p2p_write",
        {"gpu0->gpu4 + gpu1->gpu5": 54.45, "gpu0->gpu1 + gpu2->gpu3": 107.5},
    ),
    "eight host copies at once": (
        "contend-host-dma-shared-root/transfers.csv",
        "h2d",
        {
            "cpu0->gpu0,gpu1,gpu2,gpu3,gpu4,gpu5,gpu6,gpu7": 114.1,
            "cpu0->gpu8,gpu9,gpu10,gpu11,gpu12,gpu13,gpu14,gpu15": 73.09,
        },
    ),
    "other software, other machine": (
        "contend-wrx90-16gpu-roots/transfers.csv",
        "p2p_write, 4root-old-software",
        {"gpu0->gpu4 + gpu1->gpu8": 13.5, "gpu0->gpu4 + gpu1->gpu5": 52.1},
    ),
    "reads that pass the uplink of writes": (
        "contend-wrx90-16gpu-roots/transfers.csv",
        "p2p_read, 4root",
        {"gpu0->gpu4 + gpu1->gpu5 + gpu2->gpu8 + gpu3->gpu12": 108.1},
    ),
    "both ways of a host link": (
        "contend-host-bothways-a100/bothways.csv",
        "both ways, issue53",
        {"cpu0<->gpu": 36.0},
    ),
    "flat pairs": (
        "contend-wrx90-root-switch/p2p_uni.txt",
        None,
        {"gpu2->gpu5": 56.4, "gpu2->gpu6": 53.7},
    ),
}


@pytest.mark.parametrize(("name", "label", "figures"), FIGURES.values(), ids=FIGURES.keys())
def test_the_figures_that_are_known(
    name: str, label: str | None, figures: Mapping[str, float]
) -> None:
    found = load(name)
    known = GBps(found.best() if label is None else found.select(label))
    assert {k: known.get(k) for k in figures} == {
        k: pytest.approx(v, rel=1e-3) for k, v in figures.items()
    }


def test_what_is_cut_is_named() -> None:
    notes = load("p2p-a40-nvlink-pairs-epyc/p2p.txt").notes
    assert any("row 3" in n and "cut after 5 of 8" in n for n in notes)
    assert any("has no row 4, 5, 6, 7" in n for n in notes)
    assert any(
        "line 16: the last figure" in n
        for n in load("p2p-straggler-and-small-boxes/p2p_2gpu.txt").notes
    )
    assert sum("cut the output" in n for n in load("nvbw-gb300-station/nvbandwidth.txt").notes) == 2


def test_complete_rows_of_the_cut_table() -> None:
    found = load("p2p-a40-nvlink-pairs-epyc/p2p.txt").select("P2P enabled, bidirectional")
    assert len(found.samples) == 3 * 7


def test_costs_of_links_agree_once_their_units_do() -> None:
    ndv2 = [load(f"alpha-beta-ndv2-dgx2/topo-ndv2-{s}.json") for s in ("1KB", "32KB", "1MB")]
    for profile in ndv2:
        double, single, card = profile.groups[0].costs
        assert double.alpha_s == pytest.approx(0.3e-6)
        assert double.capacity_Bps == pytest.approx(43.5e9, rel=0.01)
        assert single.capacity_Bps == pytest.approx(21.7e9, rel=0.01)
        assert card.alpha_s == pytest.approx(2.6e-6)
        assert card.capacity_Bps == pytest.approx(9.5e9, rel=0.01)
        with pytest.raises(InputError):
            profile.best()


def test_an_engine_hides_the_width_of_links() -> None:
    folder = "mi250x-frontier-engine-vs-link"
    expected = {
        "hipMemcpyAsync_GPUToGPU": (
            "copy engine",
            {1: 50.9, 6: 50.9, 7: 50.9, 2: 36.95, 3: 37.55, 4: 37.55, 5: 36.98},
        ),
        "implicit_mapped_GPUWrGPU": (
            "kernel",
            {1: 152.1, 6: 77.2, 7: 71.5, 2: 38.8, 3: 37.6, 4: 37.6, 5: 36.0},
        ),
    }
    for name, (engine, figures) in expected.items():
        found = load(f"{folder}/{name}.json")
        assert found.groups[0].conditions["engine"] == engine
        large = [s for s in found.best().samples if s.pattern.total_bytes == 2**30]
        assert len(large) == 5 * 7
        known = GBps(Measurements.of(large))
        for gpu, figure in figures.items():
            assert known[f"gpu0->gpu{gpu}"] == pytest.approx(figure, rel=2e-3)


def test_one_gpu_of_eight_behaves_differently() -> None:
    found = load("nvbw-h800-8gpu/nvbandwidth.txt")
    both = found.select(
        "host_to_device_bidirectional_memcpy_ce + device_to_host_bidirectional_memcpy_ce"
    )
    back = {s.name: s.pattern.flows[1].size_bytes / s.seconds / 1e9 for s in both.samples}
    assert back["cpu0<->gpu1"] == pytest.approx(50.5)
    assert all(34.2 < rate < 34.8 for name, rate in back.items() if name != "cpu0<->gpu1")
    everyone = found.select(
        "host_to_all_bidirectional_memcpy_ce + all_to_host_bidirectional_memcpy_ce"
    ).samples[0]
    assert everyone.throughput_Bps == pytest.approx((193.04 + 262.47) * 1e9, rel=1e-4)


def test_what_contradicts_itself_or_cannot_be_measured_is_told() -> None:
    assert any(
        "contradicts itself" in n for n in load("gpucopy-superbench-2gpu/gpu_copy.txt").notes
    )
    rbt = load("rbt-7900xtx-no-p2p/rbt.txt")
    assert rbt.no_peer == (("gpu0", "gpu1"), ("gpu1", "gpu0"))
    assert rbt.devices["gpu0"]["bus_id"] == "0000:83:00.0"
    assert "gpu0->gpu1" not in GBps(rbt.best())
    assert len(load("pix-no-p2p-2080ti/p2p.txt").no_peer) == 2
    assert len(load("old-azure-m60-vm/p2p_4gpu.txt").no_peer) == 12


def test_means_of_shifts_keep_their_pattern() -> None:
    for case, total in (("root-switch", 8), ("two-switch", 8)):
        found = load(f"contend-wrx90-{case}/stagger.txt")
        assert len(found.groups[0].readings) == 7
        assert all(
            r.pattern is not None and len(r.pattern.flows) == total
            for r in found.groups[0].readings
        )


def test_a_table_of_both_ways_can_be_said_to_be_one() -> None:
    found = load("contend-wrx90-root-switch/p2p_bi.txt")
    assert any("no title" in n for n in found.notes)
    known = GBps(both_ways_of(found.best()))
    assert len(known) == 28
    assert known["gpu0<->gpu3"] == pytest.approx(104.5)


def test_collectives_are_no_samples() -> None:
    found = load("pix-no-p2p-2080ti/nccl_tests.txt")
    large = [
        r for g in found.groups for r in g.readings if r.what == "all_reduce bus bandwidth at 1 GiB"
    ]
    assert [r.value for r in large] == pytest.approx([4e9, 4e9])
    everyone = [s for s in found.best().samples if s.pattern.total_bytes == 2**30]
    assert {s.name for s in found.best().samples} == {"gpu0<->gpu1"}
    assert len(everyone) == 1


def test_a_sweep_has_its_sizes() -> None:
    found = load("transferbench-mi250-8gcd/rbt_h2d.txt").best()
    assert [s.pattern.total_bytes for s in found.samples] == [1024.0 * 2**k for k in range(20)]
    assert found.samples[0].seconds == pytest.approx(5.4e-6)
    assert found.samples[-1].throughput_Bps == pytest.approx(28.675e9, rel=1e-4)
