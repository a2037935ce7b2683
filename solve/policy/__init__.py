"""Who sends what: holders chosen for all requests of a weight sync at once.

::

    requests -> table -> choice ---> fractional (bound) -> spread -> settle
                (order,  (shares of                 \\
                 groups)  groups)                     whole regions: rounding, program
                                                      split regions: splits
                baselines -------------------------> judge (fluid) -> answer, digest

One file per step; :mod:`topocal.solve.policy.assign` runs them.
"""
