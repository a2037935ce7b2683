"""lspci's other ways of listing devices: ``-mm``, ``-vmm``, ``-PP``, lists without a tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocal.topo.errors import TopocalError
from topocal.topo.readers.lspci import parse_lspci
from topocal.topo.readers.lspci_forms import as_device_list, is_other_form
from topocal.topo.readers.registry import sniff
from topocal.topo.resource import PathClass
from topocal.topo.topology import Topology

QUOTED = """\
$ lspci -mm | grep -i acme
18:00.0 "3D controller" "NVIDIA Corporation" "GX1 [X1]" -ra1 "NVIDIA Corporation" "Device 1626"
9a:00.0 "3D controller" "NVIDIA Corporation" "GX1 [X1]" -ra1 "NVIDIA Corporation" "Device 1626"
"""

NUMBERED = """\
18:00.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "GX1 [X1] [2331]" -ra1 "" ""
9a:00.0 "0302" "10de" "2331" -ra1 "10de" "1626"
"""

FIELDS = """\
Slot:\t18:00.0
Class:\t3D controller
Vendor:\tNVIDIA Corporation
Device:\tGX1 [X1]
SVendor:\tNVIDIA Corporation
NUMANode:\t0

Slot:\t9a:00.0
Class:\t3D controller
Vendor:\tNVIDIA Corporation
Device:\tGX1 [X1]
NUMANode:\t1
"""

PATHS = """\
00:01.1/01:00.0/02:08.0/03:00.0 VGA compatible controller: NVIDIA Corporation GX1 (rev a1)
00:01.1/01:00.0/02:10.0/04:00.0 VGA compatible controller: NVIDIA Corporation GX1 (rev a1)
40:03.1/41:00.0 VGA compatible controller: NVIDIA Corporation GX1 (rev a1)
"""


def pair_class(topology: Topology, a: str, b: str) -> PathClass:
    return PathClass(int(topology.routes((a, b)).path_class[0, 1]))


@pytest.mark.parametrize("text", [QUOTED, NUMBERED, FIELDS, PATHS])
def test_every_form_is_known_and_its_gpus_found(text: str) -> None:
    assert sniff(text, file="x.txt").name == "lspci"
    assert len(parse_lspci(text, file="x.txt").accelerators) >= 2


def test_the_path_of_a_device_is_its_tree() -> None:
    topology = parse_lspci(PATHS, file="x.txt")
    assert pair_class(topology, "gpu0", "gpu1") is PathClass.PIX
    assert pair_class(topology, "gpu0", "gpu2") is PathClass.NODE


def test_devices_of_a_bare_list_stand_at_their_own_memory_nodes() -> None:
    topology = parse_lspci(FIELDS, file="x.txt")
    assert pair_class(topology, "gpu0", "gpu1") is PathClass.SYS
    listed = "\n".join(
        f"{bus}:00.0 3D controller: NVIDIA Corporation GX1 (rev a1)\n\tNUMA node: {node}"
        for bus, node in (("18", 0), ("19", 0), ("9a", 1))
    )
    topology = parse_lspci(listed, file="x.txt")
    assert pair_class(topology, "gpu0", "gpu2") is PathClass.SYS
    assert pair_class(topology, "gpu0", "gpu1") is not PathClass.SYS


def test_names_and_numbers_of_fields() -> None:
    first, second = as_device_list(NUMBERED.splitlines())
    assert first == "18:00.0 3D controller [0302]: NVIDIA Corporation GX1 [X1] [10de:2331]"
    assert second == "9a:00.0 0302: [10de:2331]"


def test_plain_lines_stay_as_they_are() -> None:
    lines = ["00:00.0 Host bridge: Acme Device", "\tNUMA node: 0", "Vendor: nobody", ""]
    assert as_device_list(lines) == lines
    assert not any(map(is_other_form, lines))


@given(st.lists(st.sampled_from((QUOTED + NUMBERED + FIELDS + PATHS).splitlines()), max_size=30))
def test_any_order_of_lines_is_read_or_refused(lines: list[str]) -> None:
    try:
        assert parse_lspci("\n".join(lines), file="x.txt").links is not None
    except TopocalError:
        return
