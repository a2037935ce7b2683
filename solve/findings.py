"""What the figures say about the machine, in plain words, each with its evidence.

Every finder looks for one thing and is a function of the evidence alone; a clean machine,
noisy as it may be, is told nothing (:mod:`topocal.solve.evidence`).  What transfers share on
any machine (:mod:`topocal.solve.findings_sharing`) is no fault and stands apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from topocal.solve.evidence import Evidence, Finding, Severity
from topocal.solve.findings_duplex import (
    find_both_ways_of_all,
    find_duplex_loss,
    find_one_sided,
    find_staged_copies,
)
from topocal.solve.findings_groups import find_groups_apart
from topocal.solve.findings_host import find_slow_host_links
from topocal.solve.findings_levels import find_unlike_pairs
from topocal.solve.findings_links import find_slow_links
from topocal.solve.findings_pairs import (
    find_asymmetric_directions,
    find_near_slower_than_far,
    find_stragglers,
)
from topocal.solve.findings_patterns import (
    find_collapses,
    find_contradictions,
    find_fading,
    find_time_shared,
)
from topocal.solve.findings_units import find_wrong_unit
from topocal.solve.findings_uplinks import find_slow_uplinks

__all__ = ["FINDERS", "find_all"]

FINDERS: Final[tuple[Callable[[Evidence], list[Finding]], ...]] = (
    find_wrong_unit,
    find_stragglers,
    find_slow_uplinks,
    find_slow_host_links,
    find_slow_links,
    find_collapses,
    find_contradictions,
    find_staged_copies,
    find_near_slower_than_far,
    find_time_shared,
    find_one_sided,
    find_both_ways_of_all,
    find_unlike_pairs,
    find_groups_apart,
    find_asymmetric_directions,
    find_duplex_loss,
    find_fading,
)
"""In the order in which a reader wants to hear of them."""

_ORDER: Final = (Severity.SERIOUS, Severity.WARNING, Severity.NOTE)


def find_all(evidence: Evidence, also: Iterable[Finding] = ()) -> list[Finding]:
    """All findings, the serious ones first.

    Parameters
    ----------
    also
        Findings that do not come from the evidence: of the fit, of files.
    """
    found = [*(finding for find in FINDERS for finding in find(evidence)), *also]
    return sorted(found, key=lambda f: _ORDER.index(f.severity))
