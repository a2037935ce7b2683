"""Is a point that a solver returned an optimum?  Asked of the point, not of the solver.

A convex program in cone form, minimise ½ x'Px + c'x subject to A x + s = b, s in K, is
solved by x, s and multipliers z exactly when the constraints hold, z lies in the dual cone,
P x + c + A'z = 0, and s'z = 0 (Karush 1939; Kuhn & Tucker 1951; Boyd & Vandenberghe 2004,
section 5.5.3).  Only the cones that programs here need are known: equalities and
inequalities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["optimality_error"]

Floats = NDArray[np.float64]


def optimality_error(
    P: Any, c: Floats, A: Any, b: Floats, equalities: int, x: Floats, s: Floats, z: Floats
) -> float:
    """By how much the conditions are missed, the worst of them, relative to their own terms.

    Parameters
    ----------
    P, A
        Sparse, shapes (n, n) and (m, n); P symmetric, or its upper triangle.
    c, b
        Shapes (n,) and (m,).
    equalities
        How many of the rows of A come first and are equalities; the others are s >= 0.
    x, s, z
        Shapes (n,), (m,) and (m,).
    """
    upper = abs(P - P.T).max() > 0 if P.nnz else False
    curved = P @ x + (P.T @ x - P.diagonal() * x if upper else 0.0)
    ahead, priced = A @ x, A.T @ z
    scale_primal = 1.0 + max(_size(ahead), _size(s), _size(b))
    scale_dual = 1.0 + max(_size(curved), _size(priced), _size(c))
    value = float(0.5 * x @ curved + c @ x)
    scale_value = 1.0 + abs(value)
    slack, price = s[equalities:], z[equalities:]
    return max(
        _size(ahead + s - b) / scale_primal,
        _size(s[:equalities]) / scale_primal,
        _size(np.minimum(slack, 0.0)) / scale_primal,
        _size(curved + c + priced) / scale_dual,
        _size(np.minimum(price, 0.0)) / scale_dual,
        abs(float(slack @ price)) / scale_value,
    )


def _size(values: Floats) -> float:
    return float(np.abs(values).max(initial=0.0))
