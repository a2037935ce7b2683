"""Reference machines, each with its published source, and seeded generators for tests.

:mod:`topocal.topo.machines.catalogue` lists them by name.
"""

from __future__ import annotations

from topocal.topo.machines.pcie_boxes import b70

__all__ = ["b70"]
