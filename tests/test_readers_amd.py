"""``rocm-smi``, ``amd-smi`` and TransferBench: their traps, written by hand."""

from __future__ import annotations

import json

import pytest

from topocal.topo.errors import FormatError
from topocal.topo.readers.registry import parse_any, sniff
from topocal.topo.resource import LinkKind, NodeKind, PathClass
from topocal.topo.topology import Topology


def read(text: str, kind: str) -> Topology:
    assert sniff(text, file="x").name == kind
    return parse_any(text, file="x")


def notes(topology: Topology) -> str:
    return "\n".join(topology.graph.graph["notes"])


def class_of(topology: Topology, a: str, b: str) -> str:
    routes = topology.routes(topology.endpoints)
    return PathClass(int(routes.path_class[routes.position[a], routes.position[b]])).name


def of_kind(topology: Topology, kind: NodeKind) -> list[str]:
    return [n for n, k in topology.graph.nodes(data="kind") if k is kind]


def table(title: str, cells: list[list[object]], *, width: int = 13) -> str:
    n = len(cells)
    lines = [f"=============== {title} ==============="]
    lines.append("       " + "".join(f"{f'GPU{k}':{width}}" for k in range(n)))
    lines += [
        f"{f'GPU{k}':7}" + "".join(f"{cell!s:{width}}" for cell in row)
        for k, row in enumerate(cells)
    ]
    return "\n".join(lines) + "\n\n"


def numa(pairs: list[tuple[int, int]], *, form: str = "GPU[{}]\t\t") -> str:
    return "".join(
        f"{form.format(k)}: (Topology) Numa Node: {node}\n"
        f"{form.format(k)}: (Topology) Numa Affinity: {near}\n"
        for k, (node, near) in enumerate(pairs)
    )


HEAD = (
    "============================ ROCm System Management Interface ============================\n"
)
XGMI = [[0, "XGMI", "PCIE"], ["XGMI", 0, "PCIE"], ["PCIE", "PCIE", 0]]
HOPS = [[0, 1, 3], [1, 0, 3], [3, 3, 0]]
WEIGHTS = [[0, 15, 72], [15, 0, 72], [72, 72, 0]]
SHOWTOPO = (
    HEAD
    + table("Weight between two GPUs", WEIGHTS)
    + table("Hops between two GPUs", HOPS)
    + table("Link Type between two GPUs", XGMI)
    + "=============== Numa Nodes ===============\n"
    + numa([(0, 0), (0, 0), (1, 1)])
    + "================================== End of ROCm SMI Log ===================================\n"
)


def check_three_gpus(machine: Topology) -> None:
    assert class_of(machine, "gpu0", "gpu1") == "NVL"
    assert class_of(machine, "gpu0", "gpu2") == "SYS"
    link = machine.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]
    assert (link["kind"], link["nominal_Bps"], link["hops"], link["weight"]) == (
        LinkKind.XGMI,
        None,
        1,
        15,
    )
    assert machine.graph.graph["stated_classes"] == [
        ["gpu0", "gpu1", "NVL"],
        ["gpu0", "gpu2", "SYS"],
        ["gpu1", "gpu2", "SYS"],
    ]


def test_showtopo() -> None:
    machine = read(SHOWTOPO, "rocm-showtopo")
    check_three_gpus(machine)
    assert of_kind(machine, NodeKind.SOCKET) == ["socket0", "socket1"]
    assert [machine.graph.nodes[g]["numa"] for g in machine.accelerators] == [0, 0, 1]


def test_showtopo_in_other_forms() -> None:
    old = SHOWTOPO.replace("GPU[", "GPU ").replace("]\t\t:", "          :")
    check_three_gpus(read(old, "rocm-showtopo"))
    check_three_gpus(
        read("\n".join(" ".join(x.split()) for x in SHOWTOPO.split("\n")), "rocm-showtopo")
    )
    check_three_gpus(read("$ rocm-smi --showtopo\n" + SHOWTOPO + "$\n", "rocm-showtopo"))
    wide = SHOWTOPO.replace("GPU1         GPU2", "GPU1" + " " * 90 + "GPU2")
    check_three_gpus(read(wide, "rocm-showtopo"))


def test_showtopo_json() -> None:
    system = {
        f"(Topology) {what} between DRM devices {a} and {b}": str(cells[a][b])
        for what, cells in (("Weight", WEIGHTS), ("Hops", HOPS), ("Link type", XGMI))
        for a, b in ((0, 1), (0, 2), (1, 2))
    }
    cards = {
        f"card{k}": {"(Topology) Numa Node": str(n), "(Topology) Numa Affinity": str(n)}
        for k, n in enumerate((0, 0, 1))
    }
    machine = read(json.dumps({"system": system, **cards}), "rocm-showtopo")
    check_three_gpus(machine)
    assert [machine.graph.nodes[g]["numa"] for g in machine.accelerators] == [0, 0, 1]
    with pytest.raises(FormatError, match="damaged JSON"):
        parse_any('{"card0": {"(Topology) Numa Node": ', file="x", kind="rocm-showtopo")


def test_showtopo_without_tables() -> None:
    # An error stands where the weights should be, and the types have no title.
    types = table("", [[0, "XXXX", "XGMI"], ["XXXX", 0, "XGMI"], ["XGMI", "XGMI", 0]])
    text = (
        HEAD
        + "=============== Weight between two GPUs ===============\n"
        + "get_link_weight_topology, Not supported on the given system\n"
        + "ERROR: GPU[1]   : Cannot read Link Weight: Not supported on this machine\n\n"
        + types.split("\n", 1)[1]
        + numa([(0, 0), (0, 1), (-1, -1)])
    )
    machine = read(text, "rocm-showtopo")
    link = machine.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]
    assert (link["kind"], link["link_type"]) == (LinkKind.UNKNOWN, "XXXX")
    assert class_of(machine, "gpu0", "gpu2") == "NVL"
    nodes = machine.graph.nodes
    assert [nodes[g].get("card") for g in machine.accelerators] == [0, 0, None]
    assert [nodes[g].get("numa") for g in machine.accelerators] == [0, 0, None]
    assert nodes["gpu1"]["numa_affinity"] == 1
    assert machine.graph.graph["stated_classes"] == [
        ["gpu0", "gpu2", "NVL"],
        ["gpu1", "gpu2", "NVL"],
    ]
    told = notes(machine)
    assert "no table of weights, hops" in told
    assert "rocm-smi itself reports: GPU[1] : Cannot read Link Weight" in told
    # Partitions of one card share its PCIe link.
    switch = of_kind(machine, NodeKind.PCIE_SWITCH)
    assert len(switch) == 1
    assert {a for a, b in machine.graph.edges() if b == switch[0]} >= {"gpu0", "gpu1"}


def test_showtopo_access_and_bandwidth() -> None:
    access = [[True, True, False], [True, True, False], [False, False, True]]
    rates = [["N/A", "50000-200000", "N/A"], ["50000-200000", "N/A", "N/A"], ["N/A", "N/A", "N/A"]]
    text = SHOWTOPO + table("Link accessibility between two GPUs", access)
    text += table("Bandwidth between two GPUs", rates, width=16)
    machine = read(text, "rocm-showtopo")
    assert machine.graph.graph["no_peer_pairs"] == [["gpu0", "gpu2"], ["gpu1", "gpu2"]]
    link = machine.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]
    # Four links of 50 GB/s.
    assert (link["count"], link["nominal_Bps"]) == (4, 200e9)


def test_pcie_pairs_of_one_processor_and_of_two() -> None:
    # Weight 40 is 20 up and 20 down; what is more crosses processors.
    types = [["0", "PCIE", "PCIE"], ["PCIE", "0", "PCIE"], ["PCIE", "PCIE", "0"]]
    weights = [[0, 40, 72], [40, 0, 72], [72, 72, 0]]
    text = (
        HEAD
        + table("Weight between two GPUs", weights)
        + table("Link Type between two GPUs", types)
    )
    machine = read(text, "rocm-showtopo")
    assert class_of(machine, "gpu0", "gpu2") == "SYS"
    assert len(of_kind(machine, NodeKind.SOCKET)) == 2
    # Nothing tells whether a switch joins 0 and 1.
    assert machine.graph.graph["stated_classes"] == [
        ["gpu0", "gpu2", "SYS"],
        ["gpu1", "gpu2", "SYS"],
    ]


def test_relayed_xgmi() -> None:
    # 0-1 and 1-2 are joined; 0-2 goes by way of 1 and has no link of its own.
    types = [["0", "XGMI", "XGMI"], ["XGMI", "0", "XGMI"], ["XGMI", "XGMI", "0"]]
    weights = [[0, 15, 30], [15, 0, 15], [30, 15, 0]]
    text = (
        HEAD
        + table("Weight between two GPUs", weights)
        + table("Link Type between two GPUs", types)
    )
    machine = read(text, "rocm-showtopo")
    routes = machine.routes()
    assert class_of(machine, "gpu0", "gpu1") == "NVL"
    assert class_of(machine, "gpu0", "gpu2") == "NVB"
    assert set(routes.route("gpu0", "gpu1")) & set(routes.route("gpu0", "gpu2"))
    assert "other GPUs relay" in notes(machine)


def test_damaged_showtopo() -> None:
    with pytest.raises(FormatError, match=r"x:\d+: cell '1x5' of row GPU0 is no number"):
        read(SHOWTOPO.replace("15", "1x5", 1), "rocm-showtopo")
    with pytest.raises(FormatError, match="describes no GPUs"):
        read("Weight between two GPUs\n", "rocm-showtopo")


# amd-smi

BDFS = ["0000:0c:00.0", "0000:22:00.0", "0001:38:00.0"]


def amd_smi_new() -> str:
    entries = [
        {
            "gpu": a,
            "bdf": BDFS[a],
            "links": [
                {
                    "gpu": b,
                    "bdf": BDFS[b],
                    "weight": WEIGHTS[a][b],
                    "link_status": "ENABLED" if b != 2 or a == b else "DISABLED",
                    "link_type": "SELF" if a == b else XGMI[a][b],
                    "num_hops": HOPS[a][b],
                    "bandwidth": "64000-64000" if XGMI[a][b] == "XGMI" else "N/A",
                }
                for b in range(3)
            ],
        }
        for a in range(3)
    ]
    return json.dumps(entries, indent=4)


def amd_smi_old() -> str:
    def column(name: str, cells: list[list[object]], a: int) -> dict[str, object]:
        return {
            f"gpu_{b}": "SELF" if name == "link_type" and a == b else cells[a][b] for b in range(3)
        }

    return json.dumps(
        [
            {
                "gpu": a,
                "link_accessibility": {f"gpu_{b}": "ENABLED" for b in range(3)},
                "weight": column("weight", WEIGHTS, a),
                "hops": column("hops", HOPS, a),
                "link_type": column("link_type", XGMI, a),
                "numa_bandwidth": {f"gpu_{b}": "N/A" for b in range(3)},
            }
            for a in range(3)
        ]
    )


def amd_smi_words() -> str:
    def words(title: str, cells: list[list[object]]) -> str:
        rows = [f"{BDFS[a]} " + " ".join(f"{cell!s:12}" for cell in cells[a]) for a in range(3)]
        return "\n".join([f"{title} TABLE:", " " * 13 + " ".join(BDFS), *rows]) + "\n\n"

    types = [["SELF" if a == b else XGMI[a][b] for b in range(3)] for a in range(3)]
    return words("WEIGHT", WEIGHTS) + words("HOPS", HOPS) + words("LINK TYPE", types) + "Legend:\n"


def test_amd_smi() -> None:
    machine = read(amd_smi_new(), "amd-smi")
    assert class_of(machine, "gpu0", "gpu1") == "NVL"
    assert class_of(machine, "gpu0", "gpu2") == "SYS"
    link = machine.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]
    assert (link["count"], link["nominal_Bps"]) == (1, 64e9)
    assert [machine.graph.nodes[g]["bus_id"] for g in machine.accelerators] == BDFS
    assert machine.graph.graph["no_peer_pairs"] == [["gpu0", "gpu2"], ["gpu1", "gpu2"]]


def test_amd_smi_in_other_forms() -> None:
    old = read(amd_smi_old(), "amd-smi")
    check_three_gpus(old)
    assert old.graph.graph["peer_access"] is True
    words = read("$ amd-smi topology\n" + amd_smi_words(), "amd-smi")
    check_three_gpus(words)
    assert words.graph.nodes["gpu2"]["bus_id"] == BDFS[2]
    outer = json.dumps({"topology": json.loads(amd_smi_new())})
    assert class_of(read(outer, "amd-smi"), "gpu0", "gpu2") == "SYS"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (amd_smi_new()[:300], "damaged JSON"),
        ('[{"gpu": "x", "link_type": 1}]', "an entry has no GPU number"),
        ('{"link_type": 1}', "describes no GPUs"),
        ("WEIGHT TABLE:\n", "describes no GPUs"),
        ('[{"gpu": 1e999, "link_type": 1}]', "damaged JSON|no GPU number"),
    ],
)
def test_damaged_amd_smi(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(text, "amd-smi")


# TransferBench

TRANSFERBENCH = """TransferBench v1.60
        | GPU 00 | GPU 01 | GPU 02 | PCIe Bus ID  | #CUs | NUMA | DMA engines
--------+--------+--------+--------+--------------+------+------+------------
 GPU 00 |    -   | XGMI-1 | PCIE-3 | 0000:0c:00.0 |  304 | 0    |0,1,2
 GPU 01 | XGMI-1 |    -   | PCIE-3 | 0000:22:00.0 |  304 | 0    |0,1,2
 GPU 02 | PCIE-3 | PCIE-3 |    -   | 0000:38:00.0 |  304 | 1    |0,1,2

 NIC | Device Name | Active | PCIe Bus ID  | NUMA | Closest GPU(s) | GID Index | GID Descriptor
-----+-------------+--------+--------------+------+----------------+-----------+---------------
 0   | mlx5_0      | Yes    | 0000:0d:00.0 | 0    | 0              | 3         | RoCE v2
 1   | mlx5_1      | Yes    | 0000:39:00.0 | 1    | 2              | 3         | RoCE v2
"""


def test_transferbench() -> None:
    machine = read(TRANSFERBENCH, "transferbench-topology")
    assert machine.endpoints == ("gpu0", "gpu1", "gpu2", "nic0", "nic1")
    assert class_of(machine, "gpu0", "gpu1") == "NVL"
    assert class_of(machine, "gpu1", "gpu2") == "SYS"
    node = machine.graph.nodes["gpu2"]
    assert (node["bus_id"], node["compute_units"], node["dma_engines"], node["numa"]) == (
        "0000:38:00.0",
        304,
        3,
        1,
    )
    nic = machine.graph.nodes["nic1"]
    assert (nic["net_names"], nic["bus_id"], nic["numa"]) == (["mlx5_1"], "0000:39:00.0", 1)


def test_an_output_that_is_pasted_twice() -> None:
    twice = read(TRANSFERBENCH + "\n" + TRANSFERBENCH, "transferbench-topology")
    assert twice == read(TRANSFERBENCH, "transferbench-topology")


def test_damaged_transferbench() -> None:
    cut = TRANSFERBENCH[: TRANSFERBENCH.index("| 0000:38")]
    assert "the row of GPU 2 is cut off" in notes(read(cut, "transferbench-topology"))
    with pytest.raises(FormatError, match=r"x:4: cell 'xgmi' of GPU 0 is no link type"):
        read(TRANSFERBENCH.replace("XGMI-1", "xgmi", 1), "transferbench-topology")
    with pytest.raises(FormatError, match="no table of GPUs"):
        read(TRANSFERBENCH.split("\n---")[0], "transferbench-topology")


# Other makes' words for the same tables, and bandwidths that the driver does not know


def test_hygon_prints_the_same_tables_of_hcus() -> None:
    text = (
        table("Hops between two HCUs", [[0, 1], [1, 0]])
        + table("Link Type between two HCUs", [[0, "HSW"], ["HSW", 0]])
        + "GPU[0]\t\t: (Topology) Numa Node 0\nGPU[1]\t\t: (Topology) Numa Node 1\n"
        + table("Link accessible between two HCUs", [["TRUE", "TRUE"], ["TRUE", "TRUE"]])
    ).replace("GPU", "HCU")
    topology = read(text, "rocm-showtopo")
    link = topology.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]
    assert (link["kind"], link["fabric"]) == (LinkKind.FABRIC, "HSW")
    assert topology.graph.nodes["gpu1"]["numa"] == 1
    assert topology.graph.graph["peer_access"] is True


def test_a_bandwidth_of_nothing_everywhere_is_unknown_and_no_relay() -> None:
    text = """\
LINK TYPE TABLE:
             0000:0d:00.0 0000:26:00.0 0000:5d:00.0
0000:0d:00.0 SELF         XGMI         XGMI
0000:26:00.0 XGMI         SELF         XGMI
0000:5d:00.0 XGMI         XGMI         SELF
NUMA BW TABLE:
             0000:0d:00.0 0000:26:00.0 0000:5d:00.0
0000:0d:00.0 N/A          0-0          0-0
0000:26:00.0 0-0          N/A          0-0
0000:5d:00.0 0-0          0-0          N/A
"""
    topology = read(text, "amd-smi")
    assert {c for _, _, c in topology.graph.graph["stated_classes"]} == {"NVL"}
    link = topology.graph.edges["gpu0", "gpu1", "gpu0->gpu1"]
    assert link["nominal_Bps"] is None
    # Where the driver knows it of other pairs, nothing means that others relay.
    known = text.replace("N/A          0-0 ", "N/A          50000-50000 ").replace(
        "0000:26:00.0 0-0 ", "0000:26:00.0 50000-50000 "
    )
    assert "NVB" in {c for _, _, c in read(known, "amd-smi").graph.graph["stated_classes"]}


CSV_OF_TABLES = """\
gpu,link_accessibility_gpu_0,link_accessibility_gpu_1,weight_gpu_0,weight_gpu_1,hops_gpu_0,\
hops_gpu_1,link_type_gpu_0,link_type_gpu_1,numa_bandwidth_gpu_0,numa_bandwidth_gpu_1
0,ENABLED,ENABLED,0,15,0,1,SELF,XGMI,N/A,50000-50000
1,ENABLED,ENABLED,15,0,1,0,XGMI,SELF,50000-50000,N/A
"""
CSV_OF_PAIRS = """\
gpu,bdf,links_gpu,links_bdf,weight,link_status,link_type,num_hops,bandwidth
0,0000:05:00.0,0,0000:05:00.0,0,ENABLED,SELF,0,N/A
0,0000:05:00.0,1,0000:26:00.0,40,DISABLED,PCIE,2,N/A
1,0000:26:00.0,0,0000:05:00.0,40,DISABLED,PCIE,2,N/A
1,0000:26:00.0,1,0000:26:00.0,0,ENABLED,SELF,0,N/A
"""


def test_amd_smi_as_csv_of_tables() -> None:
    assert sniff(CSV_OF_TABLES, file="a.csv").name == "amd-smi"
    topology = parse_any(CSV_OF_TABLES, file="a.csv")
    assert topology.accelerators == ("gpu0", "gpu1")
    route = topology.routes().route("gpu0", "gpu1")
    assert {topology.links[k].kind for k in route} == {LinkKind.XGMI}
    assert topology.links[route[0]].nominal_Bps == 50e9
    assert topology.graph.graph["peer_access"] is True


def test_amd_smi_as_csv_of_pairs() -> None:
    topology = parse_any(CSV_OF_PAIRS, file="a.csv")
    assert topology.graph.nodes["gpu1"]["bus_id"] == "0000:26:00.0"
    assert topology.graph.graph["peer_access"] is False
    assert topology.routes(("gpu0", "gpu1")).path_class[0, 1] == PathClass.PHB


def test_other_csv_that_begins_with_a_gpu_is_none_of_it() -> None:
    with pytest.raises(FormatError):
        sniff("gpu,temperature,power\n0,41,90\n", file="a.csv")
