"""An assignment on disk: assignment.json, and CSV of its parts.

History of assignment.json: 1 (2026-11) first version.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from topocal.solve.caps_document import caps_digest
from topocal.solve.policy.answer import Assignment
from topocal.solve.price import NOT_KNOWN
from topocal.topo.io import encode_document, write_atomically

__all__ = ["assignment_to_document", "summary", "write_assignment"]

FORMAT: Final = "topocal/assignment"
VERSION: Final = 1


def summary(answer: Assignment) -> dict[str, Any]:
    """What it takes and what was compared, as JSON values."""
    price = answer.price
    known = answer.is_known
    return {
        "finish_s": answer.finish_s if known else None,
        "bound_s": answer.bound_s if known else None,
        "gap": answer.gap if known else None,
        "busiest_s": answer.with_start_up(answer.chosen.busy_s) if known else None,
        "bottleneck": answer.bottleneck,
        "method": answer.chosen.name,
        "requests": len(answer.requests),
        "part_count": answer.chosen.parts,
        "moved_bytes": int(answer.bytes_of_pair.sum()),
        "answer_digest": answer.digest,
        "caps_digest": None if answer.caps is None else caps_digest(answer.caps),
        "interval_s": None if price is None or not known else [price.low_s, price.high_s],
        "dependence": None
        if price is None
        else {
            "share": price.dependence.share,
            "seconds_without": price.dependence.seconds_without,
            "seconds_at_least": price.dependence.seconds_at_least,
            "resources": [
                {"resource": load.resource, "status": str(load.status), "seconds": load.seconds}
                for load in price.dependence.resources
            ],
            "unmeasured": list(price.unmeasured),
            "by_turns": list(price.by_turns),
        },
        "notes": [*answer.notes, *([] if known else [NOT_KNOWN])],
        "candidates": [
            {
                "name": one.name,
                "busiest_s": answer.with_start_up(one.busy_s) if known else None,
                "finish_s": answer.with_start_up(one.fair_s)
                if known and one.fair_s is not None
                else None,
                "part_count": one.parts,
            }
            for one in answer.candidates
        ],
    }


def assignment_to_document(answer: Assignment) -> dict[str, Any]:
    """Everything as JSON values, the parts of each request in the order they were given."""
    return {
        "format": FORMAT,
        "version": VERSION,
        **summary(answer),
        "parts": list(_parts(answer)),
    }


def write_assignment(answer: Assignment, path: str | Path) -> None:
    """Write it atomically: the parts alone where the file's name ends in ``.csv``.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    if str(path).lower().endswith(".csv"):
        write_atomically(path, _as_csv(answer))
    else:
        write_atomically(path, encode_document(assignment_to_document(answer)))


def _parts(answer: Assignment) -> Iterator[dict[str, Any]]:
    for k, (request, parts) in enumerate(answer):
        for part in parts:
            yield {
                "request": k,
                "parameter": request.parameter,
                "target": request.target,
                "holder": part.holder,
                "origin": list(part.origin),
                "shape": list(part.shape),
            }


def _as_csv(answer: Assignment) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["request", "parameter", "target", "holder", "origin", "shape"])
    for row in _parts(answer):
        numbers = [" ".join(map(str, row[name])) for name in ("origin", "shape")]
        writer.writerow([row["request"], row["parameter"], row["target"], row["holder"], *numbers])
    return text.getvalue().encode("utf-8", "backslashreplace")
