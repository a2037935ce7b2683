"""What a sweep measures that knows nothing of the machine, for comparison.

Every ordered pair alone, every pair both ways, a relay for every shift, and at every
endpoint a fan in and a fan out over a quarter, half, three quarters and all of the
others: 155 patterns for 8 endpoints, 1,775 for 32, 6,623 for 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from topocal.measure.assembly import Budget, Drafts, Runs, assemble
from topocal.measure.budget import Worth
from topocal.measure.design import CLEAR_RATIO, REPEATS, WARM_UPS
from topocal.measure.pinning import Search
from topocal.measure.plan import DEFAULT_SIZES_BYTES, Plan, Purpose, Reason
from topocal.measure.setting import LEAST_RATIO, Setting
from topocal.topo.errors import InputError

if TYPE_CHECKING:
    from topocal.measure.crossings import Crossings
    from topocal.topo.topology import Topology

__all__ = ["exhaustive", "sweep_size"]

_MOST_PATTERNS: Final = 150_000


def sweep_size(endpoints: int) -> int:
    """How many patterns the sweep of so many endpoints has.

    >>> [sweep_size(n) for n in (2, 8, 32, 64)]
    [3, 155, 1775, 6623]
    """
    n = endpoints
    relays = len([shift for shift in range(1, n) if n > 2])
    return n * (n - 1) + n * (n - 1) // 2 + relays + 2 * n * len(_widths(n))


def _widths(n: int) -> list[int]:
    """Widths of the fans: a quarter, half and three quarters of the endpoints, and all others."""
    found = {n // 4, n // 2, 3 * n // 4, n - 1}
    return sorted(w for w in found if w > 1)


def exhaustive(
    topology: Topology,
    *,
    endpoints: Sequence[str] | None = None,
    theta: Mapping[str, float] | None = None,
    sizes_bytes: Sequence[float] = DEFAULT_SIZES_BYTES,
    repeats: int = REPEATS,
    warm_ups: int = WARM_UPS,
    clear_ratio: float = CLEAR_RATIO,
    budget_patterns: int | None = None,
    budget_s: float | None = None,
) -> Plan:
    """The whole sweep, one pattern after the other; parameters and errors as
    :func:`topocal.measure.design.design`.

    Raises
    ------
    InputError
        Also when the sweep has more than 150,000 patterns.
    """
    runs = Runs.of(sizes_bytes, repeats, warm_ups)
    budget = Budget(patterns=budget_patterns, seconds=budget_s)
    n = len(endpoints or topology.accelerators or topology.endpoints)
    if sweep_size(n) > _MOST_PATTERNS:
        raise InputError(
            f"a sweep of {n} endpoints has {sweep_size(n):,} patterns",
            remedy="name fewer endpoints, or let the plan be designed",
        )
    setting = Setting.of(topology, endpoints, theta)
    search = Search(setting.crossings, clear=clear_ratio)
    verdicts = setting.known_verdicts(())
    drafts = Drafts()
    for rows in _sweep(setting.crossings):
        drafts.add(rows, Reason(purpose=Purpose.SWEEP, about=""), Worth(Purpose.SWEEP, 1e-3))
    weights = search.weigh([d.rows for d in drafts])
    ratios = weights.ratio
    best: dict[int, int] = {}
    for number, group in enumerate(weights.busiest.tolist()):
        if group not in best or ratios[number] > ratios[best[group]]:
            best[group] = number
    for group, verdict in enumerate(verdicts):
        if verdict is not None:
            continue
        at = best.get(group)
        ratio = 0.0 if at is None else float(ratios[at])
        if at is not None and ratio >= LEAST_RATIO:
            drafts.add(drafts[at].rows, *setting.bottleneck(group, ratio))
        else:
            at = None
        verdicts[group] = setting.verdict(search, group, ratio, at, searched=False)
    return assemble(
        topology,
        setting.crossings,
        setting.prior,
        list(drafts),
        [v for v in verdicts if v is not None],
        runs=runs,
        clear_ratio=clear_ratio,
        budget=budget,
        one_by_one=True,
    )


def _sweep(crossings: Crossings) -> Iterator[tuple[int, ...]]:
    """Rows of every pattern; what no route carries is passed over."""
    c = crossings
    n = len(c.endpoints)
    for row in range(c.pairs):
        yield (row,)
    for row, back in enumerate(c.reverse.tolist()):
        if row < back:
            yield row, back
    if n > 2:
        for shift in range(1, n):
            ring = [int(c.row[k, (k + shift) % n]) for k in range(n)]
            if min(ring) >= 0:
                yield tuple(ring)
    for width in _widths(n):
        for root in range(n):
            for rows in (c.receiving(root), c.sending(root)):
                if len(rows) >= width:
                    yield tuple(rows[:width].tolist())
