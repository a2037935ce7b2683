"""The report's calculator in a real browser: it agrees with ``topocal predict``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from browser import Browser, needs_browser
from report_models import MODELS, pairs_of

from topocal.measure.patterns import bundle, fan_in, fan_out, parse_pattern
from topocal.solve.model import Model
from topocal.solve.predict import predict
from topocal.topo.flow import Pattern

pytestmark = needs_browser


def _random_patterns(model: Model, seed: int, count: int) -> list[Pattern]:
    rng = np.random.default_rng(seed)
    ends, pairs = model.topology.accelerators, pairs_of(model.topology)
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
    assert browser.shown_seconds() == pytest.approx(asked.seconds, rel=1e-9)
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
    assert browser.shown_seconds() == pytest.approx(asked.seconds, rel=1e-9)
    browser.click("#all")
    browser.write("#size", "1.5GB")
    everybody = [f"gpu{k}" for k in range(8) if k != 3]
    (asked,) = predict(model, [fan_out("gpu3", everybody, 1.5e9)])
    assert browser.shown_seconds() == pytest.approx(asked.seconds, rel=1e-9)


def test_any_flows(browser: Browser, models: dict[str, Model], pages: dict[str, Path]) -> None:
    browser.open(pages["tree"])
    browser.click("input[name=mode][value=any]")
    _choose(browser, "#flows li:nth-child(1) select:first-of-type", "gpu0")
    _choose(browser, "#flows li:nth-child(1) select:last-of-type", "gpu4")
    _choose(browser, "#flows li:nth-child(2) select:first-of-type", "gpu1")
    _choose(browser, "#flows li:nth-child(2) select:last-of-type", "gpu5")
    (asked,) = predict(models["tree"], [parse_pattern("0->4 + 1->5", 2.0**28)])
    assert browser.shown_seconds() == pytest.approx(asked.seconds, rel=1e-9)
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
    assert browser.shown_seconds() <= asked.seconds
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
