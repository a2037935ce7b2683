"""Schemas from types: msgspec's, with every field's description from the docstrings.

References
----------
JSON Schema, draft 2020-12.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from typing import Any, Final, get_type_hints

import msgspec

from topocal.measure.provenance import KEYS
from topocal.schemas.documents import DESCRIBED_BY, DOCUMENTS
from topocal.topo.choices import one_of

__all__ = ["NAMES", "encode_schema", "schema_of"]

NAMES: Final = tuple(DOCUMENTS)
"""What there are schemas of."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PROVENANCE: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "table": {"type": "object", "additionalProperties": {"type": "string"}},
    "numbers": {"type": "object", "additionalProperties": {"type": "number"}},
}
"""The types of provenance keys (:class:`topocal.measure.provenance.Key`)."""


def schema_of(name: str) -> dict[str, Any]:
    """The schema of a file.

    Raises
    ------
    InputError
        When there is none of that name.
    """
    name = one_of(name, NAMES, what="schema")
    document = DOCUMENTS[name]
    (top,), parts = msgspec.json.schema_components([document], ref_template="#/$defs/{name}")
    types = _types_of(document)
    for title, part in parts.items():
        _describe(part, types.get(title))
    own = parts.pop(str(top["$ref"]).rpartition("/")[2])
    own.pop("title", None)
    return {
        "$schema": _DIALECT,
        "$id": f"urn:topocal:schema:{name}",
        "title": f"{name}.json",
        **own,
        "$defs": dict(sorted(parts.items())),
    }


def encode_schema(name: str) -> bytes:
    """The schema as it stands in docs/schemas, with an end of line.

    Raises
    ------
    InputError
        When there is none of that name.
    """
    return msgspec.json.format(msgspec.json.encode(schema_of(name)), indent=2) + b"\n"


def _types_of(document: type) -> dict[str, type]:
    """The document's type and all that its fields lead to, by name."""
    found: dict[str, type] = {}
    waiting: list[Any] = [document]
    while waiting:
        known = waiting.pop()
        if isinstance(known, type) and (issubclass(known, msgspec.Struct) or is_dataclass(known)):
            if known.__name__ not in found:
                found[known.__name__] = known
                waiting += get_type_hints(known).values()
        elif isinstance(known, type):
            found.setdefault(known.__name__, known)
        waiting += getattr(known, "__args__", ())
    return found


def _describe(part: dict[str, Any], known: type | None) -> None:
    """Give each property its own sentence, and leave the rest of the docstring to the whole."""
    if "description" in part:
        part["description"] = _prose(part["description"])
    properties = part.get("properties", {})
    words: dict[str, str] = {}
    if known is not None:
        for source in (DESCRIBED_BY.get(known), known):
            words |= {} if source is None else _attributes(source)
    for name, value in properties.items():
        if name in words:
            _set_first(value, "description", words[name])
        if name == "provenance" and value.get("type") == "object":
            _list_provenance(value)


def _set_first(schema: dict[str, Any], key: str, value: str) -> None:
    rest = dict(schema)
    schema.clear()
    schema.update({key: value, **rest})


def _list_provenance(schema: dict[str, Any]) -> None:
    """The keys that a record of conditions may have."""
    schema["properties"] = {
        name: {
            "description": key.meaning if key.unit is None else f"{key.meaning} Unit: {key.unit}.",
            **_PROVENANCE[key.type],
        }
        for name, key in sorted(KEYS.items())
    }
    schema["additionalProperties"] = False


def _attributes(known: type) -> dict[str, str]:
    """What a numpydoc docstring says of each attribute."""
    text = inspect.cleandoc(known.__doc__ or "")
    section = re.search(
        r"^Attributes\n-+\n(.*?)(?=^\w[^\n]*\n-{3,}\n|\Z)", text, re.MULTILINE | re.DOTALL
    )
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else ():
        if line and not line.startswith(" "):
            if not re.fullmatch(r"\w+(, \w+)*", line):
                break  # Prose after the list.
            names = line.split(", ")
        elif line.strip():
            for name in names:
                found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return {name: _plain(words) for name, words in found.items()}


def _prose(text: str) -> str:
    """A docstring's sentences, without the list of attributes."""
    before = re.split(r"^Attributes\n-+$", text, maxsplit=1, flags=re.MULTILINE)[0]
    return "\n\n".join(_plain(" ".join(p.split())) for p in before.strip().split("\n\n"))


def _plain(text: str) -> str:
    """Without the marks of reStructuredText, in the words of JSON."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?([\w]+)`", r"\1", text)
    return re.sub(r"\bNone\b", "null", text.replace("``", ""))
