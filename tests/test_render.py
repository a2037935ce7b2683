"""Outlines, sharing and drawings: what stands where, and that nothing covers anything."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import TopocalError
from topocal.topo.fabric import dragonfly, fat_tree
from topocal.topo.machines import (
    MACHINES,
    b70,
    dgx_a100,
    random_cluster,
    random_fabric_set,
    random_pcie_tree,
)
from topocal.topo.machines.server import Server
from topocal.topo.readers.registry import read_any
from topocal.topo.render.drawing import Box, Drawing, Text, shorten, shorten_apart, text_width
from topocal.topo.render.outline import outline
from topocal.topo.render.sharing import list_names, shared_resources
from topocal.topo.render.svg import draw, render_svg
from topocal.topo.resource import LinkKind, NodeKind, Sharing
from topocal.topo.topology import Topology

CASES = Path(__file__).parents[1].parent / "shared" / "cases"
SVG = "{http://www.w3.org/2000/svg}"

Corners = list[tuple[float, float]]


def tree_of(gpus: int) -> Topology:
    """Four GPUs to a switch, two sockets."""
    server = Server(f"tree{gpus}", source="test")
    for k in range(gpus):
        if k % 4 == 0:
            switch = server.switch(f"socket{2 * k // gpus}", 4, 16)
        server.gpu(switch, 4, 16)
    return server.done()


def ring_of(gpus: int) -> Topology:
    """GPUs that are all joined directly, without a host."""
    build = TopologyBuilder(f"ring{gpus}")
    for k in range(gpus):
        build.node(f"gpu{k}", NodeKind.GPU)
    for a, b in combinations(range(gpus), 2):
        build.connect(f"gpu{a}", f"gpu{b}", LinkKind.XGMI, nominal_Bps=64e9 * (1 + (a + b) % 3))
    return build.build()


def hubs_of(switches: int) -> Topology:
    """Sixteen GPUs shared out over several fabric switches."""
    build = TopologyBuilder(f"hubs{switches}")
    for k in range(switches):
        build.node(f"nvswitch{k}", NodeKind.NVSWITCH, label="six chips of one board")
    for k in range(16):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"nvswitch{k * switches // 16}", LinkKind.NVLINK)
    return build.build()


def four_sockets() -> Topology:
    server = Server("four", source="test", sockets=4, smp_Bps=20.8e9)
    for k in range(4):
        server.gpu(f"socket{k}", 3, 16)
    return server.done()


def second_parent() -> Topology:
    """One switch under two sockets, and names that are long, strange or empty."""
    build = TopologyBuilder("x" * 300 + "<&>\x07\n")
    for k in range(2):
        build.node(f"socket{k}", NodeKind.SOCKET, label="NUMA node " + "0" * 99)
    build.connect("socket0", "socket1", LinkKind.SMP, nominal_Bps=2e10, back_Bps=1e10)
    build.node("switch<&>\x00", NodeKind.PCIE_SWITCH)
    for k in range(2):
        build.connect("switch<&>\x00", f"socket{k}", LinkKind.PCIE, sharing=Sharing.DUPLEX)
    build.node("显卡0", NodeKind.GPU, model="加速器" * 30)
    build.node("gpu1", NodeKind.GPU, label="]]>")
    for name in ("显卡0", "gpu1"):
        build.connect(name, "switch<&>\x00", LinkKind.PCIE, generation=4, width=16)
    return build.build()


def chain() -> Topology:
    """A NIC that hides a switch: an endpoint with children, and switches in a row."""
    build = TopologyBuilder("chain")
    build.node("socket0", NodeKind.SOCKET)
    above = "socket0"
    for k in range(12):
        build.node(f"switch{k}", NodeKind.PCIE_SWITCH)
        build.connect(f"switch{k}", above, LinkKind.PCIE, generation=4, width=8)
        above = f"switch{k}"
    build.node("nic0", NodeKind.NIC, model="with a switch inside")
    build.node("gpu0", NodeKind.GPU)
    build.connect("nic0", above, LinkKind.PCIE, generation=5, width=16)
    build.connect("gpu0", "nic0", LinkKind.PCIE, generation=5, width=16)
    return build.build()


def lone() -> Topology:
    build = TopologyBuilder("")
    build.node("gpu0", NodeKind.GPU)
    return build.build()


DRAWN = {
    **{name: machine.build for name, machine in MACHINES.items()},
    **{f"tree{n}": lambda n=n: tree_of(n) for n in (8, 16, 64)},
    **{f"ring{n}": lambda n=n: ring_of(n) for n in (2, 3, 8, 16, 17, 64)},
    **{f"hubs{n}": lambda n=n: hubs_of(n) for n in (1, 2, 3, 6, 7)},
    "four sockets": four_sockets,
    "second parent": second_parent,
    "chain": chain,
    "lone": lone,
    "large fat tree": lambda: fat_tree([dgx_a100()] * 96, nodes_per_leaf=2, spines=8),
    "dragonfly": lambda: dragonfly([dgx_a100()] * 24, nodes_per_router=2, routers_per_group=4),
}


def corners(shape: Box | Text) -> Corners:
    """A box as it is, or what a text covers: its letters' height, turned as it is."""
    if isinstance(shape, Box):
        left, right = shape.x, shape.x + shape.width
        top, bottom = shape.y, shape.y + shape.height
        return [(left, top), (right, top), (right, bottom), (left, bottom)]
    left, right = shape.left, shape.left + text_width(shape.text, shape.size)
    top, bottom = shape.y - 0.74 * shape.size, shape.y + 0.2 * shape.size
    turn = math.radians(shape.turn)
    found = []
    for x, y in ((left, top), (right, top), (right, bottom), (left, bottom)):
        dx, dy = x - shape.x, y - shape.y
        found.append(
            (
                shape.x + dx * math.cos(turn) - dy * math.sin(turn),
                shape.y + dx * math.sin(turn) + dy * math.cos(turn),
            )
        )
    return found


def overlap(a: Corners, b: Corners) -> bool:
    """Whether two convex shapes cover each other: no side of either separates them."""
    for shape in (a, b):
        for (x1, y1), (x2, y2) in zip(shape, shape[1:] + shape[:1], strict=True):
            nx, ny = y2 - y1, x1 - x2
            first = [nx * x + ny * y for x, y in a]
            second = [nx * x + ny * y for x, y in b]
            if max(first) <= min(second) + 1e-6 or max(second) <= min(first) + 1e-6:
                return False
    return True


def collisions(drawing: Drawing) -> list[str]:
    """Texts and boxes that cover each other; a box's own text is meant to."""
    shapes: list[tuple[str, Corners, Box | Text]] = [
        *((box.style, corners(box), box) for box in drawing.boxes if box.style != "machine"),
        *((text.text, corners(text), text) for text in drawing.texts),
    ]
    shapes.sort(key=lambda s: min(y for _, y in s[1]))
    found = []
    for k, (name, a, shape) in enumerate(shapes):
        bottom = max(y for _, y in a)
        for other_name, b, other in shapes[k + 1 :]:
            if min(y for _, y in b) >= bottom:
                break
            kinds = {type(shape), type(other)}
            texts = [s for s in (shape, other) if isinstance(s, Text)]
            if kinds == {Box, Text} and texts[0].style == "on-box":
                continue
            if overlap(a, b):
                found.append(f"{name} / {other_name}")
    return found


def crossings(drawing: Drawing) -> list[str]:
    """Texts that a line of a tree or between neighbouring sockets runs through."""
    found = []
    for line in drawing.lines:
        if line.style not in ("link", "smp"):
            continue
        half = line.thick / 2
        left, right = sorted((line.x1, line.x2))
        top, bottom = sorted((line.y1, line.y2))
        thin = [
            (left - half, top - half), (right + half, top - half),
            (right + half, bottom + half), (left - half, bottom + half),
        ]  # fmt: skip
        found += [
            text.text
            for text in drawing.texts
            if text.style != "on-box" and overlap(thin, corners(text))
        ]
    return found


def check(drawing: Drawing) -> None:
    assert collisions(drawing) == []
    assert crossings(drawing) == []
    for shape in (*drawing.boxes, *drawing.texts):
        for x, y in corners(shape):
            assert -0.5 <= x <= drawing.width + 0.5
            assert -0.5 <= y <= drawing.height + 0.5
    assert all(text.size >= 10 for text in drawing.texts)
    for text in drawing.texts:
        if text.style == "on-box":
            assert any(
                box.x <= text.left and text.left + text_width(text.text) <= box.x + box.width
                for box in drawing.boxes
                if box.y <= text.y <= box.y + box.height
            )


@pytest.mark.parametrize("name", DRAWN)
def test_nothing_covers_anything(name: str) -> None:
    check(draw(DRAWN[name]()))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20))
def test_nothing_covers_anything_on_random_machines(seed: int, gpus: int) -> None:
    rng = np.random.default_rng(seed)
    check(draw(random_pcie_tree(rng, gpus=gpus, nics=int(rng.integers(3)))))
    check(draw(random_fabric_set(rng, gpus=gpus)))
    check(draw(random_cluster(rng, nodes=int(rng.integers(1, 5)), gpus=2)))


@pytest.mark.skipif(not CASES.is_dir(), reason="the public cases are not here")
def test_nothing_covers_anything_on_public_machines() -> None:
    drawn = 0
    for path in sorted(CASES.rglob("*.*")):
        if path.suffix not in (".txt", ".xml"):
            continue
        try:
            topology = read_any(path)
        except TopocalError:
            continue
        check(draw(topology))
        drawn += 1
    assert drawn > 20


@pytest.mark.parametrize("name", DRAWN)
def test_the_svg_is_well_formed_and_complete(name: str) -> None:
    topology = DRAWN[name]()
    drawing, text = draw(topology), render_svg(topology)
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert words == [t.text for t in drawing.texts]
    assert len(list(root.iter(f"{SVG}line"))) == len(drawing.lines)
    assert len(list(root.iter(f"{SVG}path"))) == len(drawing.curves)
    assert "prefers-color-scheme: dark" in text
    assert render_svg(topology) == text


def test_every_endpoint_of_a_small_machine_is_named() -> None:
    words = {text.text for text in draw(MACHINES["dgx1"].build()).texts}
    assert {*(f"gpu{k}" for k in range(8)), *(f"nic{k}" for k in range(4))} <= words
    assert any("2 × NVLink 2 · 50 GB/s each way (8 links)" in word for word in words)


def test_machines_that_differ_in_names_only_are_drawn_once() -> None:
    words = [text.text for text in draw(MACHINES["rail-pod"].build()).texts]
    assert "node0–7 (8 alike)" in words
    assert words.count("switch0") == 1
    assert "node0–7/nic3" in words
    pair = [text.text for text in draw(MACHINES["h20-pair"].build()).texts]
    assert pair.count("switch1") == 2


def test_chords_join_the_gpus_that_have_links() -> None:
    drawing = draw(MACHINES["mi300x"].build())
    assert sum("chord" in line.style for line in drawing.lines) == 28 + 1


def test_outline_of_a_tree() -> None:
    parts = outline(b70())
    (machine,) = parts.machines
    assert [root.node for root in machine.roots] == ["socket0", "socket1"]
    assert machine.nodes[:4] == ["socket0", "switch0", "gpu0", "gpu1"]
    assert [link.text for link in machine.sockets] == ["SMP"]
    assert parts.switches == () == parts.network


def test_outline_keeps_second_parents_beside_the_tree() -> None:
    (machine,) = outline(second_parent()).machines
    assert [(link.a, link.b) for link in machine.others] == [("socket1", "switch<&>\x00")]
    assert "20 GB/s socket0→socket1, 10 GB/s back" in machine.sockets[0].text


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({}, "PCIe"),
        ({"generation": 4}, "PCIe 4.0"),
        ({"width": 8}, "PCIe x8"),
        ({"generation": 5, "width": 16, "nominal_Bps": 57.6e9}, "PCIe 5.0 x16 · 57.6 GB/s"),
        ({"sharing": Sharing.DUPLEX, "nominal_Bps": 1e9}, "PCIe · 1 GB/s both ways together"),
    ],
)
def test_links_in_words(attributes: dict[str, object], text: str) -> None:
    build = TopologyBuilder("one link")
    build.node("socket0", NodeKind.SOCKET)
    build.node("gpu0", NodeKind.GPU)
    build.connect("gpu0", "socket0", LinkKind.PCIE, **attributes)  # type: ignore[arg-type]
    (machine,) = outline(build.build()).machines
    connection = machine.roots[0].children[0].connection
    assert connection is not None
    assert connection.text == text


def test_one_way_links_are_told() -> None:
    topology = b70()
    graph = topology.graph.copy()
    graph.remove_edge("gpu0", "switch0")
    (machine,) = outline(Topology(graph)).machines
    texts = [b.connection.text for root in machine.roots for b in root.walk() if b.connection]
    assert "PCIe · one way" in texts


def test_who_shares_what() -> None:
    rows = {row.resource.id: row for row in shared_resources(b70())}
    up = rows["switch0->socket0"]
    assert (up.sources, up.pairs, up.heaviest) == (("gpu0", "gpu1"), 12, 1)
    assert up.destinations == tuple(f"gpu{k}" for k in range(2, 8))
    assert not up.is_private
    assert rows["gpu0->switch0"].is_private
    assert rows["socket0->socket1"].pairs == 16


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["gpu1", "gpu0"], "gpu0–1"),
        (["gpu0", "gpu2", "gpu3", "nic0"], "gpu0, gpu2–3, nic0"),
        (["gpu01", "gpu02"], "gpu01, gpu02"),
        ([f"n{n}/gpu{k}" for n in range(3) for k in range(4)], "n0–2/gpu0–3"),
        (["n0/gpu0", "n0/gpu2", "n1/gpu0"], "n0/(gpu0, gpu2), n1/gpu0"),
        (["x" + "9" * 40], "x" + "9" * 40),
        (["a٣"], "a٣"),
    ],
)
def test_names_in_short(names: list[str], text: str) -> None:
    assert list_names(names) == text


@given(st.text(), st.integers(5, 60))
def test_texts_are_cut_to_one_printable_line(text: str, longest: int) -> None:
    short = shorten(text, longest)
    assert len(short) <= longest
    assert short.isprintable()


def test_wide_characters_take_more_room() -> None:
    assert text_width("显卡") > text_width("gp")


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(min_size=1, max_size=60), max_size=6), st.integers(6, 40))
def test_texts_cut_apart_fit_and_merge_no_more_than_cut_texts(
    texts: list[str], longest: int
) -> None:
    cut = shorten_apart(texts, longest)
    assert len(cut) == len(texts)
    assert all(len(text) <= longest for text in cut)
    assert len(set(cut)) >= len({shorten(text, longest) for text in texts})


@settings(deadline=None, max_examples=100)
@given(st.integers(2, 12), st.integers(8, 30))
def test_long_names_that_differ_in_a_number_stay_apart(count: int, longest: int) -> None:
    """However little fits, the number that tells sixty characters apart is shown."""
    names = [f"accelerator-card-number-{k}-in-the-second-row-of-racks" for k in range(count)]
    assert len(set(shorten_apart(names, longest))) == count
