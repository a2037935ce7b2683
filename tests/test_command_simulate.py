"""``topocal simulate``: what it prints, writes and draws; every mistake in one line."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from topocal.commands.simulate import simulate
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.errors import InputError, TopocalError
from topocal.topo.flow import Flow
from topocal.topo.fluid import FluidResult
from topocal.topo.fluid import simulate as run
from topocal.topo.io import write_topology
from topocal.topo.render.drawing import text_width
from topocal.topo.render.gantt import MOST_FLOWS, colours_of, gantt_svg
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use

SVG = "{http://www.w3.org/2000/svg}"

FLOWS = """source,destination,size,start
0,2,8GB,0
1,2,4GB,0
0,1,1GB,1s
3,3,1GB,0
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two GPUs to each of two switches; 8 GB/s each, 4 GB/s across; a link of unknown speed."""
    build = TopologyBuilder("small")
    build.node("switch0", NodeKind.PCIE_SWITCH)
    build.node("switch1", NodeKind.PCIE_SWITCH)
    build.connect("switch0", "switch1", LinkKind.PCIE, nominal_Bps=4e9)
    for k in range(4):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", f"switch{k // 2}", LinkKind.PCIE, nominal_Bps=8e9)
    build.node("gpu4", NodeKind.GPU)
    build.connect("gpu4", "switch1", LinkKind.PCIE)
    path = tmp_path / "machine.json"
    write_topology(build.build(), path)
    return path


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    path = tmp_path / "flows.csv"
    path.write_text(FLOWS)
    return path


def as_json(
    capsys: pytest.CaptureFixture[str], model: str, flows: Path, **options: Any
) -> dict[str, Any]:
    simulate(model, flows, **options | {"as_json": True})
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_is_printed(machine: Path, flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Across at 4 GB/s: 2 each until the 4 GB are through at 2; then 4: 2 + 4/4 = 3.
    simulate(str(machine), flows)
    out = capsys.readouterr().out
    assert "4 flows on small (nominal capacities): done after 3 s." in out
    assert "Closed form: at least 3 s, busiest switch0->switch1; without it 1.5 s" in out
    rows = [line.split() for line in out.splitlines() if "->" in line and "GB" in line]
    assert " ".join(rows[0]) == "gpu0 -> gpu2 8 GB 0 3 s 2.67 GB/s switch0->switch1"
    assert rows[3][-1] == "nothing"


def test_json_has_all_of_it(machine: Path, flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, str(machine), flows, alpha="250ms")
    assert found["seconds"] == pytest.approx(3.25)
    assert found["closed_form"] == {
        "seconds": pytest.approx(3.25),
        "exact": False,
        "bottleneck": "switch0->switch1",
        "runner_up": "switch1->gpu2",
        "seconds_without_bottleneck": pytest.approx(1.75),
    }
    finishes = [f["finish_s"] for f in found["flows"]]
    assert finishes == pytest.approx([3.25, 2.25, 1.25 + 1 / 6, 0.25])
    assert found["flows"][2] == {
        "source": "gpu0",
        "destination": "gpu1",
        "size_bytes": 1e9,
        "start_s": 1.0,
        "begin_s": 1.25,
        "finish_s": pytest.approx(1.25 + 1 / 6),
        "throughput_Bps": pytest.approx(1e9 / (0.25 + 1 / 6)),
        "bottleneck": "gpu0->switch0",
    }
    assert "before" not in found


def test_what_if(machine: Path, flows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, str(machine), flows, settings=["switch0->switch1=2x"])
    assert found["changes"] == ["switch0->switch1 × 2"]
    assert found["before"]["seconds"] == pytest.approx(3.0)
    assert found["seconds"] == pytest.approx(1.5 + 1 / 8)
    simulate(
        str(machine),
        flows,
        settings=["switch0->switch1=2x"],
        remove=["gpu1<->switch0"],
        add_link=["gpu1<->switch1=1GB/s"],
    )
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "What if with gpu1<->switch1 at 1 GB/s; without gpu1<->switch0; switch0->switch1 × 2: "
        "3 s before, 4 s after (+33.3%)."
    ) in out
    assert "before" in out


def test_a_route_of_ones_own(
    machine: Path, flows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = as_json(
        capsys,
        str(machine),
        flows,
        add_link=["gpu0->gpu3=1GB/s"],
        route=["gpu0->gpu2=gpu3,switch1"],
    )
    assert found["flows"][0]["finish_s"] == pytest.approx(8.0)
    assert found["flows"][0]["bottleneck"] == "gpu0->gpu3"


def test_unknown_capacities(
    machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flows = tmp_path / "far.csv"
    flows.write_text("source,destination,size\n4,2,8GB\n")
    with pytest.raises(TopocalError, match="gpu4->switch1 is unknown; give it, for example --set"):
        simulate(str(machine), flows)
    # That completes the machine and is no change of it.
    found = as_json(capsys, str(machine), flows, settings=["gpu4->switch1=2GB/s"])
    assert found["seconds"] == pytest.approx(4.0)
    assert found["changes"] == []
    found = as_json(capsys, str(machine), flows, default="1GB/s")
    assert found["seconds"] == pytest.approx(8.0)
    assert found["capacities"] == "nominal or 1 GB/s"


def test_results_are_written(
    machine: Path, flows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, document = tmp_path / "out.csv", tmp_path / "out.json"
    simulate(str(machine), flows, settings=["switch0->switch1=2x"], output=table)
    assert f"wrote {table}" in capsys.readouterr().out.replace("\n", "")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [float(row["finish_before_s"]) for row in rows][:2] == pytest.approx([3.0, 2.0])
    assert rows[3]["bottleneck"] == ""
    simulate(str(machine), flows, output=document, as_json=True)
    assert json.loads(document.read_text()) == json.loads(capsys.readouterr().out)


def test_many_patterns(machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flows = tmp_path / "many.csv"
    lines = ["pattern,source,destination,size"]
    for k in range(60):
        lines += [f"p{k},0,2,{1 + k % 2}GB", f"p{k},1,3,1GB"]
    flows.write_text("\n".join(lines))
    found = as_json(capsys, str(machine), flows, settings=["switch0->switch1=inf"])
    assert len(found["patterns"]) == 60
    assert found["patterns"][0] == {
        "pattern": "p0",
        "flows": 2,
        "seconds": 0.125,
        "simulated": False,
        "bottleneck": "gpu0->switch0",
        "seconds_before": 0.5,
    }
    assert found["patterns"][1]["simulated"]
    assert found["patterns"][1]["seconds_before"] == pytest.approx(0.75)
    simulate(str(machine), flows, settings=["switch0->switch1=0"], output=tmp_path / "finishes.csv")
    out = capsys.readouterr().out
    assert "60 patterns on small (nominal capacities): 30 by the closed form" in out
    assert "never" in out
    assert "and 20 more patterns; -o or --json gives all" in out
    rows = list(csv.DictReader((tmp_path / "finishes.csv").read_text().splitlines()))
    assert rows[0]["seconds"] == ""
    assert float(rows[1]["seconds_before"]) == pytest.approx(0.75)


def test_a_fitted_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from topocal.published import tell
    from topocal.solve.model import write_model

    path = tmp_path / "model.json"
    write_model(tell().model, path)
    flows = tmp_path / "flows.csv"
    flows.write_text("source,destination,size\n4,3,256MiB\n5,3,256MiB\n6,3,256MiB\n7,3,256MiB\n")
    found = as_json(capsys, str(path), flows)
    assert found["capacities"] == "fitted"
    # Published: 27.9 GB/s into card 3 from the other socket.
    assert 4 * 2**28 / found["seconds"] == pytest.approx(27.9e9, rel=0.05)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"settings": ["cross0"]}, "'cross0' sets nothing"),
    ({"settings": ["cross0=2x"]}, "unknown resource 'cross0'"),
    ({"settings": ["switch0->switch1=0"]}, "gpu0->gpu2 never finishes: switch0->switch1 passes"),
    ({"remove": ["gpu0->switch0"]}, "no route from gpu0 to gpu2"),
    ({"remove": ["nothing"]}, "unknown resource 'nothing'"),
    ({"add_link": ["gpu0->gpu9=1GB/s"]}, "unknown node 'gpu9'"),
    ({"route": ["gpu0->gpu2=switch1"]}, "no link from gpu0 to switch1"),
    ({"alpha": "soon"}, "'soon' is not a time"),
    ({"default": "quick"}, "'quick' is not a rate"),
    ({"output": Path("results.txt")}, "results.txt: is neither .csv nor .json"),
    ({"output": Path("/nowhere/at/all.csv")}, "cannot be written"),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes(machine: Path, flows: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TopocalError) as caught:
        simulate(str(machine), flows, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_drawings_show_one_pattern(machine: Path, tmp_path: Path) -> None:
    flows = tmp_path / "two.csv"
    flows.write_text("pattern,source,destination,size\na,0,1,1GB\nb,0,1,1GB\n")
    with pytest.raises(InputError, match="has 2 patterns and a drawing shows one"):
        simulate(str(machine), flows, svg=tmp_path / "x.svg")


def test_the_command_line(machine: Path, flows: Path, tmp_path: Path) -> None:
    def topocal(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "topocal", "simulate", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )

    done = topocal(str(machine), str(flows), "--set", "switch0->switch1=2x", "--html", "x.html")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "What if switch0->switch1 × 2: 3 s before" in done.stdout
    assert (tmp_path / "x.html").exists()
    done = topocal(str(machine), str(tmp_path / "none.csv"))
    assert done.returncode == 2
    assert done.stderr.startswith("topocal: ")
    assert done.stderr.count("\n") == 1
    flows.write_text(FLOWS + "0,1,5 apples,0\n")
    done = topocal(str(machine), str(flows))
    assert done.returncode == 2
    assert f"{flows}:6: '5 apples' is not a size" in done.stderr


def texts_of(svg: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(f"{SVG}text"))


def check_drawing(svg: str) -> None:
    """It is SVG, nothing reaches over the page's edge, and no label lies on another."""
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    assert not any(math.isnan(v) for v in (width, height))
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("class") == "page":
            continue
        x, w = float(rect.get("x", "nan")), float(rect.get("width", "nan"))
        y, h = float(rect.get("y", "nan")), float(rect.get("height", "nan"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width + 1
        assert y + h <= height + 1
    labels = []
    for text in root.iter(f"{SVG}text"):
        size = float(text.get("font-size", "nan"))
        wide = text_width(text.text or "", size)
        x = float(text.get("x", "nan"))
        left = x - {None: 0.0, "middle": wide / 2, "end": wide}[text.get("text-anchor")]
        assert left >= 0
        if text.get("class") not in ("title", "quiet"):
            labels.append((left, left + wide, float(text.get("y", "nan")), size))
    for k, (a, b, y, size) in enumerate(labels):
        for c, d, z, other in labels[k + 1 :]:
            assert b <= c or d <= a or abs(y - z) >= 0.7 * min(size, other)


def recorded(count: int, hosts: int = 6, *, in_order: bool = False) -> FluidResult:
    build = TopologyBuilder("star")
    build.node("switch0", NodeKind.PCIE_SWITCH)
    for k in range(hosts):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=1.0 + k)
        build.resource(Resource(id=f"engine {k}", sharing=Sharing.TIME_SHARED, in_order=in_order))
        build.use(Use(resource=f"engine {k}", destinations=(f"gpu{k}",)))
    topology = build.build()
    flows = [
        Flow(
            source=f"gpu{k % hosts}",
            destination=f"gpu{(k * 5 + 1) % hosts}",
            size_bytes=1.0 + k % 7,
            start_s=0.3 * (k % 4),
        )
        for k in range(count)
    ]
    return run(topology, flows, Capacities.of(topology), record=True)


@pytest.mark.parametrize("count", [1, 2, 24, 60, 150, 300])
@pytest.mark.parametrize("width", [480.0, 960.0, 1600.0])
def test_drawings_of_any_size(count: int, width: float) -> None:
    result = recorded(count, hosts=min(40, 4 + count // 4), in_order=count % 2 == 0)
    svg = gantt_svg(result, title=f"{count} flows", width=width)
    check_drawing(svg)
    rows = [t.text or "" for t in texts_of(svg) if "→" in (t.text or "")]
    assert len(rows) == min(count, MOST_FLOWS)


def test_bars_stand_where_flows_move() -> None:
    result = recorded(4, in_order=True)
    svg = gantt_svg(result, title="four", until_s=2 * result.seconds)
    root = ElementTree.fromstring(svg)
    hints = [t.text or "" for t in root.iter(f"{SVG}title")]
    segments = sum(len(result.segments(k)) for k in range(4))
    assert len(hints) == 1 + segments
    assert any("limited by" in hint for hint in hints)
    # The axis is twice as long as the flows take: all bars end in its left half.
    bars = [r for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    band = next(r for r in root.iter(f"{SVG}rect") if r.get("class") == "band")
    left, wide = float(band.get("x", "0")), float(band.get("width", "0"))
    ends = [float(r.get("x", "0")) + float(r.get("width", "0")) for r in bars]
    assert max(ends) == pytest.approx(left + wide / 2, abs=1.0)


def test_waiting_is_drawn_as_waiting() -> None:
    build = TopologyBuilder("queue")
    for k in range(3):
        build.node(f"gpu{k}", NodeKind.GPU)
    build.connect("gpu0", "gpu2", LinkKind.NVLINK, nominal_Bps=1.0)
    build.connect("gpu1", "gpu2", LinkKind.NVLINK, nominal_Bps=1.0)
    build.resource(Resource(id="engine", sharing=Sharing.TIME_SHARED, in_order=True))
    build.use(Use(resource="engine", destinations=("gpu2",)))
    topology = build.build()
    flows = [Flow(source=f"gpu{k}", destination="gpu2", size_bytes=1.0) for k in range(2)]
    result = run(topology, flows, Capacities.of(topology), record=True)
    svg = gantt_svg(result, title="<queue> & co", labels={"engine": "receive engine"})
    assert "waits for receive engine" in svg
    assert "&lt;queue&gt; &amp; co" in svg
    check_drawing(svg)
    assert set(colours_of(result)) == {"engine", "gpu0->gpu2", "gpu1->gpu2"}


def test_nothing_to_draw_is_drawn_too() -> None:
    build = TopologyBuilder("one")
    build.node("gpu0", NodeKind.GPU)
    topology = build.build()
    flows = [Flow(source="gpu0", destination="gpu0", size_bytes=1.0)]
    result = run(topology, flows, Capacities.of(topology), record=True)
    check_drawing(gantt_svg(result, title="nothing"))


def test_pages_compare(
    machine: Path, flows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, drawing = tmp_path / "page.html", tmp_path / "drawing.svg"
    simulate(str(machine), flows, settings=["switch0->switch1=2x"], html=page, svg=drawing)
    capsys.readouterr()
    text = page.read_text()
    assert text.count("<svg") == 2
    assert "3 s before" in text
    assert '<th scope="col">before</th>' in text
    assert "http-equiv" not in text
    assert "src=" not in text
    check_drawing(drawing.read_text())


def test_the_example_of_the_documentation_runs() -> None:
    text = (Path(__file__).parents[1] / "docs" / "simulator.md").read_text()
    example = re.search(r"^```python\n(from topocal.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert example is not None
    found: dict[str, Any] = {}
    exec(compile(example[1], "docs/simulator.md", "exec"), found)
    # Both share gpu4's 450 GB/s.
    assert found["result"].rates_Bps(1.1e-3).tolist() == pytest.approx([225e9, 225e9])
