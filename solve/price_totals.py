"""What a transfer takes when only each process's totals are known, not who sends to whom.

Then a price has bounds, in closed form:

*At least.*  Bytes that leave a set of senders and find no room at receivers outside a block
must cross the block: at least ``sent(A) - received(outside B)`` for the block A to B, and
likewise from the receivers' side.  A resource is busy at least for what its blocks must
carry; a time-shared one serves each byte no faster than its fastest pair.  And a process
takes at least its total over what it passes at most, whoever the others are.

Between few processes (:data:`topocal.solve.best_pairing.MOST_PROCESSES`) a linear program over
all ways to pair them says more.

*At most.*  No block carries more than its senders send or its receivers receive; a time-shared
receiver gets its bytes from the slowest senders that have them.

Both are of the busiest resource's time; the first is proven as far as the caps are, the
second is no promise for flows of unlike sizes, which may take longer than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from topocal.solve.best_pairing import MOST_PROCESSES, best_pairing_s
from topocal.solve.caps import Cap, Caps, as_caps, costs_of
from topocal.solve.conditions import Conditions
from topocal.solve.price import TWO_SIDED, UNPROVEN, Load
from topocal.topo.errors import FlowError
from topocal.topo.resource import Sharing

if TYPE_CHECKING:
    from topocal.solve.model import Model
    from topocal.solve.pair_costs import PairCosts
    from topocal.solve.transfers import Totals

__all__ = ["PriceBounds", "price_bounds"]

Floats = NDArray[np.float64]

_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBounds:
    """Between what and what a transfer takes, whoever sends to whom.

    Attributes
    ----------
    at_least_s
        No way to pair senders with receivers is faster, by these caps.
    proven_s
        The same with every cap at the upper end of its interval, those without one
        unlimited, and pairs as slow as they were alone, but for the noise: what the data proves.
    at_most_s
        No way keeps a resource busy for longer, by these caps.
    busiest
        What says ``at_least_s``; ``None`` when nothing must be busy.
    because
        Its reason in words.
    runner_up
        The next to it.
    worst
        What may be busy for ``at_most_s``.
    moved_bytes
        In all.
    notes
        On the conditions of the calibration.
    """

    at_least_s: float
    proven_s: float
    at_most_s: float
    busiest: Load | None
    because: str
    runner_up: Load | None
    worst: Load | None
    moved_bytes: float
    notes: tuple[str, ...] = ()


def price_bounds(
    caps: Caps | Model,
    totals: Totals,
    *,
    under: Conditions | None = None,
    allow_stale: bool = False,
) -> PriceBounds:
    """Bounds on the price of a transfer of which only totals are known.

    Parameters
    ----------
    under, allow_stale
        As in :func:`topocal.solve.price.price`.

    Raises
    ------
    InputError
        When the totals are of another number of processes, something cannot be carried, or
        the calibration was under other conditions.
    """
    known = as_caps(caps)
    n = len(known.endpoints)
    for side in (totals.sent, totals.received):
        if side is not None and len(side) != n:
            raise FlowError(
                f"totals of {len(side)} processes, caps of {n}",
                remedy="give caps of the same processes",
            )
    notes = () if under is None else known.calibration.require_same(under, allow_stale=allow_stale)
    return replace(_Bounds(known, totals).bounds(), notes=notes)


class _Bounds:
    def __init__(self, caps: Caps, totals: Totals) -> None:
        self._caps = caps
        self._n = len(caps.endpoints)
        known = totals.sent if totals.sent is not None else totals.received
        self._total = 0.0 if known is None else float(known.sum())
        # Of a side that is not known, every process may have all, and none need have any.
        everything = np.full(self._n, self._total)
        self._sent = everything if totals.sent is None else totals.sent
        self._received = everything if totals.received is None else totals.received
        self._least = (totals.sent, totals.received)
        self._members = [np.array(s, dtype=np.int64) for s in caps.sets]

    def bounds(self) -> PriceBounds:
        """All that there is to say."""
        caps = self._caps
        self._refuse_shut()
        costs = caps.pair_costs
        least = self._ranked(self._least_busy(costs, [cap.cap_Bps for cap in caps.resources]))
        most = self._ranked(self._most_busy(costs))
        process = self._process_bound()
        at_least = least[0].seconds if least else 0.0
        because = f"{least[0].label} must carry so much, whoever sends to whom" if least else ""
        if process is not None and process[0] > at_least * (1 + _SAME):
            at_least, because = process
        if self._n <= MOST_PROCESSES and at_least > 0:
            best = best_pairing_s(costs, *self._least)
            if best > at_least * (1 + _SAME):
                at_least, because = best, "no way to pair senders with receivers is faster"
        top = [cap.high_Bps for cap in caps.resources]
        high = costs_of(caps, top, [cap.kappa_low for cap in caps.resources])
        proven = self._ranked(self._least_busy(high, top))
        # What engines add up is known from the pairs, but for the noise.
        engines = [one.seconds for one in least if one.sharing is Sharing.TIME_SHARED]
        known_s = max(engines, default=0.0) * float(np.exp(-TWO_SIDED * caps.noise))
        proven_s = max(proven[0].seconds if proven else 0.0, known_s)
        return PriceBounds(
            at_least_s=self._with_start_up(at_least),
            proven_s=self._with_start_up(min(proven_s, at_least)),
            at_most_s=self._with_start_up(
                max(at_least, most[0].seconds * self._most_lost() if most else 0.0)
            ),
            busiest=least[0] if least else None,
            because=because,
            runner_up=least[1] if len(least) > 1 else None,
            worst=most[0] if most else None,
            moved_bytes=self._total,
        )

    def _with_start_up(self, busy_s: float) -> float:
        if busy_s <= 0:
            return 0.0
        return max(busy_s + self._caps.offset_s, self._caps.least_s)

    def _most_lost(self) -> float:
        """How many times as long it takes if all flows that are possible run at once."""
        if self._caps.fading is None:
            return 1.0
        senders, receivers = (np.flatnonzero(side > 0) for side in (self._sent, self._received))
        both = len(np.intersect1d(senders, receivers))
        pairs = len(senders) * len(receivers) - both
        return float(self._caps.fading.factor(np.array(pairs)))

    def _refuse_shut(self) -> None:
        """A process that must send, or receive, and can to nobody.

        Raises
        ------
        FlowError
            Naming it.
        """
        n = self._n
        shut = self._caps.pair_costs.blocked.reshape(n, n) | np.eye(n, dtype=bool)
        for side, axis, words in zip(self._least, (1, 0), ("send to", "receive from"), strict=True):
            if side is None:
                continue
            lost = np.flatnonzero((side > 0) & shut.all(axis=axis))
            if len(lost):
                raise FlowError(
                    f"{self._caps.endpoints[int(lost[0])]} can {words} nobody: every route has a "
                    "cap of 0 B/s",
                    remedy="calibrate again",
                )

    def _process_bound(self) -> tuple[float, str] | None:
        """The longest that a process takes for its total at what it passes at most."""
        table, found = self._caps.processes, []
        for side, rates, words in (
            (self._least[0], table.send_Bps, "sends"),
            (self._least[1], table.receive_Bps, "receives"),
        ):
            for k, rate in enumerate(rates):
                if side is not None and rate and side[k] > 0:
                    name = self._caps.endpoints[k]
                    reason = f"all that {name} {words}, at what it passes at most"
                    found.append((float(side[k]) / rate, reason))
        return max(found, key=lambda one: one[0], default=None)

    def _least_busy(self, costs: PairCosts, rates: Sequence[float | None]) -> list[float]:
        """Seconds that each resource must be busy."""
        result = []
        for cap, rate in zip(self._caps.resources, rates, strict=True):
            busy = 0.0
            for senders, receivers, weight in cap.loads:
                a, b = self._members[senders], self._members[receivers]
                forced = self._forced(a, b)
                if forced > 0:
                    busy += forced * self._each(cap, costs, rate, a, b, weight, fastest=True)
            # A fatpipe limits each flow alone: nothing forces a flow to be large.
            result.append(0.0 if cap.sharing is Sharing.FATPIPE else busy)
        return result

    def _forced(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
        """Bytes that must go from senders ``a`` to receivers ``b``.

        Of a single sender, itself is no receiver outside; the same the other way round.
        """
        found = 0.0
        for (mine, theirs), own, other in (
            ((a, b), self._least[0], self._received),
            ((b, a), self._least[1], self._sent),
        ):
            if own is None:
                continue
            outside = np.ones(self._n, dtype=bool)
            outside[theirs] = False
            if len(mine) == 1:
                outside[mine] = False
            found = max(found, float(own[mine].sum() - other[outside].sum()))
        return found

    def _each(
        self,
        cap: Cap,
        costs: PairCosts,
        rate: float | None,
        a: NDArray[np.int64],
        b: NDArray[np.int64],
        weight: float,
        *,
        fastest: bool,
    ) -> float:
        """Seconds that a byte of a block takes of its resource, of the fastest pair or slowest."""
        if cap.sharing is not Sharing.TIME_SHARED:
            return 0.0 if rate is None else np.inf if rate == 0 else weight / rate
        kappa = 1.0 if cap.kappa is None else cap.kappa
        pairs = (a[:, None] * self._n + b).ravel()
        pairs = pairs[(pairs % (self._n + 1) != 0) & ~costs.blocked[pairs]]
        alone = costs.alone_s[pairs]
        return kappa * float(alone.min() if fastest else alone.max()) if len(alone) else 0.0

    def _most_busy(self, costs: PairCosts) -> list[float]:
        """Seconds that each resource may be busy."""
        result = []
        for cap in self._caps.resources:
            parts = []
            for senders, receivers, weight in cap.loads:
                a, b = self._members[senders], self._members[receivers]
                carried = min(float(self._sent[a].sum()), float(self._received[b].sum()))
                if carried <= 0:
                    continue
                if cap.sharing is Sharing.TIME_SHARED and len(b) == 1:
                    parts.append(self._slowest_into(cap, costs, a, int(b[0])))
                    continue
                each = self._each(cap, costs, cap.cap_Bps, a, b, weight, fastest=False)
                if cap.sharing is Sharing.FATPIPE:
                    carried = min(float(self._sent[a].max()), float(self._received[b].max()))
                parts.append(0.0 if np.isinf(each) else carried * each)
            longest = max(parts, default=0.0)
            result.append(longest if cap.sharing is Sharing.FATPIPE else float(sum(parts)))
        return result

    def _slowest_into(self, cap: Cap, costs: PairCosts, a: NDArray[np.int64], b: int) -> float:
        """A receiver's engine when its bytes come from the slowest senders that have them."""
        others = a[(a != b) & ~costs.blocked[a * self._n + b]]
        alone = costs.alone_s[others * self._n + b]
        left, busy = float(self._received[b]), 0.0
        for k in np.argsort(-alone, kind="stable").tolist():
            part = min(left, float(self._sent[others[k]]))
            busy, left = busy + part * float(alone[k]), left - part
        return busy * (1.0 if cap.kappa is None else cap.kappa)

    def _ranked(self, seconds: list[float]) -> list[Load]:
        found = [
            Load(
                resource=cap.id,
                label=cap.label,
                sharing=cap.sharing,
                status=cap.status,
                seconds=one,
            )
            for cap, one in zip(self._caps.resources, seconds, strict=True)
            if one > 0
        ]
        return sorted(found, key=lambda one: (-one.seconds, one.status in UNPROVEN, one.resource))
