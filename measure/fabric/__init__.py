"""An emulated fabric: real traffic over a network of namespaces whose capacities are known.

Data flows one way::

    Topology -> shape -> Blueprint -> (faults) -> holder process: build -> namespaces
                                                     ^ shaping, forwarding: lines for tc, ip, bridge

:mod:`~topocal.measure.fabric.shape` decides what is built,
:mod:`~topocal.measure.fabric.emulated` starts it and lets processes in.  Only ``shape`` and
``shapes`` know topologies; everything from the blueprint on runs in a process that has
imported nothing but the standard library.
"""
