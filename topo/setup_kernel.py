"""What the fluid simulator's loop begins with: the classes of a pattern and their lines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from topocal.topo.filling_kernel import NOWHERE
from topocal.topo.jit import inlined

__all__ = ["prepare"]

# The codes of topocal.topo.capacities.SHARING_CODE (a test compares them).
_TIME_SHARED = 2
_FATPIPE = 3


@inlined
def prepare(
    low: int,
    high: int,
    pair: NDArray[np.int64],
    size: NDArray[np.float64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    cost: NDArray[np.float64],
    sharing: NDArray[np.int8],
    kappa: NDArray[np.float64],
    in_order: NDArray[np.bool_],
    class_of: NDArray[np.int64],
    resources: Any,
    classes: Any,
    lines: Any,
    used: NDArray[np.int64],
    blocked: NDArray[np.int64],
) -> tuple[int, int]:
    """Make the classes of the flows ``low`` to ``high - 1`` and their lines.

    Returns the number of classes and of columns in ``used``.  ``blocked`` gets the
    flow and column where a capacity of zero is in the way.
    """
    n = 0
    for f in range(low, high):
        row = pair[f]
        if size[f] == 0.0:
            continue
        if class_of[row] < 0:
            class_of[row] = n
            classes[n].pair = row
            classes[n].total = 0
            n += 1
        classes[class_of[row]].total += 1
    n_lines, n_used = 0, 0
    for c in range(n):
        row = classes[c].pair
        slowest = 0.0
        classes[c].bound_column = -1
        classes[c].engines = 0
        classes[c].first = n_lines
        for k in range(indptr[row], indptr[row + 1]):
            r, seconds = indices[k], cost[k]
            if seconds == np.inf and blocked[0] < 0 and sharing[r] != _TIME_SHARED:
                blocked[0], blocked[1] = row, r
            if in_order[r]:
                classes[c].engines += 1
            elif seconds > 0.0 and sharing[r] != _FATPIPE:
                if resources[r].members == 0:
                    used[n_used] = r
                    n_used += 1
                    resources[r].candidate = 0.0
                resources[r].members += 1
                lines[n_lines].column = r
                lines[n_lines].cost = seconds * kappa[r]
                n_lines += 1
            if seconds > slowest and sharing[r] != _TIME_SHARED:
                slowest = seconds
                classes[c].bound_column = r
        classes[c].last = n_lines
        classes[c].bound = 1.0 / slowest if slowest > 0.0 else np.inf
        most = classes[c].bound * classes[c].total
        for k in range(classes[c].first, n_lines):
            resources[lines[k].column].candidate += lines[k].cost * most
    # A resource that all its flows together cannot fill plays no part.
    n_lines = 0
    for c in range(n):
        first, last = classes[c].first, classes[c].last
        classes[c].first = n_lines
        for k in range(first, last):
            r = lines[k].column
            if resources[r].candidate <= 1.0:
                continue
            lines[n_lines].column = r
            lines[n_lines].cost = lines[k].cost
            n_lines += 1
        classes[c].last = n_lines
        classes[c].rate = 0.0
        classes[c].count = 0
        classes[c].stop = NOWHERE
        classes[c].state = 0
        classes[c].waiting = 0
        classes[c].place = -1
        classes[c].is_moved = False
        classes[c].is_changed = False
    place = 0
    for i in range(n_used):
        r = used[i]
        resources[r].first = place
        place += resources[r].members
        resources[r].members = 0
        resources[r].filled_at = np.inf
        resources[r].weight = 0.0
        resources[r].turn = 0
        resources[r].place = -1
    place = 0
    for c in range(n):
        classes[c].targets = place
        place += classes[c].total * (1 + classes[c].engines)
    return n, n_used
