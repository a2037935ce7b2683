"""Reference machines, each with its published source, and seeded generators for tests.

:mod:`topocal.topo.machines.catalogue` lists them by name.
"""

from __future__ import annotations

from topocal.topo.machines.amd import mi250x, mi300x
from topocal.topo.machines.catalogue import MACHINES, Machine, build_machine
from topocal.topo.machines.clusters import fat_tree_cluster, rail_pod
from topocal.topo.machines.generators import random_cluster, random_fabric_set, random_pcie_tree
from topocal.topo.machines.nvidia import dgx1, dgx_a100, dgx_h100, gh200, h20_pair
from topocal.topo.machines.pcie_boxes import b70, l20, l40s

__all__ = [
    "MACHINES",
    "Machine",
    "b70",
    "build_machine",
    "dgx1",
    "dgx_a100",
    "dgx_h100",
    "fat_tree_cluster",
    "gh200",
    "h20_pair",
    "l20",
    "l40s",
    "mi250x",
    "mi300x",
    "rail_pod",
    "random_cluster",
    "random_fabric_set",
    "random_pcie_tree",
]
