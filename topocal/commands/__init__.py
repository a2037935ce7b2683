"""One file per command.

A command module imports only what ``--help`` needs; numpy, networkx, cvxpy and
the like are imported inside the function that runs.
"""
