"""The report as data and as a file; what a browser makes of it is in test_report_browser.py."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal import cli
from topocal.measure.load import load
from topocal.measure.patterns import fan_in, fan_out, peer
from topocal.measure.samples import Measurements
from topocal.measure.simulated import SimulatedMachine
from topocal.report.answers import findings_of
from topocal.report.families import fold
from topocal.report.figures import (
    MOST_ENDPOINTS,
    find_figures,
    lone_rates_Bps,
    measured_of,
    reachable,
    shown_endpoints,
)
from topocal.report.heat import heat_maps
from topocal.report.page import Report, build_report, render_report
from topocal.report.words import Unit, file_name, unit_for
from topocal.solve.explain import explain
from topocal.solve.fit import fit
from topocal.solve.model import FittedResource, Model, Residual, write_model
from topocal.solve.predict import predict
from topocal.solve.status import Status
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.errors import TopocalError
from topocal.topo.machines import (
    b70,
    dgx1,
    dgx_a100,
    dgx_h100,
    fat_tree_cluster,
    gh200,
    h20_pair,
    l40s,
    mi250x,
    rail_pod,
    random_cluster,
    random_pcie_tree,
)
from topocal.topo.render.outline import outline
from topocal.topo.resource import LinkKind, NodeKind, Sharing
from topocal.topo.topology import Topology

B70 = Path(__file__).parents[1] / "examples" / "b70"
FILES = [B70 / "pairs.csv", B70 / "fans.csv"]
SIZE = 2.0**28


def _measure(topology: Topology, *, most: int = 60, seed: int = 0) -> Measurements:
    """Some pairs and fans of a machine whose unknown capacities are 20 GB/s."""
    rng = np.random.default_rng(seed)
    capacities = {
        r.id: (r.nominal_Bps or 2e10) * rng.uniform(0.7, 0.95)
        for r in topology.resources.values()
        if r.sharing is not Sharing.TIME_SHARED
    }
    machine = SimulatedMachine(
        topology=topology, capacities=Capacities.of(topology, capacities), noise=0.01
    )
    ends = topology.accelerators
    pairs = [(a, b) for a in ends for b in ends if a != b]
    chosen = [pairs[k] for k in sorted(rng.permutation(len(pairs)).tolist()[:most])]
    patterns = [peer(a, b, SIZE) for a, b in chosen]
    if len(ends) > 2:
        for k, root in enumerate(ends[:6]):
            peers = [ends[(k + 1 + j) % len(ends)] for j in range(min(3, len(ends) - 1))]
            patterns += [fan_in(root, peers, SIZE), fan_out(root, peers, SIZE)]
    return machine.time(patterns, 3, rng)


@cache
def _b70() -> Model:
    """The published machine, as if the fit had left out what card 1 sends near."""
    samples = load(FILES)
    model = fit(samples, b70())
    unstable = {f"gpu1->gpu{k}": "they disagree" for k in (0, 2, 3)}
    kept = [
        Residual(name=s.name, measured_Bps=s.throughput_Bps, predicted_Bps=s.throughput_Bps)
        for s in samples.samples
        if s.name not in unstable
    ]
    return replace(model, left_out=unstable, residuals=tuple(kept))


@cache
def _pod() -> Model:
    topology = rail_pod(12)
    return fit(_measure(topology, most=200), topology)


class Tags(html.parser.HTMLParser):
    """Elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


MACHINES: dict[str, Callable[[], Topology]] = {
    "b70": b70,
    "dgx1": dgx1,
    "dgx-a100": dgx_a100,
    "dgx-h100": dgx_h100,
    "gh200": gh200,
    "mi250x": mi250x,
    "h20-pair": h20_pair,
    "fat-tree": lambda: fat_tree_cluster(4),
    "pcie tree": lambda: random_pcie_tree(np.random.default_rng(11)),
    "cluster": lambda: random_cluster(np.random.default_rng(3)),
}


@pytest.mark.parametrize("name", MACHINES)
def test_every_kind_of_machine_has_a_report(name: str) -> None:
    topology = MACHINES[name]()
    model = fit(_measure(topology), topology)
    found = build_report(model)
    page = render_report(found)
    tags = Tags(page).found
    assert sum(tag == "svg" and a.get("class") == "card" for tag, a in tags) == len(found.cards)
    _drawn_once(found)
    # The same model makes the same page.
    assert render_report(build_report(model)) == page


def _drawn_once(found: Report) -> None:
    """Each resource that explains anything has a place in the drawing."""
    cells = [cell for card in found.cards for row in card.rows for cell in (row.up, row.down)]
    cells += [arc.cell for card in found.cards if card.ring for arc in card.ring.arcs]
    drawn = {name for cell in cells if cell is not None for name in cell.resources}
    telling = {
        r.id
        for r in found.model.resources.values()
        if r.status in (Status.PINNED, Status.CONFOUNDED)
    }
    assert telling <= drawn


def test_the_file_needs_nothing_else_and_says_so() -> None:
    page = render_report(build_report(_b70()))
    tags = Tags(page).found
    for tag, attributes in tags:
        for name in ("src", "href", "data", "action", "poster", "srcset", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith("#"), (tag, name, value)
        assert "style" not in attributes, tag
        assert not any(name.startswith("on") for name in attributes), tag
    assert not {tag for tag, _ in tags} & {"link", "iframe", "object", "embed", "img", "base"}
    assert "url(" not in page
    assert "@import" not in page
    (policy,) = [a["content"] for t, a in tags if t == "meta" and a.get("http-equiv") is not None]
    assert policy is not None
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert content is not None
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("make", [_b70, _pod, lambda: fit(_measure(l40s()), l40s())])
def test_lone_rates_are_those_of_predict(make: Callable[[], Model]) -> None:
    model = make()
    pairs = reachable(model, model.topology.accelerators)[:300]
    rates = lone_rates_Bps(model, pairs)
    predictions = predict(model, [peer(a, b, SIZE) for a, b in pairs])
    for rate, p in zip(rates.tolist(), predictions, strict=True):
        busy_s = p.seconds - p.alpha_s
        assert rate == pytest.approx(SIZE / busy_s, rel=1e-12) if busy_s else math.isnan(rate)


def test_measured_figures_come_from_the_model_or_from_samples() -> None:
    model = _b70()
    kept = find_figures(model)
    given_too = find_figures(model, load(FILES))
    a, b = kept.pairs, given_too.pairs
    assert a.endpoints == tuple(f"gpu{k}" for k in range(8))
    both = np.isfinite(a.measured_Bps)
    assert both.sum() == 53
    assert np.array_equal(a.measured_Bps[both], b.measured_Bps[both])
    # The unstable pairs of card 1 were left out; only the samples still have their rates.
    assert set(a.left_out) == set(b.left_out) == {("gpu1", f"gpu{k}") for k in (0, 2, 3)}
    assert np.isnan(a.measured_Bps[1, [0, 2, 3]]).all()
    assert b.measured_Bps[1, [0, 2, 3]].tolist() == [6.0e9, 5.5e9, 3.6e9]
    assert [s.pattern.name for s in kept.several] == [
        "gpu0<-gpu1,gpu2",
        "gpu1<-gpu2,gpu3",
        "gpu3<-gpu4,gpu5,gpu6,gpu7",
    ]
    assert kept.several == given_too.several or [s.error for s in kept.several] == pytest.approx(
        [s.error for s in given_too.several]
    )
    assert max(abs(s.error) for s in kept.several) < 0.05


def test_samples_of_another_machine_are_refused() -> None:
    with pytest.raises(TopocalError):
        find_figures(_b70(), _measure(rail_pod(2)))


def test_findings_are_those_of_explain() -> None:
    found = explain(load(FILES), b70(), time_limit_s=0.1)
    again = findings_of(found.model, measured_of(found.model))
    assert [f.text for f in again] == [f.text for f in found.findings]
    page = render_report(build_report(found.model, load(FILES), answer=found))
    assert "The fewest resources that reproduce the figures" in page
    assert "near is slower than far" in page


def test_the_first_screen_says_what_limits_how_sure_and_what_next() -> None:
    samples = load(FILES)
    model = fit(samples, b70())
    found = build_report(model).glance
    # 32 pairs between sockets and 21 inside one (three of card 1 contradict themselves), 3 fans.
    counts = {one.name: one.count for one in found.limits}
    assert counts["8 × sender to another socket"] == 32
    assert counts["7 × sender inside its socket"] == 21
    assert sum(counts.values()) == found.of == len(model.residuals)
    assert all(one.share == pytest.approx(one.count / found.of) for one in found.limits)
    sure = found.certainty
    worst = max(model.residuals, key=lambda r: abs(r.error))
    assert sure.worst == pytest.approx(worst.error, abs=1e-3)
    assert sure.where == worst.name
    assert sum(n for _, n in sure.shares) == len(model.resources)
    # Whether a receiver takes turns is what the fans into all of them hang on.
    assert found.open
    assert 1 <= len(found.steps) <= 3
    assert all(step.what.startswith("Measure gpu") for step in found.steps)
    assert any("at once or by turns" in step.why for step in found.steps)
    assert found.severities == "6 serious findings and 4 warnings"


def test_what_limits_is_the_shortest_explanation_where_there_is_one() -> None:
    samples = load(FILES)
    whole = explain(samples, b70(), time_limit_s=20.0)
    assert whole.fewest is not None
    found = build_report(whole.model, answer=whole).glance
    chosen = {c.resource: len(c.explains) for c in whole.fewest.chosen}
    assert [one.count for one in found.limits] == sorted(chosen.values(), reverse=True)[:4]
    assert all(chosen[one.name] == one.count for one in found.limits)


def test_a_figure_that_is_far_off_is_to_be_measured_again() -> None:
    off = Residual(name="gpu2->gpu3", measured_Bps=2e10, predicted_Bps=5.38e10)
    model = _b70()
    kept = [off if r.name == off.name else r for r in model.residuals]
    found = build_report(replace(model, residuals=tuple(kept))).glance
    assert found.certainty.where == "gpu2->gpu3"
    assert found.certainty.worst > 1.0
    assert found.steps[0].what == "Measure gpu2->gpu3 again"


def test_a_large_machine_is_cut_to_a_choice_and_says_so() -> None:
    model = _pod()
    found = build_report(model)
    ends = found.figures.pairs.endpoints
    assert len(ends) == MOST_ENDPOINTS
    # Whole hosts, spread over all twelve.
    hosts = [e.partition("/")[0] for e in ends]
    assert list(dict.fromkeys(hosts)) == [f"node{k * 12 // 8}" for k in range(8)]
    assert any("64 of 96 endpoints" in sentence for sentence in found.left_out)
    assert any("capacities stand in" in sentence for sentence in found.left_out)
    page = render_report(found)
    assert len(page) < 1_200_000
    for sentence in found.left_out:
        assert sentence.split(";")[0] in page
    # Twelve hosts of one shape are drawn once, with the range of their figures.
    assert {c.note for c in found.cards if c.note} == {"node0–11, 12 alike"}
    (fabric,) = [c for c in found.cards if c.title == "GPU fabric"]
    assert fabric.rows[1].up is not None
    assert len(fabric.rows[1].up.resources) == 12


def test_endpoints_of_one_large_host_are_a_choice_too() -> None:
    build = TopologyBuilder("wide")
    build.node("socket0", NodeKind.SOCKET)
    for k in range(200):
        build.node(f"gpu{k}", NodeKind.GPU)
        build.connect(f"gpu{k}", "socket0", LinkKind.PCIE, nominal_Bps=2e10)
    topology = build.build()
    model = fit(_measure(topology, most=40), topology)
    ends = shown_endpoints(model, [])
    assert len(ends) == MOST_ENDPOINTS
    assert ends[0] == "gpu0"
    assert len(set(ends)) == MOST_ENDPOINTS
    found = build_report(model)
    assert any("leaves out" in sentence for sentence in found.left_out)
    assert len(render_report(found)) < 1_500_000


def test_machines_of_one_shape_stand_for_each_other() -> None:
    topology = rail_pod(4)
    families = fold(topology, outline(topology))
    assert [f.names for f in families.machines] == [("node0", "node1", "node2", "node3")]
    assert families.node("node3/gpu5") == "node0/gpu5"
    assert families.node("node3/nvswitch0") == "node0/nvswitch0"
    assert families.node("spine0") == "spine0"
    two = h20_pair()
    assert fold(two, outline(two)).drawn == {}


def test_nodes_that_nothing_connects_have_no_prediction() -> None:
    build = TopologyBuilder("islands")
    for k in range(4):
        build.node(f"gpu{k}", NodeKind.GPU)
    build.connect("gpu0", "gpu1", LinkKind.NVLINK, nominal_Bps=1e11)
    build.connect("gpu2", "gpu3", LinkKind.NVLINK, nominal_Bps=1e11)
    topology = build.build()
    model = replace(
        _b70(),
        topology=topology,
        residuals=(),
        left_out={},
        resources={
            r.id: FittedResource(
                id=r.id,
                label=r.name,
                sharing=r.sharing,
                capacity_Bps=r.nominal_Bps,
                low_Bps=r.nominal_Bps,
                high_Bps=None,
                kappa=None,
                error=None,
                status=Status.ASSUMED,
            )
            for r in topology.resources.values()
        },
    )
    found = build_report(model)
    predicted = found.figures.pairs.predicted_Bps
    assert np.isfinite(predicted).sum() == 4
    assert np.isnan(predicted[0, 2])
    assert found.figures.several == ()
    # What is connected is predicted none the less.
    (prediction,) = predict(model, [peer("gpu0", "gpu1", SIZE)])
    assert prediction.throughput_Bps == pytest.approx(1e11)
    assert (found.glance.limits, found.glance.steps) == ((), ())
    page = render_report(found)
    assert "Measured, GB/s" not in page
    assert '"routes":[[null,[' in page


@pytest.mark.parametrize(
    ("rates", "name"),
    [
        ([27e9, 54e9, 5e6], "GB/s"),
        ([1.2e8, 9e7], "MB/s"),
        ([2e4], "kB/s"),
        ([3.0], "B/s"),
        ([], "GB/s"),
        ([math.inf, 0.0], "GB/s"),
    ],
)
def test_the_unit_follows_the_machine(rates: list[float], name: str) -> None:
    assert unit_for(rates).name == name


GBPS = Unit("GB/s", 1e9)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (27.44e9, "27.4"),
        (8.25e9, "8.2"),
        (450e9, "450.0"),
        (0.05e9, "0.05"),
        (0.0, "0.0"),
        (12_345e9, "12345"),
        (math.inf, "∞"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert GBPS.number(value) == text


def test_ranges() -> None:
    assert GBPS.span(20e9, 27.5e9) == "20.0–27.5"
    assert GBPS.span(27.41e9, 27.42e9) == "27.4"
    assert GBPS.span(320.1e9, 334.4e9) == "320–334"


def test_shades_follow_the_rates() -> None:
    figures = find_figures(_b70())
    heats = heat_maps(figures.pairs, GBPS)
    assert [h.title for h in heats.maps] == [
        "Measured, GB/s",
        "Predicted, GB/s",
        "Error of the prediction, %",
    ]
    measured = heats.maps[0]
    assert measured.rows[0][0].shade == "x"
    assert measured.rows[2][0].shade == "q8"
    least = np.unravel_index(np.nanargmin(figures.pairs.predicted_Bps), (8, 8))
    assert heats.maps[1].rows[int(least[0])][int(least[1])].shade == "q0"
    assert (measured.rows[1][0].shade, measured.rows[1][0].text) == ("z", "†")
    values, shades = figures.pairs.measured_Bps, measured.rows
    ranked = sorted(
        (float(values[i, j]), int(shades[i][j].shade[1]))
        for i in range(8)
        for j in range(8)
        if np.isfinite(values[i, j])
    )
    assert [shade for _, shade in ranked] == sorted(shade for _, shade in ranked)
    # Error: the middle shade is none, darker with size, the sign at its own side.
    errors, cells = figures.pairs.error, heats.maps[2].rows
    for i in range(8):
        for j in range(8):
            if np.isfinite(errors[i, j]):
                step = int(cells[i][j].shade[1]) - 4
                assert step * errors[i, j] >= 0


@settings(deadline=None, max_examples=100)
@given(st.text())
def test_file_names_have_no_folders(text: str) -> None:
    assert "/" not in file_name(f"/home/somebody/{text}.csv".replace("\\", "/") + "x")


def test_a_file_says_what_it_contains_of_the_host() -> None:
    page = render_report(build_report(_b70(), load(FILES)))
    assert str(B70) not in page
    assert "pairs.csv" in page
    assert "Names of endpoints: gpu0–7." in page
    assert "No names of hosts." in page
    assert "Names of hosts: node0–11." in render_report(build_report(_pod()))


HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--",
    "\u202egpu",
)


def test_hostile_names_stay_text() -> None:
    build = TopologyBuilder("<h1>&amp;")
    build.node("<b>", NodeKind.SOCKET)
    for name in HOSTILE:
        build.node(name, NodeKind.GPU, model="<i>")
        build.connect(name, "<b>", LinkKind.PCIE, nominal_Bps=2e10)
    topology = build.build()
    model = replace(
        fit(_measure(topology), topology),
        findings=("<script>x</script>",),
        notes=("</style>",),
        sources=("/tmp/<u>.csv",),
    )
    page = render_report(build_report(model))
    tags = [tag for tag, _ in Tags(page).found]
    assert tags.count("script") == 2
    assert tags.count("style") == 1
    assert not {"img", "i", "u"} & set(tags)
    assert "\u202e" not in page
    block = re.search(r'<script type="application/json" id="machine-data">(.*?)</script>', page)
    assert block is not None
    assert set(json.loads(block[1])["endpoints"]) == set(HOSTILE)


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["topocal", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        code = caught.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return call


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.json"
    write_model(_b70(), path)
    return path


def test_the_command_writes_a_page(run: Run, model_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    ran = run("report", str(model_file), "-o", str(page))
    assert ran.status == 0
    assert "wrote" in ran.out
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_figures_as_json(run: Run, model_file: Path) -> None:
    ran = run("report", str(model_file), *map(str, FILES), "--json")
    assert ran.status == 0
    document: dict[str, Any] = json.loads(ran.out)
    assert document["output"] is None
    assert len(document["pairs"]) == 56
    left_out = [p for p in document["pairs"] if p["left_out"]]
    assert {(p["source"], p["destination"]) for p in left_out} == {
        ("gpu1", f"gpu{k}") for k in (0, 2, 3)
    }
    assert all(abs(p["error"]) < 0.1 for p in document["pairs"] if not p["left_out"])
    assert len(document["patterns"]) == 3
    assert document["findings"][0]["severity"] == "serious"


def test_bad_questions_are_one_line(run: Run, model_file: Path, tmp_path: Path) -> None:
    before = model_file.read_bytes()
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("source,destination,bandwidth_GBps\n0,99,5\n")
    page = str(tmp_path / "r.html")
    for arguments, message in (
        ((str(model_file),), "nowhere to write"),
        ((str(model_file), "-o", str(model_file)), "is what is read"),
        ((str(model_file), "-o", str(tmp_path / "no" / "r.html")), "cannot be written"),
        ((str(wrong), "-o", page), "wrong.csv"),
        ((str(model_file), str(wrong), "-o", page), "gpu99"),
        ((str(tmp_path / "none.json"), "-o", page), "none.json"),
    ):
        ran = run("report", *arguments)
        assert ran.status == 2, message
        assert message in ran.err
        assert ran.err.count("\n") == 1
        assert ran.out == ""
    assert model_file.read_bytes() == before
    assert not Path(page).exists()


def test_explain_writes_the_answer_and_a_picture(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "answer.html"
    files = [str(f) for f in FILES]
    ran = run("explain", *files, "-t", "b70", "--time-limit", "0.2", "--html", str(page))
    assert ran.status == 0
    assert "Findings" in ran.out
    text = page.read_text()
    assert "near is slower than far" in text
    assert 'class="card"' in text
    before = FILES[0].read_bytes()
    refused = run("explain", *files, "--html", files[0])
    assert refused.status == 2
    assert "is what is read" in refused.err
    assert FILES[0].read_bytes() == before
    refused = run("explain", *files, "--fan-in", "0:1,2", "--html", str(page))
    assert refused.status == 2
    assert "--html shows a machine" in refused.err
