"""What the data proves of every capacity, in closed form.

A resource cannot be busy for longer than a sample took, so each sample that loads
it gives ``x_r <= y_s - a_sr``; the least of these is the greatest value that every
sample allows (residuation in the max-plus algebra: Cuninghame-Green 1979; Hook
2019, arXiv:1902.08194).  Hence ``C_r >= exp(-hi_r)``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.solve.rows import Rows
from topocal.solve.rows_kernel import least_slack

__all__ = ["upper_bounds"]


def upper_bounds(rows: Rows) -> NDArray[np.float64]:
    """``hi_r = min_s (y_s - a_sr)``, shape (R,); +inf where no sample loads the resource."""
    load = rows.log_load
    bound = np.full(load.shape[1], np.inf)
    least_slack(load.indptr, load.indices, load.data, rows.log_seconds, bound)
    return bound
