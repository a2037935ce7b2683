"""What can be proven of a fit: how near any other could come."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from topocal.solve.hypotheses import Fit
from topocal.solve.model import Certificate
from topocal.solve.optimality import certify_l1, least_largest_error

__all__ = ["certify"]


def certify(best: Fit, time_limit_s: float | None = None) -> Certificate:
    """Certify a fit on the resources that it was allowed to use.

    Parameters
    ----------
    time_limit_s
        Wall seconds to spend on the sum of errors (a mixed-integer program); ``None``: none.

    Raises
    ------
    SolverError
        When the solver returns what is no solution.
    """
    rows, found = best.rows, best.estimate
    columns = np.flatnonzero(best.active & (rows.crowd > 0))
    load = csr_array(rows.log_load.tocsc()[:, columns].tocsr())
    carried = np.flatnonzero((np.diff(load.indptr) > 0) & np.isfinite(found.log_predicted))
    load, seconds = csr_array(load[carried]), rows.log_seconds[carried]
    floor = np.full(len(rows.log_seconds), -np.inf)
    if len(rows.shared):
        busy, _ = rows.shared.busy(rows.solo(found.x), found.log_kappa)
        np.maximum.at(floor, rows.shared.row, busy)
    least = least_largest_error(load, seconds, floor[carried] if len(rows.shared) else None)
    names = [rows.observations[k].name for k in carried]
    text = [least.sentence(names, [rows.resources[c] for c in columns])]
    gap = None
    if time_limit_s is not None and not len(rows.shared):
        proof = certify_l1(
            load,
            seconds,
            found.x[columns],
            weight=1.0 / rows.sigma[carried],
            time_limit_s=time_limit_s,
        )
        gap = proof.gap
        text.append(proof.sentence)
    error = found.log_predicted[carried] - seconds
    return Certificate(
        least_largest_error=least.error,
        largest_error=float(np.abs(error).max(initial=0.0)),
        text=tuple(text),
        sum_gap=gap,
    )
