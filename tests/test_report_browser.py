"""The report in a real browser: hostile names do nothing, nothing is fetched, and nobody needs
eyes or a mouse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from browser import Browser, needs_browser
from report_models import pairs_of

from topocal.measure.patterns import fan_in, peer
from topocal.measure.simulated import SimulatedMachine
from topocal.report.page import build_report, render_report
from topocal.solve.fit import fit
from topocal.solve.model import Model
from topocal.solve.predict import predict
from topocal.topo.builder import TopologyBuilder
from topocal.topo.capacities import Capacities
from topocal.topo.resource import LinkKind, NodeKind

pytestmark = needs_browser


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
    patterns = [peer(a, b, 2.0**28) for a, b in pairs_of(topology)]
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
    assert browser.shown_seconds() == pytest.approx(asked.seconds, rel=1e-9)


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
    assert browser.complains_of("Content Security Policy")


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
