"""TACCL's link cost profiles: what a chunk costs on each class of links.

What the figures are (taccl/examples/topo in microsoft/taccl): ``alpha`` is what a transfer
costs before its first byte, ``node_betas_list`` what one chunk costs beyond that on each
class of links inside a node, fastest first, ``node_invbws_list`` both together;
``remote_…`` the same for the network card.  The size of a chunk ends the profile's name
(``NDv2_1KB``).  The unit of the costs is in no file: the published profiles agree with
each other only when it is 0.01 µs for chunks of 1 KB, 0.1 µs for 32 KB and 1 µs for 1 MB
(with 1 MB = 1024 KB), and these three are read.  A million bytes make a megabyte.

Which GPUs a class joins is not in the file, so nothing in it is a sample: each class
becomes a :class:`~topocal.measure.importers.imported.LinkCost`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from topocal.measure.importers.figures import number
from topocal.measure.importers.imported import Draft, Imported, LinkCost
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.json_text import begins_json, find_json
from topocal.topo.errors import one_line

__all__ = ["TACCL", "looks_like_taccl", "parse_taccl"]

TITLE: Final = "TACCL profile"

_UNIT_S: Final = {"1KB": 1e-8, "32KB": 1e-7, "1MB": 1e-6}
_CHUNKS_PER_MB: Final = {"1KB": 1024.0, "32KB": 32.0, "1MB": 1.0}
_MEGABYTE: Final = 1e6
_NAME: Final = re.compile(r".{0,200}?([0-9]{1,6})\s?([KMG])i?B", re.IGNORECASE)
_DISAGREES: Final = 0.10
_REMEDY: Final = "give a profile such as taccl/examples/topo has them"


def looks_like_taccl(text: str) -> bool:
    """Whether a text is a profile."""
    return begins_json(text) and '"node_betas_list"' in text


def parse_taccl(text: str, *, file: str) -> Imported:
    """The link classes of one profile or several.

    Raises
    ------
    FormatError
        When it is none, the size of its chunks is not one of the three, or a cost is no
        cost.
    """
    draft = Draft(kind="taccl", title=TITLE, file=file)
    documents, cuts = find_json(text, file=file)
    for sentence in cuts:
        draft.note(sentence)
    for document, line in documents:
        _add_profile(draft, document, line)
    return draft.done()


def _add_profile(draft: Draft, profile: dict[str, Any], line: int) -> None:
    if "node_betas_list" not in profile:
        raise draft.fail(
            "is no TACCL profile: it has no node_betas_list", line=line, remedy=_REMEDY
        )
    chunk = _chunk(draft, profile, line)
    unit_s, per_mb = _UNIT_S[chunk], _CHUNKS_PER_MB[chunk]
    name = one_line(profile.get("name"))
    betas = profile["node_betas_list"]
    if not isinstance(betas, list) or not 0 < len(betas) <= 64:
        raise draft.fail("node_betas_list is no list of costs", line=line, remedy=_REMEDY)
    stated = profile.get("node_invbws_list")
    totals = stated if isinstance(stated, list) else []
    alpha = _cost(draft, profile.get("alpha"), "alpha", line)
    classes = [
        (
            f"GPU links, class {k + 1} of {len(betas)}" if len(betas) > 1 else "GPU links",
            alpha,
            _cost(draft, beta, "a beta", line),
            totals[k] if k < len(totals) else None,
        )
        for k, beta in enumerate(betas)
    ]
    if profile.get("remote_beta") is not None:
        classes.append(
            (
                "network card",
                _cost(draft, profile.get("remote_alpha"), "remote_alpha", line),
                _cost(draft, profile["remote_beta"], "remote_beta", line),
                profile.get("remote_invbw"),
            )
        )
    costs = []
    for links, start, beta, total in classes:
        if beta <= 0:
            raise draft.fail(f"the beta of {links} is zero", line=line, remedy=_REMEDY)
        known = number(total)
        if known is not None and abs(known - start - beta) > _DISAGREES * (start + beta):
            draft.note(
                f"{name}: alpha and beta of {links} make {start + beta:g}, its invbw says {known:g}"
            )
        costs.append(
            LinkCost(
                links=links,
                alpha_s=start * unit_s,
                beta_s_per_byte=beta * unit_s * per_mb / _MEGABYTE,
                where=draft.where(line),
            )
        )
    conditions = {"profile": name, "chunk": chunk}
    for key, label in (("gpus_per_node", "gpus per node"), ("nics_per_node", "nics per node")):
        count = number(profile.get(key))
        if count is not None and 0 < count < 1e6:
            conditions[label] = str(int(count))
    draft.add(name, costs=costs, conditions=conditions, default=False)
    draft.note(
        f"{name}: its costs are per chunk of {chunk} in units of {unit_s * 1e6:g} us, converted; "
        "which GPUs a class joins is not said"
    )


def _chunk(draft: Draft, profile: dict[str, Any], line: int) -> str:
    """The size of a chunk, from the end of the profile's name."""
    name = profile.get("name")
    match = _NAME.fullmatch(name) if isinstance(name, str) and len(name) <= 200 else None
    chunk = "" if match is None else f"{int(match[1])}{match[2].upper()}B"
    if chunk not in _UNIT_S:
        raise draft.fail(
            f"the name {one_line(name)!r} does not end in 1KB, 32KB or 1MB, so that the unit of "
            "the costs is not known",
            line=line,
            remedy="name the size of a chunk in it, as the published profiles do",
        )
    return chunk


def _cost(draft: Draft, value: Any, what: str, line: int) -> float:
    found = number(value)
    if found is None or not 0 <= found < 1e12:
        raise draft.fail(f"{what} is {one_line(value)}, no cost", line=line, remedy=_REMEDY)
    return found


TACCL: Final = Importer(
    name="taccl",
    title=TITLE,
    looks_like=looks_like_taccl,
    parse=parse_taccl,
)
"""The importer that the registry lists."""
