"""A short, seeded run of the fuzzers of tests/fuzz, and what they found."""

from __future__ import annotations

import importlib
import json
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from topocal.measure.importers.registry import import_any
from topocal.measure.journal import Journal
from topocal.measure.load import parse_measurements
from topocal.measure.patterns import parse_pattern
from topocal.solve.explain import explain
from topocal.solve.rectangles import members_of
from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FlowError, FormatError, InputError
from topocal.topo.flow import Flow, Pattern
from topocal.topo.machines import b70
from topocal.topo.readers.amd_smi import parse_amd_smi
from topocal.topo.render.outline import outline
from topocal.topo.render.svg import render_svg
from topocal.topo.resource import NodeKind
from topocal.topo.validation import inconsistencies

FUZZ = Path(__file__).parent / "fuzz"
INPUTS = 150
"""For each target; ``make fuzz`` tries more, with coverage as its guide."""

COMMAND_INPUTS = 12
"""For each command, which takes as long as a hundred inputs of a reader."""

OF_EVERY_KIND = ("any-", "command-")
"""Given seeds of kinds that they are not for too."""

NO_FIT = "no figure that a fit can use"
"""Said of outputs that are read, but hold costs or means and no pattern's time."""

NEVER_REFUSED = ("sysfs",)
"""What is odd in a machine's own files is told in notes."""

MOST_S = 5
"""Seconds of processor time that one input may take."""


def _modules() -> tuple[Any, Any]:
    """The fuzzers' own modules, which import each other by their bare names."""
    sys.path.insert(0, str(FUZZ))
    try:
        return importlib.import_module("targets"), importlib.import_module("mutate")
    finally:
        sys.path.remove(str(FUZZ))


TARGETS, MUTATE = _modules()


class TooLongError(BaseException):
    """An input takes longer than it may."""


@pytest.fixture
def clock() -> Iterator[None]:
    """Stops what takes too long, on the clock of the processor."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLongError(f"more than {MOST_S} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("name", TARGETS.TARGETS)
def test_seeds_are_whole(name: str) -> None:
    target = TARGETS.TARGETS[name]
    seeds = target.seeds
    assert seeds
    for seed in seeds:
        error = TARGETS.attempt(target, seed)
        assert error is None or name.startswith(OF_EVERY_KIND) or NO_FIT in str(error)


@pytest.mark.heavy
@pytest.mark.parametrize("name", TARGETS.TARGETS)
def test_changed_inputs_raise_our_errors_only(name: str, clock: None) -> None:
    target = TARGETS.TARGETS[name]
    rng = random.Random(name)
    seeds = target.seeds
    mutator = MUTATE.Mutator(others=seeds)
    refused = 0
    for _ in range(COMMAND_INPUTS if name.startswith("command-") else INPUTS):
        content = mutator.mutated(rng.choice(seeds), rng)
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
        refused += TARGETS.attempt(target, content) is not None
    assert (refused > 0) != (name in NEVER_REFUSED), "no change did any harm: nothing was tried"


# What they found, by hand.


@pytest.mark.parametrize(
    "text",
    ["3<-4 5", "0<-1\t0<-1", "0->1 2", "a<->b<->c", "0<-1<-2", "0->", "0->,1", "0-> ,1", "0<\n->1"],
)
def test_names_in_the_notation_do_not_run_together(text: str) -> None:
    """Blanks were dropped, so that ``3<-4 5`` was a flow from gpu45."""
    with pytest.raises(FormatError, match="is not a pattern"):
        parse_pattern(text)
    assert parse_pattern(" 3 <- 4 ,\n5 ").pairs == [("gpu4", "gpu3"), ("gpu5", "gpu3")]


def test_a_matrix_of_nvbandwidth_after_a_second_version_line() -> None:
    """The version line begins another run, in which no test has been named yet."""
    text = (
        "nvbandwidth Version: v0.2\nRunning device_to_device_memcpy_write_ce.\n"
        "          0         1\n0       N/A    176.00\n1    177.00       N/A\n"
        "nvbandwidth Version: v0.2\n"
        "          0         1\n0       N/A    180.00\n1    181.00       N/A\n"
    )
    found = import_any(text, file="f", kind="nvbandwidth")
    assert [len(group.measurements.samples) for group in found.groups] == [2]
    assert any("without a title) is of a test that is not named" in note for note in found.notes)


@pytest.mark.parametrize(
    "ranges",
    [[[0, 10**30]], [[-(10**30), 2]], [[10**30, 10**31]], [[0, 10**30, 10**29]], [[0, 2, -1]]],
)
def test_ranges_longer_than_memory_are_no_sets(ranges: list[list[int]]) -> None:
    """The length of one does not fit a machine's integer."""
    with pytest.raises(ValueError, match="is no range of the 4 endpoints"):
        members_of(ranges, 4)


def test_a_header_of_nvbandwidth_with_the_mark_of_a_cut() -> None:
    """The mark was taken off the line that was looked at, not off the one that was read."""
    text = (
        "nvbandwidth Version: v0.2\nRunning device_to_device_memcpy_write_ce.\n"
        "          0         1 [...]\n0       N/A    176.00\n1    177.00       N/A\n"
    )
    (group,) = import_any(text, file="f", kind="nvbandwidth").groups
    assert len(group.measurements.samples) == 2


def test_json_of_amd_smi_without_its_brackets() -> None:
    with pytest.raises(FormatError, match="damaged JSON"):
        parse_amd_smi('"link_status": "ENABLED"\n"num_hops": 1\n', file="f")


def test_a_row_of_nccl_tests_that_ends_before_its_root() -> None:
    text = (
        "# ./sendrecv_perf\n# nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor)\n"
        "#  Rank  0 Group  0 Pid  3 on h device  0 [0000:b4:00] X\n"
        "#  Rank  1 Group  0 Pid  3 on h device  1 [0000:b5:00] X\n"
        "#  size  count root type redop more more  time  algbw  busbw #wrong\n"
        "  3000000  1  100.0 30.0 30.0 0\n"
    )
    (group,) = import_any(text, file="f", kind="nccl-tests").groups
    assert group.measurements.samples


@pytest.mark.parametrize("time", [5e-324, 1e-320, 1e-310])
def test_times_that_are_nothing_once_in_seconds(time: float) -> None:
    """The smallest floats are zero after a change of units."""
    record = {"size": 1000, "out_of_place": {"time": time, "nwrong": 0}}
    nccl = {"config": {"nthreads": 1, "ngpus": 2}, "args": ["sendrecv_perf"], "results": [record]}
    run = {"run_name": "Comm_hipMemcpyAsync_GPUToGPU/0/1/log2(N):20", "run_type": "iteration"}
    measured = {"real_time": time, "time_unit": "ns", "bytes": 5e4, "src_id": 0.0, "dst_id": 1.0}
    for kind, document in (
        ("nccl-tests", nccl),
        ("comm-scope", {"context": {}, "benchmarks": [run | measured]}),
    ):
        with pytest.raises(InputError):
            import_any(json.dumps(document, indent=1), file="f", kind=kind).best()


def test_a_table_of_rates_without_a_figure() -> None:
    with pytest.raises(FormatError):
        import_any("name,flows,kind,total_GBs\na,0>4;,p2p_write,\n", file="f", kind="rate-table")


def test_sizes_that_no_number_adds_up_are_told() -> None:
    huge = Pattern(flows=tuple(Flow(source="a", destination="b", size_bytes=1.5e308) for _ in "12"))
    with pytest.raises(FlowError, match="more bytes together than any number says"):
        _ = huge.total_bytes


def test_what_is_wrong_with_a_machine_is_told_in_short_words() -> None:
    graph = b70().graph.copy()
    graph.graph = {**graph.graph}
    tail, head, key = next(iter(graph.edges(keys=True)))
    graph.edges[tail, head, key]["uses"] = (("x" * 4000, 1.0),)
    (problem, *_) = inconsistencies(graph)
    assert "uses the unknown resource xxx" in str(problem)
    assert len(str(problem)) < 300


def test_one_pair_told_twice_has_no_like() -> None:
    """A median over no other pair warned."""
    text = (
        "RocmBandwidthTest Version: 2.6.0\nDevice: 0,  CPU\nDevice: 1,  GPU,  GPU-XX,  83:0.0\n"
        "Unidirectional copy peak bandwidth GB/s\n          D/D       0           1\n"
        "          0         N/A         28.4\n          1         29.0      649.5\n"
        "====    Unidirectional Benchmark Result    ====\n"
        "==== Src Device Id: 0 Src Device Type: Cpu ====\n"
        "==== Dst Device Id: 1 Dst Device Type: Gpu ====\n"
        "1 KB           5.000          0.204          4.000          0.256\n"
    )
    found = explain(parse_measurements(text.encode(), file="f"), time_limit_s=0)
    assert len(found.model.topology.endpoints) == 2


def test_a_switch_of_gpu_links_that_nothing_is_joined_to_is_drawn() -> None:
    """It is in no tree, as it has GPUs around it elsewhere, and so the part had no node."""
    builder = TopologyBuilder("two parts")
    builder.node("gpu0", NodeKind.GPU)
    builder.node("nvswitch0", NodeKind.NVSWITCH)
    topology = builder.build()
    assert [machine.nodes for machine in outline(topology).machines] == [["gpu0"], ["nvswitch0"]]
    assert "nvswitch0" in render_svg(topology)


@pytest.mark.parametrize("session", ['{"ranks": 0.5}', '{"ranks": ["gpu0", {}]}', '{"remarks": 3}'])
def test_a_journal_whose_group_is_no_list(session: str, tmp_path: Path) -> None:
    """Its members were counted, and its remarks told, once all was read."""
    header, _, *rest = TARGETS.TARGETS["journal"].seeds[0].decode().splitlines(keepends=True)
    path = tmp_path / "j"
    path.write_text("".join([header, f'{{"session": {session}}}\n', *rest]))
    with pytest.raises(FormatError, match="j:2: damaged journal: r"):
        Journal(path, subject="a plan", run="r", resume=True)


def test_what_passes_next_to_nothing_passes_nothing() -> None:
    """A byte took longer than any number of seconds, and that warned."""
    document = json.loads(TARGETS.TARGETS["caps"].seeds[0])
    document["resources"] = [r | {"cap_Bps": 1e-320} for r in document["resources"]]
    TARGETS.TARGETS["caps"].read(json.dumps(document).encode())
