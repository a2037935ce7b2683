"""What the site needs of pages that are also read as they are, and played by the tests.

A block's words after the fence (``text NAME``, ``output``) tell the tests what it is
(tests/test_docs.py); on the site they become the block's title.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["on_page_markdown", "titled"]

_FILE = re.compile(r"^```(text|csv|xml|json) +(\S+)[ \t]*$", re.MULTILINE)
_OUTPUT = re.compile(r"^```output[ \t]*$", re.MULTILINE)


def titled(markdown: str) -> str:
    """The same page with titles on its blocks.

    >>> titled("```output\\nx\\n```")
    '```text title="prints"\\nx\\n```'
    """
    markdown = _FILE.sub(r'```\1 title="\2"', markdown)
    return _OUTPUT.sub('```text title="prints"', markdown)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs with every page."""
    return titled(markdown)
