"""Every example in every ``--help`` is run, as it stands there."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import topocal as tc
from topocal import cli
from topocal.help_pages import FIRST_STEPS

COMMANDS: dict[str, Any] = dict(getattr(get_command(cli.command_line()), "commands"))  # noqa: B009  # typer's type lacks it
B70 = Path(__file__).parents[1] / "examples" / "b70"

Run = Callable[..., tuple[int, str, str]]

EXAMPLES = [line for name in COMMANDS for line in COMMANDS[name].examples] + [*FIRST_STEPS]

REAL = (
    "--spawn",
    "torchrun",
    "--fabric",
    "--live",
    "fabric --like b70 --slow",
    "fabric --like two",
)
"""Of these, which start processes that send real messages, other tests take the time:
test_command_measure.py, test_command_calibrate.py, test_emulated_fabric*.py, test_live_demo.py."""

TOPO_M = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\t0-7\t0\nGPU1\tPIX\t X \t0-7\t0\n"
)
LSPCI = (
    "-[0000:00]-+-00.0  Intel Corporation Device 09a2\n"
    "           \\-01.0-[01-04]----00.0-[02-04]--+-00.0-[03]----00.0  NVIDIA Corporation GH100\n"
    "                                           \\-01.0-[04]----00.0  NVIDIA Corporation GH100\n"
)
PCI = 'class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16"'
TOPO_XML = (
    '<system version="1"><cpu numaid="0" affinity="000000ff" arch="x86_64" vendor="GenuineIntel" '
    'familyid="6" modelid="143"><pci busid="0000:01:00.0" class="0x060400" vendor="0x1000" '
    'device="0xc030" link_speed="32.0 GT/s PCIe" link_width="16">'
    f'<pci busid="0000:03:00.0" {PCI}><gpu dev="0" sm="90" rank="0" gdr="0"/></pci>'
    f'<pci busid="0000:04:00.0" {PCI}><gpu dev="1" sm="90" rank="1" gdr="0"/></pci>'
    "</pci></cpu></system>\n"
)
P2P = (
    "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
    "   D\\D     0      1 \n     0 700.10   24.20 \n     1  24.30 701.00 \n"
)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that examples name, of one machine of eight cards."""
    folder = tmp_path_factory.mktemp("workplace")
    machine = tc.machines.b70()
    for name in ("pairs.csv", "fans.csv"):
        (folder / name).write_bytes((B70 / name).read_bytes())
    model = tc.fit(tc.read_tables([folder / "pairs.csv", folder / "fans.csv"]), machine)
    for name in ("model.json", "monday.json", "friday.json"):
        tc.write_model(model, folder / name)
    tc.write_topology(machine, folder / "topology.json")
    from topocal.measure.calibration import write_calibration
    from topocal.solve.caps import caps_of
    from topocal.solve.policy.files import requests_to_document

    write_calibration(tc.load([folder / "pairs.csv"]), folder / "calibration.json")
    tc.write_caps(caps_of(model), folder / "caps.json")
    request = tc.Request(
        parameter="q",
        target="gpu4",
        holders=("gpu0", "gpu1"),
        origin=(0, 0),
        shape=(4096, 4096),
        element_bytes=2,
    )
    texts = {
        "topo.txt": TOPO_M,
        "topo-m.txt": TOPO_M,
        "lspci.txt": LSPCI,
        "topo.xml": TOPO_XML,
        "p2p.txt": P2P,
        "flows.csv": "source,destination,size\n0,4,64MiB\n1,5,64MiB\n",
        "flows.json": '[{"source": 0, "destination": 5, "size": "1GB"}]',
        "totals.csv": "process,sent,received\n0,1000000,0\n4,0,1000000\n",
        "transfers.json": '[{"source": 0, "target": 4, "shape": [4096, 4096]}]',
        "requests.json": json.dumps(requests_to_document([request])),
        "requests.csv": "parameter,target,holders,shape,element_bytes\nq,4,0 1,4096 4096,2\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _parts(line: str) -> tuple[str, list[str], str]:
    """What is piped into the command, its own words, and where its output goes."""
    before, bar, rest = line.partition("|")
    piped, own = (before.strip(), rest) if bar and "topocal" not in before else ("", line)
    own, _, after = own.partition("|")
    own, _, target = own.partition(">") if "->" not in own and "<->" not in own else (own, "", "")
    return piped, shlex.split(own)[1:], (after or target).strip()


@pytest.mark.parametrize(
    "line", [line for line in EXAMPLES if not any(word in line for word in REAL)]
)
def test_an_example_runs(
    line: str, command: Run, workplace: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in workplace.items():
        Path(name).write_bytes(content)
    Path("copied/sys/devices/system/node").mkdir(parents=True)
    assert command("gather", "--sysfs", "copied/sys", "-o", "host.tar.gz")[0] == 0
    piped, words, target = _parts(line)
    if piped:
        assert piped == "nvidia-smi topo -m"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TOPO_M.encode())))
    if "--digest" in words:
        # The digest of somebody else's caps: of these, the first of its digits.
        digest = json.loads(Path("caps.json").read_text())["digest"]
        words[words.index("--digest") + 1] = digest[: len("sha256:9866cbb3")]
    before = {path.name for path in Path().iterdir()}
    status, out, err = command(*words)
    assert status == 0, err
    assert not [row for row in err.splitlines() if not row.startswith("note: ")]
    if "--json" in words:
        json.loads(out)
    if target.startswith("dot "):
        assert out.startswith("digraph ")
    for option in ("-o", "--svg", "--html"):
        if option in words:
            written = Path(words[words.index(option) + 1])
            assert written.stat().st_size > 0
            before.add(written.name)
    assert {path.name for path in Path().iterdir()} <= before | {"model.calibration.json"}


def test_what_is_not_run_here_starts_processes() -> None:
    left = [line for line in EXAMPLES if any(word in line for word in REAL)]
    assert {line.split()[line.split().index("topocal") + 1] for line in left} == {
        "measure", "calibrate", "fabric", "demo",
    }  # fmt: skip
