"""Capacities from samples, and what follows from them.

Imports :mod:`topocal.topo` and :mod:`topocal.measure`.
"""
