"""What the site needs of pages that are also read as they are, and played by the tests.

A block's words after the fence (``text NAME``, ``output``) tell the tests what it is
(tests/test_docs.py); on the site they become the block's title.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["on_config", "on_page_markdown", "titled"]

DOCS = Path(__file__).parents[1]

_FILE = re.compile(r"^```(text|csv|xml|json) +(\S+)[ \t]*$", re.MULTILINE)
_OUTPUT = re.compile(r"^```output[ \t]*$", re.MULTILINE)
_NEEDS = re.compile(r"^```sh torch[ \t]*$", re.MULTILINE)


def titled(markdown: str) -> str:
    """The same page with titles on its blocks.

    >>> titled("```output\\nx\\n```")
    '```text title="prints"\\nx\\n```'
    """
    markdown = _FILE.sub(r'```\1 title="\2"', markdown)
    markdown = _NEEDS.sub("```sh", markdown)
    return _OUTPUT.sub('```text title="prints"', markdown)


def on_config(config: Any) -> Any:
    """Called by MkDocs before it builds: pages that mkdocs.yml does not place stand at the end."""
    placed = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    pages = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    rest: list[Any] = [page for page in pages if page not in placed]
    if rest:
        config.nav.append({"More": rest})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs with every page."""
    return titled(markdown)
