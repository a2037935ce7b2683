"""What measuring finds of its surroundings: the host, devices, conditions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pretended_ranks import surveyed

from topocal.measure import host_facts
from topocal.measure.conditions import conditions
from topocal.measure.devices import Accelerator, Host, device_kind, own_index
from topocal.measure.patterns import bundle, fan_in, relay
from topocal.measure.places import Place
from topocal.measure.provenance import check_provenance
from topocal.measure.reach import hosts_of, relay_reach
from topocal.measure.waits import Late
from topocal.topo.errors import InputError
from topocal.topo.fabric import fat_tree
from topocal.topo.machines import build_machine, dgx_a100


@dataclass
class Tree:
    """A root folder with files of a host."""

    root: Path

    def put(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.put("proc/meminfo", "MemTotal: 64 kB\nMemFree: 1 kB\nMemAvailable:   32 kB\n")
    tree.put("proc/self/cgroup", "0::/job/step\n")
    tree.put("proc/cpuinfo", "processor : 0\nmodel name\t: Make 7 CPU\n\nmodel name: other\n")
    return tree


def test_facts_of_a_host(host: Tree) -> None:
    assert host_facts.cpu_model(host.root) == "Make 7 CPU"
    assert host_facts.driver_version("cuda", host.root) == ""
    host.put("sys/module/nvidia/version", "550.90\n")
    assert host_facts.driver_version("cuda", host.root) == "nvidia 550.90"
    assert host_facts.driver_version("xpu", host.root) == ""
    assert host_facts.bus_link("0000:17:00.0", host.root) is None
    host.put("sys/bus/pci/devices/0000:17:00.0/current_link_speed", "16.0 GT/s PCIe\n")
    host.put("sys/bus/pci/devices/0000:17:00.0/current_link_width", "16\n")
    assert host_facts.bus_link("0000:17:00.0", host.root) == "16.0 GT/s PCIe x16"


def test_an_empty_host_says_nothing(tmp_path: Path) -> None:
    assert host_facts.cpu_model(tmp_path) == ""
    assert host_facts.free_host_bytes(tmp_path) > 2**60
    assert host_facts.host_id(tmp_path) == host_facts.host_id(tmp_path)


# Devices, by a torch that only pretends.


class Event:
    """Done at the second look."""

    looks = 0

    def record(self) -> None:
        self.looks = 0

    def query(self) -> bool:
        self.looks += 1
        return self.looks > 1


class NeverDone(Event):
    def query(self) -> bool:
        return False


def pretended(event: type[Event] = Event, count: int = 4, **properties: Any) -> Any:
    cuda = SimpleNamespace(
        is_available=lambda: count > 0,
        device_count=lambda: count,
        current_device=lambda: 2,
        get_device_properties=lambda _: SimpleNamespace(name="Card X", **properties),
        mem_get_info=lambda _: (1000, 4000),
        Event=event,
        nccl=SimpleNamespace(version=lambda: (2, 21, 5)),
    )
    return SimpleNamespace(
        __version__="9",
        cuda=cuda,
        device=lambda *a: a,
        version=SimpleNamespace(cuda="12.4", hip=None),
    )


def test_an_accelerator_says_what_it_is() -> None:
    torch = pretended(pci_domain_id=0, pci_bus_id=0x17, pci_device_id=0)
    device = Accelerator(torch, "cuda")
    assert (device.name, device.bus, device.place) == ("Card X", "0000:17:00.0", ("cuda", 2))
    assert device.free_bytes() == 1000
    assert device.libraries() == {"nccl": "2.21.5", "cuda": "12.4"}
    assert Accelerator(pretended(), "cuda").bus == ""


def test_a_wait_for_a_device_ends() -> None:
    Accelerator(pretended(), "cuda").settle(float("inf"))
    with pytest.raises(Late, match="the device did not finish in time"):
        Accelerator(pretended(NeverDone), "cuda").settle(0.0)
    Host(pretended()).settle(0.0)


@pytest.mark.parametrize(
    ("count", "local_rank", "visible", "found"),
    [(4, 3, "", 3), (1, 0, "", 0), (1, 3, "GPU-abc", 0)],
)
def test_each_rank_has_a_device_of_its_own(
    count: int, local_rank: int, visible: str, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    place = Place(rank=9, size=16, local_rank=local_rank, local_size=1, meeting="env://")
    assert own_index(pretended(count=count), "cuda", place) == found


EIGHT = [f"gpu{k}" for k in range(8)]


@pytest.mark.parametrize(
    ("names", "rank", "count", "visible", "found"),
    [
        (EIGHT, 5, 8, "", 5),
        # A rank measures the card that its name says, not the one of its place.
        (["gpu0", "gpu1", "gpu4", "gpu5"], 2, 8, "", 4),
        (["gpu5", "gpu0"], 0, 8, "", 5),
        (["gpu4", "gpu5", "gpu6", "gpu7"], 1, 4, "4,5,6,7", 1),
        (["gpu6", "gpu4"], 0, 3, "4,6,7", 1),
        # A container that shows four of eight cards as its own.
        (["gpu4", "gpu5", "gpu6", "gpu7"], 3, 4, "", 3),
        # Names that say no number, and two hosts played on one, go by place.
        (["left", "right"], 1, 4, "", 1),
        (["node0/gpu0", "node1/gpu0"], 1, 2, "", 1),
        (["gpu2", "gpu3"], 1, 4, "GPU-abc,GPU-def,GPU-012,GPU-345", 3),
    ],
)
def test_a_rank_takes_the_device_that_its_name_says(
    names: list[str],
    rank: int,
    count: int,
    visible: str,
    found: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    place = Place(
        rank=rank, size=len(names), local_rank=rank, local_size=len(names), meeting="env://"
    )
    assert own_index(pretended(count=count), "cuda", place, names) == found


def test_of_several_hosts_each_has_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    names = ["node0/gpu0", "node0/gpu3", "node1/gpu1", "node1/gpu2"]
    places = [
        Place(rank=k, size=4, local_rank=k % 2, local_size=2, meeting="env://") for k in range(4)
    ]
    assert [own_index(pretended(count=4), "cuda", p, names) for p in places] == [0, 3, 1, 2]


def test_an_endpoint_that_the_host_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(rank=1, size=2, local_rank=1, local_size=2, meeting="env://")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with pytest.raises(InputError, match="rank 1 is gpu5 of a host where it sees 3 cuda devices"):
        own_index(pretended(count=3), "cuda", place, ["gpu0", "gpu5"])


def test_more_ranks_than_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    place = Place(rank=9, size=16, local_rank=2, local_size=4, meeting="env://")
    with pytest.raises(InputError, match="rank 9 is number 2 on its host, which has 1 cuda"):
        own_index(pretended(count=1), "cuda", place)
    with pytest.raises(InputError, match="sees no cuda device here"):
        own_index(pretended(count=0), "cuda", place)


def test_where_a_backend_keeps_its_buffers() -> None:
    kinds = {name: device_kind(name) for name in ("gloo", "nccl", "xccl", "mpi")}
    assert kinds == {"gloo": "cpu", "nccl": "cuda", "xccl": "xpu", "mpi": "cpu"}


# Conditions.


def test_conditions_of_two_hosts() -> None:
    facts: dict[str, Any] = {"cpu": "CPU 7", "libraries": {"torch": "2.13", "nccl": "2.21"}}
    surveys = {
        0: surveyed("a/0", 1, host="a", **facts),
        1: surveyed("b/0", 1, host="b", **facts, driver="nvidia 550"),
    }
    found = conditions(
        surveys,
        names=["gpu0", "gpu1"],
        backend="nccl",
        issues=["group"],
        verified=True,
        shortest_s=0.005,
    )
    check_provenance(found)
    assert found["hosts"] == 2
    assert found["placement"] == {"gpu0": "0", "gpu1": "1"}
    assert found["ranks"] == ["gpu0", "gpu1"]
    assert found["devices"] == ["card", "card"]
    assert found["libraries"] == {"nccl": "2.21", "torch": "2.13"}
    assert (found["issue"], found["driver"], found["cpu"]) == ("group", "nvidia 550", "CPU 7")
    # The make of the hosts, whatever they are called and in whatever order.
    swapped = conditions(
        {0: surveys[1], 1: surveys[0]},
        names=["gpu0", "gpu1"],
        backend="nccl",
        issues=["group", "one-by-one"],
        verified=True,
        shortest_s=0.005,
    )
    assert swapped["machine"] == found["machine"]
    assert "issue" not in swapped


# Which messages leave their host.


def test_a_relay_over_two_hosts_by_direction() -> None:
    #   0 -> 1 -> 2 -> 3 -> 0 with 0, 1 on one host and 2, 3 on the other:
    #   0 hears from 3 (inter) and tells 1 (intra), 1 hears from 0 and tells 2, and so on.
    ring = relay(["gpu0", "gpu1", "gpu2", "gpu3"])
    found = relay_reach(ring, {"gpu0": "0", "gpu1": "0", "gpu2": "1", "gpu3": "1"})
    assert [(n.endpoint, n.receives, n.sends) for n in found] == [
        ("gpu0", "inter_node", "intra_node"),
        ("gpu1", "intra_node", "inter_node"),
        ("gpu2", "inter_node", "intra_node"),
        ("gpu3", "intra_node", "inter_node"),
    ]


def test_other_patterns_have_no_such_label() -> None:
    hosts = {"gpu0": "0", "gpu1": "1", "gpu2": "0"}
    assert relay_reach(fan_in("gpu0", ["gpu1", "gpu2"]), hosts) == ()
    assert relay_reach(bundle([("gpu0", "gpu1"), ("gpu2", "gpu1")]), hosts) == ()
    assert relay_reach(relay(["gpu0", "gpu1", "gpu9"]), hosts) == ()


def test_hosts_by_the_topology() -> None:
    machine = fat_tree([dgx_a100()] * 2, nodes_per_leaf=2, spines=1)
    hosts = hosts_of(machine)
    assert hosts["node0/gpu0"] == "node0"
    assert hosts["node1/gpu7"] == "node1"
    assert hosts_of(build_machine("b70")) == {}
