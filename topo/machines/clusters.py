"""Reference clusters: published nodes on a published kind of fabric."""

from __future__ import annotations

from topocal.topo.fabric import fat_tree, rails
from topocal.topo.machines.nvidia import dgx_a100, dgx_h100
from topocal.topo.topology import Topology

__all__ = ["fat_tree_cluster", "rail_pod"]


def fat_tree_cluster(nodes: int = 8) -> Topology:
    """DGX A100 nodes on a two-level fat tree without oversubscription, two to a leaf.

    References
    ----------
    M. Al-Fares et al., A scalable, commodity data center network architecture,
    SIGCOMM 2008, doi:10.1145/1402958.1402967.
    """
    return fat_tree([dgx_a100()] * nodes, nodes_per_leaf=2, spines=4, name="fat-tree")


def rail_pod(nodes: int = 8, spines: int = 4) -> Topology:
    """DGX H100 nodes on a rail-optimised fabric: the k-th NIC of every node on leaf k.

    References
    ----------
    NVIDIA DGX SuperPOD reference architecture with DGX H100 systems, RA-11333-001.
    """
    return rails([dgx_h100()] * nodes, spines=spines, name="rail-pod")
