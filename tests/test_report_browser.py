"""The report in a real browser: its calculator agrees with ``topocal predict``, hostile names
do nothing, nothing is fetched, nothing overlaps.

Chromium is driven by its own driver over the W3C WebDriver protocol.  Where either is not
installed these tests skip, and say so (Debian: chromium, chromium-driver).
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topocal.measure.load import load
from topocal.measure.patterns import bundle, fan_in, fan_out, parse_pattern, peer
from topocal.measure.simulated import SimulatedMachine
from topocal.report.page import build_report, render_report
from topocal.solve.fading import Crowd, Fading
from topocal.solve.fit import fit
from topocal.solve.model import FittedResource, Model
from topocal.solve.predict import predict
from topocal.solve.status import Status
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Pattern
from topocal.topo.machines import b70, dgx1, l40s, rail_pod
from topocal.topo.resource import NEAR, LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

B70 = Path(__file__).parents[1] / "examples" / "b70"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromium-driver to click through the report",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of element references (WebDriver, section 12)."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """A session of headless Chromium with a user directory of its own."""

    def __init__(self, folder: Path) -> None:
        assert DRIVER is not None
        self._folder = folder
        self._process = subprocess.Popen(
            [DRIVER, "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            # Whatever the browser leaves goes with the folder.
            env={**os.environ, "TMPDIR": str(folder), "HOME": str(folder)},
        )
        self._session = ""
        try:
            self._port = self._find_port()
            options = {
                "binary": CHROMIUM,
                "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"],
            }
            capabilities = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL"},
            }
            made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self.close()
            raise

    def _find_port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.rstrip().rstrip(".").split()
            if "successfully" in words and words[-1].isdecimal():
                return int(words[-1])
        raise RuntimeError("chromedriver did not start")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{path}: {answer['error']}: {answer['message']}")
        return answer

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            if self._session:
                self._call("DELETE", self._session)
        finally:
            self._process.terminate()
            self._process.wait(timeout=30)
            if self._process.stdout is not None:
                self._process.stdout.close()

    def open(self, path: Path, *, width: int = 1280, dark: bool = False) -> None:
        """Show a file in a window of some width."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])
        self._call("POST", f"{self._session}/url", {"url": path.as_uri()})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        body = {"cmd": command, "params": parameters}
        return self._call("POST", f"{self._session}/goog/cdp/execute", body)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        body = {"script": script, "args": list(arguments)}
        return self._call("POST", f"{self._session}/execute/sync", body)

    def click(self, selector: str) -> None:
        """Click on the one element, as a user would."""
        self._call("POST", f"{self._session}/element/{self._find(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        """Replace what stands in a field."""
        path = f"{self._session}/element/{self._find(selector)}"
        self._call("POST", f"{path}/clear", {})
        self._call("POST", f"{path}/value", {"text": text})

    def press(self, selector: str, keys: str) -> None:
        """Press keys at an element."""
        path = f"{self._session}/element/{self._find(selector)}/value"
        self._call("POST", path, {"text": keys})

    def _find(self, selector: str) -> str:
        body = {"using": "css selector", "value": selector}
        return str(self._call("POST", f"{self._session}/element", body)[ELEMENT])

    def complaints(self) -> list[str]:
        """What the console says since the last call."""
        entries = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [e["message"] for e in entries]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not in pytest's own folder: the browser's sockets have short names only.
    with tempfile.TemporaryDirectory(prefix="topocal-", ignore_cleanup_errors=True) as folder:
        opened = Browser(Path(folder))
        try:
            yield opened
        finally:
            opened.close()


def _pairs_of(topology: Topology) -> list[tuple[str, str]]:
    ends = topology.accelerators
    return [(a, b) for a in ends for b in ends if a != b]


def _fitted(topology: Topology, *, seed: int, sizes: tuple[float, ...], most: int = 90) -> Model:
    """A model of a machine whose capacities are drawn at random, measured with noise."""
    rng = np.random.default_rng(seed)
    capacities = {
        r.id: (r.nominal_Bps or 2e10) * rng.uniform(0.6, 0.95)
        for r in topology.resources.values()
        if r.sharing is not Sharing.TIME_SHARED
    }
    machine = SimulatedMachine(
        topology=topology,
        capacities=Capacities.of(topology, capacities),
        alpha_s=2e-5,
        noise=0.01,
    )
    ends = topology.accelerators
    pairs = _pairs_of(topology)
    chosen = [pairs[k] for k in rng.permutation(len(pairs))[:most]]
    patterns = [peer(a, b, size) for a, b in chosen for size in sizes]
    for k, root in enumerate(ends[:8]):
        peers = [ends[(k + 1 + j) % len(ends)] for j in range(min(4, len(ends) - 1))]
        for size in sizes:
            patterns += [fan_in(root, peers, size), fan_out(root, peers, size)]
    return fit(machine.time(patterns, 3, rng), topology)


def _time_shared() -> Model:
    """The published machine with receivers that take turns, and capacities of every status.

    By hand, so that it does not depend on what the fit makes of the figures.
    """
    rng = np.random.default_rng(5)
    plain = b70()
    engines = [
        Resource(id=f"{end}.receiver.engine", sharing=Sharing.TIME_SHARED, label=f"receiver {end}")
        for end in plain.accelerators
    ]
    near = [
        Resource(id=f"{end}.sender.near", label=f"sender {end} inside its socket")
        for end in plain.accelerators
    ]
    uses = [
        *(Use(resource=e.id, destinations=(e.id.partition(".")[0],)) for e in engines),
        *(Use(resource=n.id, sources=(n.id.partition(".")[0],), path_classes=NEAR) for n in near),
    ]
    topology = plain.with_resources([*engines, *near], uses)
    statuses = [*Status, *[Status.PINNED] * 12]
    table = {}
    for k, r in enumerate(topology.resources.values()):
        timed = r.sharing is Sharing.TIME_SHARED
        status = Status.PINNED if timed and k % 2 else statuses[k % len(statuses)]
        status = Status.BOUNDED if status is Status.SERIES else status
        rate = float(rng.uniform(7e9, 6e10))
        known = not timed and status is not Status.UNKNOWN
        table[r.id] = FittedResource(
            id=r.id,
            label=r.name,
            sharing=r.sharing,
            capacity_Bps=rate if known else None,
            low_Bps=rate * (0.98 if status is Status.PINNED else 0.8) if known else None,
            high_Bps=rate * 1.02 if known and status is Status.PINNED else None,
            kappa=0.9775 if timed else None,
            error=float(rng.uniform(0.005, 0.05)) if status is Status.PINNED else None,
            status=status,
        )
    # One that stands for another where the same flows load both.
    for follower, leader in (
        ("gpu5->switch2", "switch2->socket1"),
        ("gpu4->switch2", "gpu4.sender.near"),
    ):
        table[follower] = replace(
            table[follower], status=Status.SERIES, error=None, confounded_with=(leader,)
        )
    fitted = fit(load([B70 / "pairs.csv", B70 / "fans.csv"]), plain)
    return replace(
        fitted,
        topology=topology,
        resources=table,
        undecided=(),
        undecided_endpoints=(),
        noise=0.009,
    )


def _fading(by: Crowd) -> Model:
    """The published machine, as if everything took longer with every further flow."""
    model = _time_shared()
    fading = Fading(loss=0.013, error=0.002, by=by, most_flows=4, advantage=9.0)
    table = {
        r.id: replace(r, crowding=0.3 * k if r.status is Status.PINNED else None)
        for k, r in enumerate(model.resources.values())
    }
    return replace(model, fading=fading, resources=table, undecided=(1,))


def _long_names() -> Model:
    """Two hosts with names that no column holds, and cards named by their address."""
    build = TopologyBuilder("a-machine-with-a-name-that-nobody-would-want-to-type-twice-in-a-day")
    build.node("leaf-switch-of-the-second-row-of-racks", NodeKind.NET_SWITCH)
    for host in ("first-of-two-compute-nodes.cluster.example.org", "second.cluster.example.org"):
        build.node(f"{host}/socket0", NodeKind.SOCKET, host=host)
        for k in range(3):
            card = f"{host}/pcie:0000:{k}a:00.0-accelerator-card-{k}"
            build.node(card, NodeKind.GPU, host=host)
            build.connect(card, f"{host}/socket0", LinkKind.PCIE, nominal_Bps=2.5e10)
        build.node(f"{host}/nic0", NodeKind.NIC, host=host)
        build.connect(f"{host}/nic0", f"{host}/socket0", LinkKind.PCIE, nominal_Bps=2.5e10)
        switch = "leaf-switch-of-the-second-row-of-racks"
        build.connect(f"{host}/nic0", switch, LinkKind.NET, nominal_Bps=2.5e10)
    return _fitted(build.build(), seed=6, sizes=(2.0**28,))


MODELS: dict[str, Callable[[], Model]] = {
    "time-shared": _time_shared,
    "published": lambda: fit(load([B70 / "pairs.csv", B70 / "fans.csv"]), b70()),
    "groups": lambda: fit(load([B70 / "pairs.csv"])),
    "tree": lambda: _fitted(l40s(), seed=1, sizes=(2.0**16, 2.0**20, 2.0**24, 2.0**28)),
    "mesh": lambda: _fitted(dgx1(), seed=2, sizes=(2.0**28,)),
    "pod": lambda: _fitted(rail_pod(2), seed=3, sizes=(2.0**28,)),
    "long names": lambda: _long_names(),
    "fading": lambda: _fading(Crowd.RESOURCE),
    "fading by pattern": lambda: _fading(Crowd.PATTERN),
}


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return {name: make() for name, make in MODELS.items()}


@pytest.fixture(scope="module")
def pages(models: dict[str, Model], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, model in models.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(render_report(build_report(model)))
    return found


def _random_patterns(model: Model, seed: int, count: int) -> list[Pattern]:
    rng = np.random.default_rng(seed)
    ends, pairs = model.topology.accelerators, _pairs_of(model.topology)
    found = []
    for k in range(count):
        size = float(2.0 ** rng.integers(6, 33))
        width = int(rng.integers(1, min(len(ends), 8)))
        names = [ends[j] for j in rng.permutation(len(ends))[: width + 1]]
        if k % 3 == 0:
            found.append(fan_in(names[0], names[1:], size))
        elif k % 3 == 1:
            found.append(fan_out(names[0], names[1:], size))
        else:
            chosen = rng.permutation(len(pairs))[: int(rng.integers(1, 12))]
            found.append(bundle([pairs[j] for j in chosen], size))
    ring = [(a, b) for a, b in zip(ends, (*ends[1:], ends[0]), strict=True)]
    return [*found, bundle(ring, 2.0**20), bundle([(ends[0], ends[1]), (ends[1], ends[0])], 3e8)]


CALCULATE = """
const machine = JSON.parse(document.getElementById('machine-data').textContent);
return arguments[0].map(([flows, size]) => {
  const p = topocal.predict(machine, flows, size);
  const id = (b) => machine.resources.id[b.resource];
  return {seconds: p.seconds, low: p.low, high: p.high, narrow: p.narrow, exact: p.exact,
    named: p.named.map((b) => [id(b), b.inSeries.map((r) => machine.resources.id[r])]),
    next: p.next ? id(p.next) : null, open: p.wouldNarrow, unmeasured: p.unmeasured};
});
"""


@pytest.mark.parametrize("name", MODELS)
def test_the_calculator_computes_what_predict_does(
    name: str, browser: Browser, models: dict[str, Model], pages: dict[str, Path]
) -> None:
    model = models[name]
    patterns = _random_patterns(model, 7, 120)
    browser.open(pages[name])
    ends = browser.run(
        "return JSON.parse(document.getElementById('machine-data').textContent).endpoints"
    )
    place = {end: k for k, end in enumerate(ends)}
    questions = [
        [[[place[f.source], place[f.destination]] for f in p.flows], p.flows[0].size_bytes]
        for p in patterns
    ]
    answers = browser.run(CALCULATE, questions)
    labels = {r.id: r.label for r in model.resources.values()}
    exact = 0
    for p, found in zip(predict(model, patterns), answers, strict=True):
        assert found["exact"] is p.exact, p.pattern.name
        assert p.bottleneck is not None
        tied = [p.bottleneck, *p.indistinguishable]
        assert found["named"] == [[b.resource, list(b.in_series)] for b in tied]
        assert found["next"] == (p.runner_up and p.runner_up.resource)
        assert found["narrow"] is p.narrow
        assert found["unmeasured"] == [labels[n] for n in p.unmeasured]
        if p.exact:
            exact += 1
            assert found["seconds"] == pytest.approx(p.seconds, rel=1e-9)
            assert found["low"] == pytest.approx(p.low_s, rel=1e-9)
            assert found["high"] == pytest.approx(p.high_s, rel=1e-9)
            assert found["open"] == [labels.get(n, n) for n in p.would_narrow]
        else:
            assert found["seconds"] <= p.seconds * (1 + 1e-9)
    assert exact > 60


def _shown_seconds(browser: Browser) -> float:
    return float(browser.run("return document.getElementById('time').dataset.seconds"))


def _choose(browser: Browser, selector: str, name: str) -> None:
    """Pick an option by its text, as the keyboard does."""
    browser.run(
        """const s = document.querySelector(arguments[0]);
        s.selectedIndex = [...s.options].findIndex((o) => o.textContent === arguments[1]);
        s.dispatchEvent(new Event('input', {bubbles: true}));
        s.dispatchEvent(new Event('change', {bubbles: true}));""",
        selector,
        name,
    )


def test_clicking_through_the_calculator(
    browser: Browser, models: dict[str, Model], pages: dict[str, Path]
) -> None:
    model = models["time-shared"]
    browser.open(pages["time-shared"])
    browser.click("#none")
    assert "choose at least one" in browser.run(
        "return document.getElementById('size-error').textContent"
    )
    assert browser.run("return document.getElementById('answer').hidden")
    _choose(browser, "#root", "gpu3")
    browser.click("#none")
    for sender in ("gpu4", "gpu5", "gpu6", "gpu7"):
        browser.click(f"#peers input[aria-label={sender}]")
    browser.write("#size", "64 MiB")
    (asked,) = predict(model, [fan_in("gpu3", ["gpu4", "gpu5", "gpu6", "gpu7"], 2.0**26)])
    assert _shown_seconds(browser) == pytest.approx(asked.seconds, rel=1e-9)
    assert asked.bottleneck is not None
    assert (
        browser.run("return document.getElementById('time').dataset.binding")
        == asked.bottleneck.resource
    )
    # What binds lights up, and a sign says so besides the colour; what no flow loads stays dark.
    lit = browser.run(
        """const machine = JSON.parse(document.getElementById('machine-data').textContent);
        return [...document.querySelectorAll('.cell.binds')].map((c) => [
          c.dataset.r.split(' ').map((r) => machine.resources.id[r]),
          getComputedStyle(c.querySelector('.mark')).display])"""
    )
    assert [names for names, _ in lit] == [[asked.bottleneck.resource]]
    assert lit[0][1] != "none"
    assert (
        browser.run(
            "return getComputedStyle(document.querySelector('.cell:not(.on) .mark')).display"
        )
        == "none"
    )
    dark = browser.run(
        "return [...document.querySelectorAll('.cell:not(.on) .load')]"
        ".every((l) => l.getAttribute('x1') === l.getAttribute('x2'))"
    )
    assert dark
    command = browser.run("return document.getElementById('command').textContent")
    assert "'gpu3<-gpu4,gpu5,gpu6,gpu7'" in command
    browser.click("input[name=mode][value=out]")
    (asked,) = predict(model, [fan_out("gpu3", ["gpu4", "gpu5", "gpu6", "gpu7"], 2.0**26)])
    assert _shown_seconds(browser) == pytest.approx(asked.seconds, rel=1e-9)
    browser.click("#all")
    browser.write("#size", "1.5GB")
    everybody = [f"gpu{k}" for k in range(8) if k != 3]
    (asked,) = predict(model, [fan_out("gpu3", everybody, 1.5e9)])
    assert _shown_seconds(browser) == pytest.approx(asked.seconds, rel=1e-9)


def test_any_flows(browser: Browser, models: dict[str, Model], pages: dict[str, Path]) -> None:
    browser.open(pages["tree"])
    browser.click("input[name=mode][value=any]")
    _choose(browser, "#flows li:nth-child(1) select:first-of-type", "gpu0")
    _choose(browser, "#flows li:nth-child(1) select:last-of-type", "gpu4")
    _choose(browser, "#flows li:nth-child(2) select:first-of-type", "gpu1")
    _choose(browser, "#flows li:nth-child(2) select:last-of-type", "gpu5")
    (asked,) = predict(models["tree"], [parse_pattern("0->4 + 1->5", 2.0**28)])
    assert _shown_seconds(browser) == pytest.approx(asked.seconds, rel=1e-9)
    browser.click("#add")
    _choose(browser, "#flows li:nth-child(3) select:first-of-type", "gpu1")
    _choose(browser, "#flows li:nth-child(3) select:last-of-type", "gpu1")
    error = "return document.getElementById('size-error').textContent"
    assert "from gpu1 to itself" in browser.run(error)
    _choose(browser, "#flows li:nth-child(3) select:last-of-type", "gpu5")
    assert "stands twice" in browser.run(error)
    browser.click("#flows li:nth-child(3) button")
    assert browser.run(error) == ""


def test_where_only_the_simulation_knows_the_calculator_says_so(
    browser: Browser, models: dict[str, Model], pages: dict[str, Path]
) -> None:
    model = models["time-shared"]
    pattern = parse_pattern("0->2 + 1->2 + 4->3 + 5->3", 2.0**28)
    (asked,) = predict(model, [pattern])
    assert not asked.exact
    browser.open(pages["time-shared"])
    browser.click("input[name=mode][value=any]")
    browser.click("#add")
    browser.click("#add")
    for k, flow in enumerate(pattern.flows, start=1):
        _choose(browser, f"#flows li:nth-child({k}) select:first-of-type", flow.source)
        _choose(browser, f"#flows li:nth-child({k}) select:last-of-type", flow.destination)
    assert _shown_seconds(browser) <= asked.seconds
    text = browser.run("return document.getElementById('answer').innerText")
    assert text.startswith("at least ")
    assert "only the simulation knows" in text


SIZES = {
    "256MiB": 2.0**28,
    " 1.5 GB ": 1.5e9,
    "4096": 4096.0,
    "1e3k": 1e6,
    "1_000": 1000.0,
    ".5KiB": 512.0,
    "0": 0.0,
}
BAD_SIZES = ("", "many", "-4", "256 Mb", "1e30", "5 parsecs", "0x10", "NaN", "1,5GB")


def test_sizes_read_as_on_the_command_line(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["tree"])
    script = "return arguments[0].map((t) => topocal.parseBytes(t, 1e18))"
    assert browser.run(script, list(SIZES)) == list(SIZES.values())
    assert browser.run(script, list(BAD_SIZES)) == [None] * len(BAD_SIZES)


HOSTILE = (
    '"><script>window.hacked=1</script>',
    "</script><img/src=x/onerror=window.hacked=2>",
    "gpu'0\"&amp;<b>",
    "\u202egpu7\u2066",
    "{{7*7}}${7*7}<!--",
    "\u05d0\u05d1\u05d2",
)


def _hostile_model() -> Model:
    build = TopologyBuilder("<b>name</b></title><script>window.hacked=3</script>\u202e")
    build.node("socket<i>", NodeKind.SOCKET)
    for name in HOSTILE:
        build.node(name, NodeKind.GPU, model="<u>card</u>", host="<s>host</s>")
        build.connect(name, "socket<i>", LinkKind.PCIE, nominal_Bps=2.5e10)
    topology = build.build()
    machine = SimulatedMachine(topology=topology, capacities=Capacities.of(topology))
    patterns = [peer(a, b, 2.0**28) for a, b in _pairs_of(topology)]
    patterns += [fan_in(HOSTILE[0], HOSTILE[1:4], 2.0**28)]
    return fit(machine.time(patterns, 1, np.random.default_rng(0)), topology)


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    model = _hostile_model()
    page = tmp_path / "hostile.html"
    page.write_text(render_report(build_report(model)))
    browser.open(page)
    assert browser.complaints() == []
    assert browser.run("return typeof window.hacked") == "undefined"
    assert (
        browser.run("return document.querySelectorAll('img, i, u, s, main b:not(.key b)').length")
        == 0
    )
    assert browser.run("return document.scripts.length") == 2
    # Nothing turns the text around it; Hebrew stays what it is, isolated.
    text = browser.run("return document.documentElement.textContent")
    visible = text.replace(
        browser.run("return document.getElementById('machine-data').textContent"), ""
    )
    assert not set(visible) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068")
    assert HOSTILE[5] in visible
    # And the machine can still be asked about.
    first = sorted(model.topology.accelerators)
    browser.click("#all")
    root = browser.run("return Number(document.getElementById('root').value)")
    ends = browser.run(
        "return JSON.parse(document.getElementById('machine-data').textContent).endpoints"
    )
    assert sorted(ends) == first
    others = [e for k, e in enumerate(ends) if k != root]
    (asked,) = predict(model, [fan_in(ends[root], others, 2.0**28)])
    assert _shown_seconds(browser) == pytest.approx(asked.seconds, rel=1e-9)


def test_nothing_is_fetched_and_nothing_foreign_runs(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["tree"])
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.complaints() == []
    browser.run(
        """const s = document.createElement('script');
        s.textContent = 'window.foreign = 1';
        document.body.append(s);
        const i = document.createElement('img');
        i.src = 'http://127.0.0.1:9/x.png';
        document.body.append(i);"""
    )
    assert browser.run("return typeof window.foreign") == "undefined"
    assert any("Content Security Policy" in m for m in browser.complaints())


OVERLAPS = """
const found = [];
for (const card of document.querySelectorAll('svg.card')) {
  const frame = card.getBoundingClientRect();
  const texts = [...card.querySelectorAll('text')]
    .filter((t) => getComputedStyle(t).display !== 'none');
  const boxes = texts.map((t) => t.getBoundingClientRect());
  boxes.forEach((a, i) => {
    if (a.left < frame.left || a.right > frame.right || a.bottom > frame.bottom) {
      found.push(['outside', texts[i].textContent]);
    }
    for (let j = i + 1; j < boxes.length; j += 1) {
      const b = boxes[j];
      const dx = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const dy = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (dx > 1 && dy > 4) { found.push([texts[i].textContent, texts[j].textContent]); }
    }
  });
}
for (const card of document.querySelectorAll('svg.card')) {
  const names = [...card.querySelectorAll('.words, .end rect')]
    .map((e) => e.getBoundingClientRect());
  for (const cell of card.querySelectorAll('.cell:not(.arc)')) {
    const b = cell.getBoundingClientRect();
    for (const a of names) {
      const dx = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const dy = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (dx > 1 && dy > 2) { found.push(['name over figure', cell.textContent.trim()]); }
    }
  }
}
const within = '#glance, .findings, #calculator, header, .key, .facts';
const written = [...document.querySelectorAll(within)].flatMap((part) =>
  [...part.querySelectorAll('*')].flatMap((e) => [...e.childNodes])
    .filter((n) => n.nodeType === 3 && n.textContent.trim()
      && !n.parentElement.closest('details:not([open]), option, svg')));
const lines = written.flatMap((n) => {
  const range = document.createRange();
  range.selectNodeContents(n);
  return [...range.getClientRects()].map((r) => [n, r]);
}).filter(([, r]) => r.width > 0 && r.right > 0);
lines.forEach(([n, a], i) => {
  for (let j = i + 1; j < lines.length; j += 1) {
    const [m, b] = lines[j];
    const dx = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const dy = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (m !== n && dx > 1 && dy > 4) {
      found.push(['over each other', n.textContent, m.textContent]);
    }
  }
});
for (const head of document.querySelectorAll('.plain tbody th')) {
  if (head.clientWidth && head.clientWidth < 90) { found.push(['squeezed', head.textContent]); }
}
const all = document.querySelectorAll('p, li, dd, dt, h1, h2, summary, td, th, pre, label');
for (const element of all) {
  if (element.closest('details:not([open]), .heat, thead')) { continue; }
  if (element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0
      && getComputedStyle(element).display !== 'inline') {
    found.push(['cut', element.textContent.slice(0, 60)]);
  }
}
return found;
"""


@pytest.mark.parametrize("width", [390, 760, 1280])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_overlaps_or_is_cut(
    name: str, width: int, browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages[name], width=width)
    browser.click("#all")
    for state in ("false", "true"):
        browser.run(f"document.querySelectorAll('details').forEach((d) => {{ d.open = {state}; }})")
        assert browser.run(OVERLAPS) == []
        wide = browser.run("return document.documentElement.scrollWidth") - width
        assert wide <= 0


@pytest.mark.parametrize("name", MODELS)
def test_the_first_screen_has_the_answer(
    name: str, browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages[name], width=1280)
    heads = "return [...document.querySelectorAll('#glance h2')].map((h) => h.textContent)"
    assert browser.run(heads) == ["What limits it", "How sure that is", "What to do next"]
    # On a screen of 1280 by 900 it stands there whole, below the name of the machine.
    below = "return document.getElementById('glance').getBoundingClientRect().bottom"
    assert browser.run(below) <= 900
    # Each of its parts says something, and leads to where the rest stands.
    empty = """return [...document.querySelectorAll('#glance > div')].filter((d) =>
      !d.querySelector('li, dl, p:not(.more)') || !d.querySelector('.more a')).length"""
    assert browser.run(empty) == 0
    lost = """return [...document.querySelectorAll('a[href^="#"]')]
      .filter((a) => !document.querySelector(a.getAttribute('href'))).length"""
    assert browser.run(lost) == 0


@pytest.mark.heavy
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overlaps_at_64_endpoints(width: int, browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "pod.html"
    model = _fitted(rail_pod(8), seed=4, sizes=(2.0**28,), most=300)
    page.write_text(render_report(build_report(model)))
    assert page.stat().st_size < 1_500_000
    browser.open(page, width=width)
    assert browser.run(OVERLAPS) == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return document.querySelectorAll('.heat tbody td').length") == 3 * 64 * 64


CONTRASTS = """
const number = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((s, v, k) => s + v * [0.2126, 0.7152, 0.0722][k], 0);
const opaque = (c) => c.length === 3 || c[3] > 0;
function behind(element) {
  if (element instanceof SVGElement) {
    const own = element.parentElement.querySelector('rect.node');
    const shape = own || element.ownerSVGElement.querySelector('rect.panel');
    return number(getComputedStyle(shape).fill);
  }
  for (let e = element; e; e = e.parentElement) {
    const c = number(getComputedStyle(e).backgroundColor);
    if (opaque(c)) { return c; }
  }
  return [255, 255, 255];
}
const worst = {};
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const style = getComputedStyle(element);
  const unseen = ['SCRIPT', 'TITLE', 'title', 'OPTION'].includes(element.tagName);
  if (!own || unseen || style.display === 'none' || style.fontSize === '0px') { continue; }
  const ink = number(element instanceof SVGElement ? style.fill : style.color);
  const a = light(ink);
  const b = light(behind(element));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const name = `${element.tagName}.${element.getAttribute('class')}`;
  if (ratio < 4.5) { worst[`${name} ${element.textContent.slice(0, 20)}`] = ratio; }
}
return worst;
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["time-shared", "mesh", "pod"])
def test_text_stands_out(name: str, dark: bool, browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages[name], dark=dark)
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    # Every shade of both scales, whether this machine has it or not.
    browser.run(
        """const row = document.querySelector('.heat tbody').insertRow();
        for (const c of 'qd') { for (let k = 0; k < 9; k += 1) {
          const td = row.insertCell(); td.className = c + k; td.textContent = '1'; } }"""
    )
    assert browser.run(CONTRASTS) == {}


UNNAMED = """
const controls = [...document.querySelectorAll('input, select, button, textarea, [tabindex="0"]')];
return controls.filter((c) => !(c.getAttribute('aria-label') || c.getAttribute('aria-labelledby')
  || c.labels?.length || c.textContent.trim() || c.caption)).map((c) => c.outerHTML.slice(0, 80));
"""


def test_it_can_be_read_and_used_without_eyes_or_a_mouse(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["tree"])
    assert browser.run(UNNAMED) == []
    assert browser.run("return document.querySelectorAll('th:not([scope])').length") == 0
    assert (
        browser.run("return document.querySelectorAll('svg.card:not([aria-labelledby])').length")
        == 0
    )
    assert browser.run("return document.documentElement.lang") == "en"
    right, down = "\ue014", "\ue015"
    browser.press(".heat", right + right + down)
    line = browser.run("return document.getElementById('readout').textContent")
    assert line.startswith("gpu1 → gpu2: measured ")
    assert "predicted" in line
    cell = browser.run(
        "return document.querySelector('.heat tbody tr:nth-child(2)')"
        ".querySelectorAll('td')[2].textContent"
    )
    assert f"measured {cell}," in line


def test_on_paper(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["tree"], dark=True)
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
        hidden = "return getComputedStyle(document.getElementById('calculator')).display"
        assert browser.run(hidden) == "none"
        # What the calculator has lit up on the screen is not on paper, which lacks its form.
        lit = """const c = document.querySelector('.cell.binds .mark');
          return getComputedStyle(c).display"""
        assert browser.run(lit) == "none"
        printed = browser.devtools("Page.printToPDF", printBackground=True)
        assert len(printed["data"]) > 10_000
    finally:
        browser.devtools("Emulation.setEmulatedMedia", media="")
