"""Topologies from the outputs that people have on disk, one file per tool.

Every reader is pure: text in, :class:`~topocal.topo.topology.Topology` out.
:mod:`topocal.topo.readers.registry` lists them and tells them apart by content.
"""
