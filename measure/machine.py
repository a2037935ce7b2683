"""What can be measured: anything that runs a plan and answers with timings.

A group of real processes (:mod:`topocal.measure.coordinator`), a model that answers as a
machine would (:mod:`topocal.measure.simulated`), an emulated fabric: who asks does not
need to know which.
"""

from __future__ import annotations

from typing import Protocol

from topocal.measure.plan import Plan
from topocal.measure.samples import Measurements

__all__ = ["Machine"]


class Machine(Protocol):
    """Something that can be measured."""

    def run(self, plan: Plan) -> Measurements:
        """Time every pattern of the plan at its sizes, as often as it says.

        Raises
        ------
        TopocalError
            When it cannot.
        """
        ...
