"""The documentation as a site: it builds without a warning, and fetches nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

import topocal
from topocal import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = _tool("reference")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install 'topocal[docs]'")
    place = tmp_path_factory.mktemp("site")
    # No proxy answers there: what would be fetched while building could not be.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "WARNING" not in ran.stderr
    return place


class _Links(HTMLParser):
    """What a page loads by itself, where it leads, and what can be led to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.leads.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(found["href"])
        elif "src" in found:
            self.loads.append(found["src"])


def _links(page: Path) -> _Links:
    links = _Links()
    links.feed(page.read_text())
    return links


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= len(list(DOCS.rglob("*.md")))
    for page in pages:
        loads = _links(page).loads
        assert loads
        assert not [url for url in loads if urlsplit(url).netloc]
    for style in site.rglob("*.css"):
        text = style.read_text()
        assert "@import" not in text
        assert not re.search(r"url\([\"']?(?:https?:)?//", text)


def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    known = {page: _links(page) for page in site.rglob("*.html")}
    for page, links in known.items():
        if page.name == "404.html":  # Its links are from the root of wherever the site is put.
            continue
        for url in (*links.leads, *links.loads):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.exists(), f"{page.name} leads to {url}"
            if parts.fragment and target in known:
                assert unquote(parts.fragment) in known[target].names, f"{page.name}: {url}"


def test_no_page_is_missing_and_no_block_is_left_raw(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        built = (site / page.relative_to(DOCS)).with_suffix(".html")
        assert built.exists()
        assert "```" not in re.sub(r"<code>.*?</code>", "", built.read_text(), flags=re.DOTALL)
    assert not (site / "tools").exists()


@pytest.mark.parametrize("name", REFERENCE.PAGES)
def test_what_the_program_makes_is_current(name: str) -> None:
    made = REFERENCE.PAGES[name]()
    assert (DOCS / name).read_text() == made, f"docs/{name}: run `make reference`"


def test_the_reference_has_every_command_option_and_name() -> None:
    from typer.main import get_command

    commands = (DOCS / "reference" / "commands.md").read_text()
    group = get_command(cli.command_line())
    names = [path.stem for path in (ROOT / "topocal" / "commands").glob("[a-z]*.py")]
    assert group is not None
    for name in names:
        assert f"\n## topocal {name}\n" in commands
    python = (DOCS / "reference" / "python.md").read_text()
    for name in topocal.__all__:
        assert f"\n### {name}\n" in python


def test_a_numpydoc_docstring_becomes_markdown() -> None:
    def example() -> None:
        """Do it with :func:`other.one`.

        >>> example()
        1

        Parameters
        ----------
        size
            Of ``it``,
            in bytes.
        start
            Of all.
        """

    assert list(REFERENCE.docstring(example)) == [
        "Do it with `one`.",
        "",
        "```pycon",
        ">>> example()",
        "1",
        "```",
        "",
        "**Parameters**",
        "",
        "`size`",
        ":   Of `it`,",
        "    in bytes.",
        "",
        "`start`",
        ":   Of all.",
    ]


def test_blocks_get_titles() -> None:
    titled = _tool("hooks").titled
    page = "```text topo.txt\nx\n```\n\n```output\ny\n```\n\n```sh\nz\n```\n"
    assert titled(page) == (
        '```text title="topo.txt"\nx\n```\n\n```text title="prints"\ny\n```\n\n```sh\nz\n```\n'
    )


def test_every_page_is_reached_from_the_first(site: Path) -> None:
    leads = set(_links(site / "index.html").leads)
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS).with_suffix(".html"))
        assert name in leads


@pytest.mark.parametrize("picture", sorted(DOCS.rglob("*.svg")), ids=lambda p: p.name)
def test_lines_of_a_picture_are_no_black_shapes(picture: Path) -> None:
    """A path that is stroked but not said to be unfilled is filled with black."""

    def look(element: ElementTree.Element, *, filled: bool) -> None:
        filled = filled and "fill" not in element.attrib and "class" not in element.attrib
        shape = element.tag.rpartition("}")[2]
        assert not (shape in ("path", "polyline") and filled), element.attrib
        for child in element:
            look(child, filled=filled)

    look(ElementTree.parse(picture).getroot(), filled=True)
