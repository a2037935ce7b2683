"""Costs and requests for policies, and what an assignment moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csr_array

from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.requests import Request
from topocal.topo.resource import Sharing

EXAMPLES = Path(__file__).parents[1] / "examples" / "b70"


Uses = Mapping[str, tuple[float, Sequence[tuple[int, int]]]]


def costs_of(n: int, uses: Uses, *, engines: Sequence[int] = (), alpha_s: float = 0.0) -> PairCosts:
    """Capacities by name with the pairs that load them; receivers that serve by turns."""
    resources = [(name, Sharing.CAPACITY, cap, 1.0) for name, (cap, _) in uses.items()]
    resources += [(f"engine{e}", Sharing.TIME_SHARED, None, 1.0) for e in engines]
    entries = [(a * n + b, k) for k, (_, pairs) in enumerate(uses.values()) for a, b in pairs]
    entries += [
        (a * n + e, len(uses) + k) for k, e in enumerate(engines) for a in range(n) if a != e
    ]
    rows, columns = zip(*entries, strict=True)
    weights = csr_array(
        coo_array((np.ones(len(rows)), (rows, columns)), shape=(n * n, len(resources)))
    )
    return PairCosts.build([f"gpu{k}" for k in range(n)], resources, weights, alpha_s=alpha_s)


def senders(rates: Sequence[float], n: int) -> Uses:
    """Sender k passes ``rates[k]`` in all, to whomever."""
    return {
        f"sender{k}": (rate, [(k, b) for b in range(n) if b != k]) for k, rate in enumerate(rates)
    }


def wanted(target: int, holders: Sequence[int], shape: tuple[int, ...], name: str = "p") -> Request:
    return Request(
        parameter=name,
        target=f"gpu{target}",
        holders=tuple(f"gpu{h}" for h in holders),
        origin=(0,) * len(shape),
        shape=shape,
    )


def table_bytes(costs: PairCosts, table: object, holders: np.ndarray) -> np.ndarray:
    """Bytes of each pair when whole regions come from these holders."""
    n = len(costs.endpoints)
    moves = holders != table.target  # type: ignore[attr-defined]
    pair = (holders * n + table.target)[moves]  # type: ignore[attr-defined]
    size = table.size_bytes[moves].astype(float)  # type: ignore[attr-defined]
    return np.bincount(pair, size, n * n)
