"""SimGrid platforms say what the machine says, and SimGrid's times are ours."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.errors import InputError, TopologyError
from topocal.topo.exporters.figures import Figures, nominal_figures
from topocal.topo.exporters.simgrid import simgrid_platform, to_simgrid
from topocal.topo.flow import Flow
from topocal.topo.fluid import simulate
from topocal.topo.machines import build_machine
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

SOURCE = Path(__file__).with_name("simgrid_platform.cpp")

if shutil.which("g++") is None:
    WHY_NOT = "no g++ here"
elif not Path("/usr/include/simgrid/s4u.hpp").exists():
    WHY_NOT = "no SimGrid here (apt-get install libsimgrid-dev)"
else:
    WHY_NOT = ""
needs_simgrid = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

PRECISION = ("--cfg=surf/precision:1e-12", "--cfg=maxmin/precision:1e-12")
"""Their names in SimGrid 3.32; what the platform itself asks for is left to the platform."""


def star(rates: list[float], sharing: Sharing = Sharing.CAPACITY) -> Topology:
    """GPUs of these rates, in and out, around a switch."""
    build = TopologyBuilder("star")
    build.node("switch0", NodeKind.PCIE_SWITCH)
    for k, rate in enumerate(rates):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=rate, sharing=sharing)
    return build.build()


def routes(text: str) -> dict[tuple[str, str], list[str]]:
    return {
        (r.get("src", ""), r.get("dst", "")): [c.get("id", "") for c in r]
        for r in ET.fromstring(text).iter("route")
    }


def links(text: str) -> dict[str, tuple[float, str]]:
    return {
        e.get("id", ""): (
            float(e.get("bandwidth", "").removesuffix("Bps")),
            e.get("sharing_policy", "SHARED"),
        )
        for e in ET.fromstring(text).iter("link")
    }


def test_a_star_by_hand() -> None:
    """Three GPUs: 6 links, 6 routes of two links each, latency 0 everywhere."""
    topology = star([1e9, 2e9, 3e9])
    text = to_simgrid(topology, nominal_figures(topology))
    assert links(text) == {
        f"{a}->{b}": (rate, "SHARED")
        for k, rate in enumerate([1e9, 2e9, 3e9])
        for a, b in ((f"gpu{k}", "switch0"), ("switch0", f"gpu{k}"))
    }
    found = routes(text)
    assert len(found) == 6
    assert sorted(found["gpu0", "gpu2"]) == ["gpu0->switch0", "switch0->gpu2"]
    assert {e.get("latency") for e in ET.fromstring(text).iter("link")} == {"0s"}


def test_a_duplex_is_one_link_for_both_ways() -> None:
    topology = star([1e9, 1e9], sharing=Sharing.DUPLEX)
    found = routes(to_simgrid(topology, nominal_figures(topology)))
    assert sorted(found["gpu0", "gpu1"]) == sorted(found["gpu1", "gpu0"])


def test_a_weight_of_two_names_the_link_twice() -> None:
    """One way counts once, the other twice: capacity 6 GB/s, so 3 GB/s for the latter."""
    topology = star([1e9, 1e9]).with_resources(
        [Resource(id="root", nominal_Bps=6e9)],
        [
            Use(resource="root", sources=("gpu0",)),
            Use(resource="root", sources=("gpu1",), weight=2.0),
        ],
    )
    text = to_simgrid(topology, nominal_figures(topology))
    found = routes(text)
    assert links(text)["root"][0] == pytest.approx(6e9, rel=1e-15)
    assert found["gpu0", "gpu1"].count("root") == 1
    assert found["gpu1", "gpu0"].count("root") == 2


def test_one_weight_for_all_is_in_the_bandwidth() -> None:
    topology = star([1e9, 1e9]).with_resources(
        [Resource(id="root", nominal_Bps=5e9)], [Use(resource="root", weight=2.5)]
    )
    text = to_simgrid(topology, nominal_figures(topology))
    assert links(text)["root"][0] == pytest.approx(2e9, rel=1e-15)
    assert routes(text)["gpu0", "gpu1"].count("root") == 1


def test_a_fatpipe_of_two_weights_is_two_links() -> None:
    topology = star([1e9, 1e9]).with_resources(
        [Resource(id="pipe", nominal_Bps=4e9, sharing=Sharing.FATPIPE)],
        [
            Use(resource="pipe", sources=("gpu0",)),
            Use(resource="pipe", sources=("gpu1",), weight=2.0),
        ],
    )
    text = to_simgrid(topology, nominal_figures(topology))
    assert [v for k, v in links(text).items() if k.startswith("pipe")] == [
        (4e9, "FATPIPE"),
        (2e9, "FATPIPE"),
    ]


def test_a_time_shared_receiver_of_whole_ratios_is_exact() -> None:
    """Senders of 2 and 1 GB/s into gpu0: a byte of the slower takes twice the time."""
    topology = star([4e9, 2e9, 1e9]).with_resources(
        [Resource(id="engine", sharing=Sharing.TIME_SHARED, kappa=0.5)],
        [Use(resource="engine", destinations=("gpu0",))],
    )
    platform = simgrid_platform(topology, nominal_figures(topology))
    found = routes(platform.text)
    assert links(platform.text)["engine"][0] == pytest.approx(2e9 / 0.5)
    assert found["gpu1", "gpu0"].count("engine") == 1
    assert found["gpu2", "gpu0"].count("engine") == 2
    assert not any("engine" in note for note in platform.notes)


def test_rounding_of_a_time_shared_receiver_is_told() -> None:
    topology = star([4e9, 2.0123e9, 1.017e9]).with_resources(
        [Resource(id="engine", sharing=Sharing.TIME_SHARED, in_order=True)],
        [Use(resource="engine", destinations=("gpu0",))],
    )
    told = " ".join(simgrid_platform(topology, nominal_figures(topology)).notes)
    assert "rounded by 0." in told
    assert "order of arrival" in told


def test_the_unknown_does_not_bind_and_is_told() -> None:
    build = TopologyBuilder("pair")
    for name in ("gpu0", "gpu1"):
        build.node(name, NodeKind.GPU)
    build.connect("gpu0", "gpu1", LinkKind.NVLINK)
    topology = build.build()
    platform = simgrid_platform(topology, nominal_figures(topology))
    assert links(platform.text) == {"unlimited": (1e18, "FATPIPE")}
    assert any("gpu0->gpu1" in note for note in platform.notes)


def test_names_that_xml_would_trip_over() -> None:
    names = ['g"1<&>', "g'2\x00--", "g'2?--"]
    build = TopologyBuilder('--><zone id="x">')
    build.node("switch0", NodeKind.PCIE_SWITCH)
    for name in names:
        build.node(name, NodeKind.GPU)
        build.connect(name, "switch0", LinkKind.PCIE, nominal_Bps=1e9)
    topology = build.build()
    text = to_simgrid(topology, nominal_figures(topology), notes=["a -- b -->"])
    hosts = [e.get("id") for e in ET.fromstring(text).iter("host")]
    assert len(set(hosts)) == 3
    assert hosts[:1] == ['g"1<&>']
    assert len(links(text)) == 6


@pytest.mark.parametrize(
    ("endpoints", "error"),
    [(["gpu0"], "1 endpoints"), (["gpu0", "gpu9"], "gpu9")],
)
def test_endpoints_that_make_no_platform(endpoints: list[str], error: str) -> None:
    topology = star([1e9, 1e9])
    with pytest.raises(InputError, match=error):
        to_simgrid(topology, nominal_figures(topology), endpoints=endpoints)


def test_what_passes_nothing_is_refused() -> None:
    topology = star([1e9, 1e9]).with_resources(
        [Resource(id="gpu0->switch0", nominal_Bps=0.0)],
    )
    with pytest.raises(TopologyError, match="passes nothing"):
        to_simgrid(topology, nominal_figures(topology))


# Loaded and run by SimGrid itself


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("simgrid") / "platform"
    subprocess.run(
        ["g++", "-O1", "-std=c++17", SOURCE, "-lsimgrid", "-o", built],
        check=True,
        capture_output=True,
    )
    return built


def largest_difference(
    program: Path, topology: Topology, figures: Figures, flows: list[Flow], folder: Path
) -> float:
    """Relative, over the finishes of all flows."""
    file = folder / "platform.xml"
    file.write_text(to_simgrid(topology, figures, endpoints=topology.endpoints))
    done = subprocess.run(
        [program, file, "--log=root.thres:error", *PRECISION],
        input="".join(
            f"{f.source} {f.destination} {int(f.size_bytes)} {f.start_s!r}\n" for f in flows
        ),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    theirs = np.array(done.stdout.split(), dtype=np.float64)
    capacities = Capacities.of(
        topology,
        {
            name: np.inf if f.capacity_Bps is None else f.capacity_Bps
            for name, f in figures.items()
            if topology.resources[name].sharing is not Sharing.TIME_SHARED
        },
        kappa={
            name: f.kappa
            for name, f in figures.items()
            if topology.resources[name].sharing is Sharing.TIME_SHARED
        },
    )
    ours = simulate(topology, flows, capacities).finish_s
    return float(np.max(np.abs(ours - theirs) / theirs))


def some_flows(names: tuple[str, ...], count: int, seed: int) -> list[Flow]:
    """Unequal sizes and starts between random endpoints."""
    random = np.random.default_rng(seed)
    source = random.integers(0, len(names), count)
    destination = (source + random.integers(1, len(names), count)) % len(names)
    return [
        Flow(
            source=names[a],
            destination=names[b],
            size_bytes=float(random.integers(2**20, 2**28)),
            start_s=float(start),
        )
        for a, b, start in zip(
            source, destination, np.sort(random.uniform(0, 0.02, count)), strict=True
        )
    ]


@needs_simgrid
@pytest.mark.parametrize("name", ["b70", "dgx-h100", "mi300x"])
def test_simgrid_agrees_on_reference_machines(name: str, program: Path, tmp_path: Path) -> None:
    topology = build_machine(name)
    random = np.random.default_rng(5)
    # Uneven capacities, so that many resources fill up; what is unknown gets one, too.
    figures = {
        key: replace(f, capacity_Bps=float(random.uniform(2e9, 6e10)))
        for key, f in nominal_figures(topology).items()
    }
    flows = some_flows(topology.accelerators, 48, seed=6)
    assert largest_difference(program, topology, figures, flows, tmp_path) <= 1e-9


@needs_simgrid
@pytest.mark.parametrize("seed", range(4))
def test_simgrid_agrees_on_weights_pipes_and_engines(
    seed: int, program: Path, tmp_path: Path
) -> None:
    """Everything that the platform expresses exactly, at once."""
    random = np.random.default_rng(seed)
    rates = [float(4e9 / 2 ** int(k)) for k in random.integers(0, 3, 6)]
    topology = star(rates).with_resources(
        [
            Resource(id="root", nominal_Bps=float(random.uniform(3e9, 6e9))),
            Resource(id="pipe", nominal_Bps=2.5e9, sharing=Sharing.FATPIPE),
            Resource(id="engine0", sharing=Sharing.TIME_SHARED, kappa=0.75),
        ],
        [
            Use(resource="root", sources=("gpu0", "gpu1")),
            Use(resource="root", sources=("gpu2", "gpu3"), weight=2.0),
            Use(resource="pipe", sources=("gpu4",)),
            Use(resource="pipe", sources=("gpu5",), weight=2.0),
            Use(resource="engine0", destinations=("gpu0",), sources=("gpu1", "gpu2", "gpu3")),
        ],
    )
    # Whole ratios of the engine's senders: no pair to gpu0 is limited by the root or a pipe.
    figures = nominal_figures(topology)
    figures["root"] = replace(figures["root"], capacity_Bps=1.3e10)
    flows = some_flows(topology.endpoints, 40, seed=seed)
    assert not any("rounded" in n for n in simgrid_platform(topology, figures).notes)
    assert largest_difference(program, topology, figures, flows, tmp_path) <= 1e-9


@needs_simgrid
def test_simgrid_takes_as_long_as_the_published_machine(program: Path, tmp_path: Path) -> None:
    """Receivers that serve one sender at a time: within the rounding that the file tells."""
    from topocal.exporting import fitted_figures
    from topocal.measure.importers.tables import read_tables
    from topocal.solve.fit import fit

    tables = [
        Path(__file__).parents[1] / "examples" / "b70" / f"{n}.csv" for n in ("pairs", "fans")
    ]
    model = fit(read_tables(tables), build_machine("b70"))
    figures = fitted_figures(model)
    notes = simgrid_platform(model.topology, figures).notes
    (told,) = [n for n in notes if "rounded by" in n]
    most = float(told.split("rounded by ")[1].split("%")[0]) / 100 + 5e-4
    assert most < 0.03
    for root in range(8):
        fan = [
            Flow(source=f"gpu{k}", destination=f"gpu{root}", size_bytes=2.0**28)
            for k in range(8)
            if k != root
        ]
        assert largest_difference(program, model.topology, figures, fan, tmp_path) <= most


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(1e8, 1e11), min_size=2, max_size=7),
    st.floats(0.5, 1.0),
)
def test_shares_of_time_are_kept_within_what_is_told(rates: list[float], kappa: float) -> None:
    """How often a route names the engine's link over its bandwidth is a byte's time on it."""
    topology = star([*rates, 1e12]).with_resources(
        [Resource(id="engine", sharing=Sharing.TIME_SHARED, kappa=kappa)],
        [Use(resource="engine", destinations=(f"gpu{len(rates)}",))],
    )
    platform = simgrid_platform(topology, nominal_figures(topology))
    bandwidth = links(platform.text)["engine"][0]
    found = routes(platform.text)
    told = [n for n in platform.notes if "rounded by" in n]
    most = float(told[0].split("rounded by ")[1].split("%")[0]) / 100 + 5e-4 if told else 1e-11
    for k, rate in enumerate(rates):
        times = found[f"gpu{k}", f"gpu{len(rates)}"].count("engine")
        assert abs(times / bandwidth / (kappa / rate) - 1) <= most
