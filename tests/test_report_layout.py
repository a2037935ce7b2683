"""The report's looks in a real browser: nothing overlaps or is cut, the answer comes first."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser, needs_browser
from report_models import MODELS, fitted

from topocal.report.page import build_report, render_report
from topocal.topo.machines import rail_pod

pytestmark = needs_browser


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


@pytest.mark.heavy
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
    model = fitted(rail_pod(8), seed=4, sizes=(2.0**28,), most=300)
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
