"""Which resources every pair of endpoints loads, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, inlined

__all__ = ["load_entries"]

_B = NDArray[np.bool_]
_F = NDArray[np.float64]
_I = NDArray[np.int64]
_I32 = NDArray[np.int32]
_I8 = NDArray[np.int8]


@inlined
def _add(column: int, weight: float, total: _F, there: _B, touched: _I32, count: int) -> int:
    """Add to a column's total; a column that is new to the pair is noted."""
    if not there[column]:
        there[column] = True
        touched[count] = column
        count += 1
    total[column] += weight
    return count


@inlined
def _holds(
    rule: int, destination: int, code: int, classes: _I, group: _I32, ends_ptr: _I, ends: _I32
) -> bool:
    """Whether a rule is for this destination and path class; ``ends`` are sorted."""
    if not (classes[rule] >> code) & 1:
        return False
    if group[rule] < 0:
        return True
    low, high = ends_ptr[group[rule]], ends_ptr[group[rule] + 1]
    while low < high:
        middle = (low + high) // 2
        if ends[middle] < destination:
            low = middle + 1
        else:
            high = middle
    return bool(low < ends_ptr[group[rule] + 1] and ends[low] == destination)


@inlined
def _loads(
    p: int,
    source: _I,
    destination: _I,
    code: _I8,
    route: _I,
    route_ptr: _I,
    links: _I32,
    link_ptr: _I,
    link_column: _I32,
    link_weight: _F,
    source_ptr: _I,
    source_rule: _I32,
    destination_ptr: _I,
    destination_rule: _I32,
    everywhere: _I32,
    rule_column: _I32,
    rule_weight: _F,
    rule_classes: _I,
    rule_group: _I32,
    ends_ptr: _I,
    ends: _I32,
    total: _F,
    there: _B,
    touched: _I32,
) -> int:
    """Totals of one pair, and how many columns it touches."""
    count = 0
    for k in range(route_ptr[route[p]], route_ptr[route[p] + 1]):
        for e in range(link_ptr[links[k]], link_ptr[links[k] + 1]):
            count = _add(link_column[e], link_weight[e], total, there, touched, count)
    if source[p] == destination[p]:
        return count
    for e in range(source_ptr[source[p]], source_ptr[source[p] + 1]):
        rule = source_rule[e]
        if _holds(rule, destination[p], code[p], rule_classes, rule_group, ends_ptr, ends):
            count = _add(rule_column[rule], rule_weight[rule], total, there, touched, count)
    for e in range(destination_ptr[destination[p]], destination_ptr[destination[p] + 1]):
        rule = destination_rule[e]
        if (rule_classes[rule] >> code[p]) & 1:
            count = _add(rule_column[rule], rule_weight[rule], total, there, touched, count)
    for rule in everywhere:
        if (rule_classes[rule] >> code[p]) & 1:
            count = _add(rule_column[rule], rule_weight[rule], total, there, touched, count)
    return count


def _steps(columns: int, source: _I, *others: _I) -> int:
    indices = others[6]
    return 5 * (len(source) + len(indices))


@compiled_when_long(_steps)
def load_entries(
    columns: int,
    source: _I,
    destination: _I,
    code: _I8,
    route: _I,
    route_ptr: _I,
    links: _I32,
    indptr: _I,
    indices: _I32,
    data: _F,
    link_ptr: _I,
    link_column: _I32,
    link_weight: _F,
    source_ptr: _I,
    source_rule: _I32,
    destination_ptr: _I,
    destination_rule: _I32,
    everywhere: _I32,
    rule_column: _I32,
    rule_weight: _F,
    rule_classes: _I,
    rule_group: _I32,
    ends_ptr: _I,
    ends: _I32,
) -> None:
    """The resources that each pair loads, in order, and how much, pair after pair.

    Pair p goes by the links of ``route[p]`` and has path class ``code[p]``; the arguments
    from ``link_ptr`` to ``ends`` are the fields of :class:`topocal.topo.rules.Rules`.
    """
    total, there = np.zeros(columns), np.zeros(columns, dtype=np.bool_)
    touched = np.empty(columns, dtype=np.int32)
    at = 0
    for p in range(len(source)):
        n = _loads(
            p,
            source,
            destination,
            code,
            route,
            route_ptr,
            links,
            link_ptr,
            link_column,
            link_weight,
            source_ptr,
            source_rule,
            destination_ptr,
            destination_rule,
            everywhere,
            rule_column,
            rule_weight,
            rule_classes,
            rule_group,
            ends_ptr,
            ends,
            total,
            there,
            touched,
        )
        for k in range(1, n):  # most often they are few
            column, place = touched[k], k
            while place > 0 and touched[place - 1] > column:
                touched[place] = touched[place - 1]
                place -= 1
            touched[place] = column
        for k in range(n):
            column = touched[k]
            indices[at], data[at] = column, total[column]
            at += 1
            total[column] = 0.0
            there[column] = False
        indptr[p + 1] = at
