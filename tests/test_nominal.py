"""Nominal capacities, recomputed by hand from the specifications."""

from __future__ import annotations

import pytest

from topocal.topo.errors import InputError
from topocal.topo.nominal import (
    SOURCES,
    c2c_Bps,
    ethernet_Bps,
    infiniband_Bps,
    nvlink_Bps,
    nvlink_generation,
    pcie_Bps,
    pcie_generation,
    smp_Bps,
    source_of,
    xelink_Bps,
    xgmi_Bps,
)


@pytest.mark.parametrize(
    ("generation", "width", "GBps"),
    [
        # lanes × GT/s / 8 × coding × 256 / (256 + 24)
        (1, 1, 0.25 * 256 / 280),
        (2, 8, 4.0 * 256 / 280),
        (3, 16, 16 * 128 / 130 * 256 / 280),
        (4, 16, 32 * 128 / 130 * 256 / 280),
        (5, 16, 64 * 128 / 130 * 256 / 280),
        # FLIT: 236 of 256 bytes are packets, each with 16 bytes of header
        (6, 16, 128 * 236 / 256 * 256 / 272),
        (7, 4, 64 * 236 / 256 * 256 / 272),
    ],
)
def test_pcie(generation: int, width: int, GBps: float) -> None:
    assert pcie_Bps(generation, width) == pytest.approx(GBps * 1e9, rel=1e-12)


def test_pcie_payload_size() -> None:
    assert pcie_Bps(3, 16, max_payload_bytes=128) == pytest.approx(
        16e9 * 128 / 130 * 128 / 152, rel=1e-12
    )
    for size in (0, -1, 4097):
        with pytest.raises(InputError, match="PCIe payload"):
            pcie_Bps(3, 16, max_payload_bytes=size)


@pytest.mark.parametrize(
    ("generation", "width"), [(None, 16), (3, None), (0, 16), (9, 16), (3, 0), (3, -1)]
)
def test_pcie_unknown(generation: int | None, width: int | None) -> None:
    assert pcie_Bps(generation, width) is None


@pytest.mark.parametrize(
    ("GTps", "generation"),
    [(2.5, 1), (5.0, 2), (8, 3), (16, 4), (32, 5), (64, 6), (128, 7), (10, None), (0, None)],
)
def test_pcie_generation(GTps: float, generation: int | None) -> None:
    assert pcie_generation(GTps) == generation


@pytest.mark.parametrize(
    ("generation", "count", "capability", "GBps"),
    [
        (1, 4, None, 80),
        (2, 6, None, 150),
        (3, 12, None, 300),
        (4, 18, None, 450),
        (5, 18, None, 900),
        (None, 18, 90, 450),
        (None, 4, 86, 56.25),
        (3, 4, 86, 56.25),
        (3, 4, 80, 100),
        (2, 2, 75, 50),
        (None, 4, 89, None),
        (None, 4, None, None),
        (9, 4, None, None),
        (4, None, None, None),
        (4, 0, None, None),
    ],
)
def test_nvlink(
    generation: int | None, count: int | None, capability: int | None, GBps: float | None
) -> None:
    found = nvlink_Bps(generation, count, compute_capability=capability)
    assert found == (None if GBps is None else GBps * 1e9)


def test_nvlink_generations() -> None:
    found = {sm: nvlink_generation(sm) for sm in (60, 70, 75, 80, 86, 89, 90, 100, None)}
    assert list(found.values()) == [1, 2, 2, 3, 3, None, 4, 5, None]


@pytest.mark.parametrize(
    ("architecture", "count", "GBps"),
    [
        ("gfx942", 7, 448),
        ("gfx90a:sramecc+:xnack-", 4, 200),
        ("908", 1, 46),
        (910, 2, 100),
        ("940", 1, 64),
        ("gfx950", 1, 76.8),
        ("gfx1100", 1, None),
        ("", 1, None),
        (None, 1, None),
        ("gfx942", None, None),
    ],
)
def test_xgmi(architecture: str | int | None, count: int | None, GBps: float | None) -> None:
    found = xgmi_Bps(architecture, count)
    assert found == (None if GBps is None else pytest.approx(GBps * 1e9))


@pytest.mark.parametrize(
    ("found", "GBps"),
    [
        (infiniband_Bps("SDR"), 1),
        (infiniband_Bps("DDR"), 2),
        (infiniband_Bps("QDR"), 4),
        (infiniband_Bps("FDR10"), 5),
        (infiniband_Bps("fdr"), 56.25 * 64 / 66 / 8),
        (infiniband_Bps("EDR"), 12.5),
        (infiniband_Bps("HDR"), 25),
        (infiniband_Bps("HDR", 2), 12.5),
        (infiniband_Bps(" NDR "), 50),
        (infiniband_Bps("XDR"), 100),
        (infiniband_Bps("GDR"), None),
        (infiniband_Bps(None), None),
        (infiniband_Bps("EDR", 0), None),
        (ethernet_Bps(10), 1.25),
        (ethernet_Bps(400), 50),
        (ethernet_Bps(0), None),
        (ethernet_Bps(-1), None),
        (ethernet_Bps(None), None),
        (xelink_Bps(16), 106.25),
        (xelink_Bps(0), None),
        (xelink_Bps(None), None),
        (c2c_Bps(), 450),
        (c2c_Bps("none"), None),
        (smp_Bps("qpi 9.6", 2), 38.4),
        (smp_Bps("UPI 11.2", 3), 67.2),
        (smp_Bps("xgmi genoa", 4), 256),
        (smp_Bps("none"), None),
        (smp_Bps("xbus", None), None),
    ],
)
def test_other_links(found: float | None, GBps: float | None) -> None:
    assert found == (None if GBps is None else pytest.approx(GBps * 1e9))


def test_every_constant_has_a_unit_and_a_source() -> None:
    for key, constant in SOURCES.items():
        assert constant.key == key
        assert constant.value > 0
        assert constant.unit in ("B/s", "T/s", "b/s", "B")
        assert len(constant.source.split()) >= 3
        assert source_of(key) == constant.source
    with pytest.raises(InputError, match="no constant"):
        source_of("nvlink 99")


def test_a_payload_is_less_than_the_wire_passes() -> None:
    for generation in range(1, 8):
        wire = SOURCES[f"pcie {generation}"].value * 16 / 8
        assert 0.7 * wire < (pcie_Bps(generation, 16) or 0) < wire
