"""Whole files of every kind that is read, small: what the fuzzers start from.

What makes them is imported when they are made: the process that fuzzes finds them on disk.
"""

from __future__ import annotations

import importlib.util
import io
import json
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from topocal.measure.calibration import encode_calibration
from topocal.measure.journal import Journal
from topocal.measure.plan import Plan, plan_to_document
from topocal.measure.samples import Measurements
from topocal.topo.builder import TopologyBuilder
from topocal.topo.gather import Captured, pack
from topocal.topo.io import topology_to_document
from topocal.topo.resource import LinkKind, NodeKind, Resource, Sharing, Use
from topocal.topo.topology import Topology

__all__ = ["SUBJECT", "documents", "gathered", "journal", "machine", "sysfs", "texts"]

SUBJECT: Final = "a plan"

_TESTS = Path(__file__).parents[1]


def _module(name: str) -> Any:
    """A test module, for the whole files that it holds."""
    spec = importlib.util.spec_from_file_location(f"_seeds_{name}", _TESTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def texts() -> dict[str, tuple[str, ...]]:
    """Outputs by the name of their reader or importer."""
    matrix = _module("test_readers_matrix_hostile").TEXTS
    nccl = {k: text for k, (_, text) in _module("test_readers_nccl_hostile").WHOLE.items()}
    lspci = _module("test_readers_lspci")
    xpu = _module("test_readers_xpu").DEVICE_FORMS
    lists = _module("test_readers_lists")
    hwloc = _module("test_readers_hwloc")
    lstopo = _module("test_readers_lstopo")
    others = _module("test_readers_accelerator")
    imports = _module("test_importers_hostile")
    found = {k: (text,) for k, text in {**matrix, **nccl, **imports.WHOLE}.items()}
    found["lspci"] = (lspci.TREE, lspci.LIST, lspci.TREE + lspci.LIST)
    found["xpu-smi-device"] += tuple(xpu.values())
    found["lscpu"] += (lists.LSCPU,)
    found["numactl"] += (lists.NUMACTL,)
    found["hwloc"] = (hwloc.V2, _module("test_gather").HWLOC)
    found["lstopo"] = (lstopo.TREE, lstopo.OLD, lstopo.VERBOSE)
    found["accelerator-topo"] = (others.HUAWEI, others.DIES, others.METAX, others.COUNTED)
    found["nvbandwidth"] += (imports.JSON_NVBANDWIDTH,)
    found["nccl-tests"] += (imports.JSON_NCCL,)
    return found


def sysfs() -> dict[str, str]:
    """Captured files of sysfs by path."""
    return dict(_module("test_gather").SYSFS)


def gathered() -> tuple[bytes, ...]:
    """Archives of a machine, packed and not."""
    outputs = {"nvidia-smi-topo.txt": texts()["nvidia-topo"][0], "hwloc.xml": texts()["hwloc"][1]}
    packed = pack(Captured(sysfs=sysfs(), outputs=outputs, status=dict.fromkeys(outputs, "ok")))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        member = tarfile.TarInfo("topocal.json")
        content = b'{"format": "topocal/gathered", "version": 1, "outputs": {}}'
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed, plain.getvalue()


@cache
def machine() -> Topology:
    """Three GPUs and a NIC behind a switch, with everything that a topology may say."""
    builder = TopologyBuilder("star")
    builder.node("switch0", NodeKind.PCIE_SWITCH, label="one – switch")
    for k in range(3):
        builder.node(f"gpu{k}", NodeKind.GPU, index=k, bus_id=f"0000:{k}1:00.0")
        builder.connect(
            f"gpu{k}", "switch0", LinkKind.PCIE, nominal_Bps=12e9, generation=4, width=16
        )
    builder.resource(Resource(id="engine", sharing=Sharing.TIME_SHARED, kappa=0.98, label="E"))
    builder.use(Use(resource="engine", destinations=("gpu2",)))
    builder.stated_classes = [["gpu0", "gpu1", "PIX"]]
    builder.note("a note")
    return builder.build()


@cache
def _measured() -> tuple[Plan, Measurements]:
    import numpy as np

    from topocal.measure.design import design
    from topocal.measure.simulated import SimulatedMachine
    from topocal.topo.capacities import Capacities

    topology = machine()
    plan = design(topology, sizes_bytes=[2.0**20, 2.0**26])
    truth = SimulatedMachine(
        topology=topology, capacities=Capacities.of(topology), noise=0.01, alpha_s=1e-5
    )
    return plan, truth.run(plan, np.random.default_rng(1))


@cache
def documents() -> dict[str, bytes]:
    """Files of ours by kind, without a digest, so that what is changed in them is read."""
    from topocal.solve.caps_document import caps_to_document
    from topocal.solve.fit import fit
    from topocal.solve.model import model_to_document

    plan, measurements = _measured()
    model = fit(measurements, machine())
    calibration = json.loads(encode_calibration(measurements))
    found: dict[str, Any] = {
        "topology": topology_to_document(machine()),
        "plan": plan_to_document(plan),
        "calibration": calibration,
        "model": model_to_document(model),
        "caps": caps_to_document(model.caps()),
    }
    for document in found.values():
        document.pop("digest", None)
    return {kind: json.dumps(document, indent=1).encode() for kind, document in found.items()}


def journal() -> bytes:
    """A journal of a measurement that was not finished."""
    _, measurements = _measured()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.json.journal"
        book = Journal(path, subject=SUBJECT, run="r")
        book.begin({"backend": "gloo", "ranks": ["gpu0", "gpu1", "gpu2"]})
        book.add(0, 1, measurements.samples[:3], after_s=1.5)
        book.remark("a remark")
        book.links({"gpu0": "x8"})
        book.close(done=False)
        return path.read_bytes()
