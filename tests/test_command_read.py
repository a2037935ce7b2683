"""``topocal read`` from the command line, as a user runs it."""

from __future__ import annotations

import io
import json
import sys
from itertools import permutations
from pathlib import Path

import pytest

from topocal.cli import main
from topocal.topo.io import read_topology

CASES = Path(__file__).parents[1].parent / "shared" / "cases"

TREE = """<system version="1">
  <cpu numaid="0">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16 GT/s" link_width="2">
      <pci busid="0000:11:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0000:12:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
    </pci>
  </cpu>
</system>
"""
WIDER = TREE.replace('link_width="2"', 'link_width="16"')


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "a[b].xml"
    path.write_text(TREE)
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Exit status of the command."""
    monkeypatch.setattr(sys, "argv", ["topocal", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_a_summary_without_an_output_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    assert run(monkeypatch, "read", tree) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "a[b].xml" in printed
    assert "read as NCCL topology XML" in printed
    assert "2 GPUs, 1 PCIe switch, 1 socket" in printed
    assert "note: the file does not number its GPUs" in printed
    assert "1 contradiction" in printed
    assert "a link of 2 lanes above a card of 16" in printed
    assert "pairs of GPUs: 1 PIX" in printed
    assert [p.name for p in tree.parent.iterdir()] == ["a[b].xml"]


def test_topology_json_is_written_and_read_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    output = tree.parent / "topology.json"
    assert run(monkeypatch, "read", tree, "-o", output) == 0
    assert f"written to {output.name}" in capsys.readouterr().out.replace("\n", "").replace(
        f"{output.parent}/", ""
    )
    topology = read_topology(output)
    assert topology.accelerators == ("gpu0", "gpu1")
    again = tree.parent / "again.json"
    assert run(monkeypatch, "read", output, "-o", again) == 0
    assert again.read_bytes() == output.read_bytes()
    assert {p.name for p in tree.parent.iterdir()} == {"a[b].xml", "topology.json", "again.json"}


def test_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    other = tree.parent / "b.xml"
    other.write_text(WIDER)
    assert run(monkeypatch, "read", tree, other, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [entry["file"] for entry in document["files"]] == [str(tree), str(other)]
    assert document["nodes"] == {"gpu": 2, "pcie-switch": 1, "socket": 1}
    assert document["path_classes"] == {"PIX": 1}
    assert document["output"] is None
    assert document["topology"]["format"] == "topocal/topology"
    by_about = {c["about"]: c["evidence"] for c in document["contradictions"]}
    assert by_about["PCIe links"] == ["pcie:0000:10:00.0: Gen4 x2 in a[b].xml, Gen4 x16 in b.xml"]


def test_files_that_agree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    for path in (tree, tree.parent / "b.xml"):
        path.write_text(WIDER)
    assert run(monkeypatch, "read", tree, tree.parent / "b.xml") == 0
    assert "the files do not contradict each other" in capsys.readouterr().out


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TREE.encode())))
    assert run(monkeypatch, "read", "-") == 0
    assert "2 GPUs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (TREE[:150], (), "a.xml:4: the XML is cut off inside <pci> of line 3; get the whole"),
        ("nonsense", (), "a.xml: is of no known kind (begins with 'nonsense'); name its kind"),
        ("nonsense", ("--as", "nccl-log"), "a.xml: has no topology dump of NCCL; log a run"),
        (TREE, ("--as", "nonsense"), "no kind of file 'nonsense'; choose one of topology,"),
        ("", (), "a.xml: is empty; give a tool's output"),
        ("\0", (), "a.xml: is a binary file; give a tool's text output"),
    ],
)
def test_bad_input_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    path = tmp_path / "a.xml"
    path.write_text(content)
    output = tmp_path / "out.json"
    assert run(monkeypatch, "read", path, "-o", output, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert not output.exists()


def test_paths_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    assert run(monkeypatch, "read", tree.parent / "none.xml") == 2
    assert "none.xml: no such file or directory" in capsys.readouterr().err
    assert run(monkeypatch, "read", tree, "-o", tree.parent / "none" / "t.json") == 2
    assert "cannot be written" in capsys.readouterr().err


def test_files_of_two_machines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    other = tree.parent / "b.xml"
    other.write_text(TREE.replace("0000:1", "0000:7"))
    assert run(monkeypatch, "read", tree, other) == 2
    assert "no device in common" in capsys.readouterr().err


def test_notes_of_the_merge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    few = tree.parent / "few.xml"
    few.write_text("".join(line for line in WIDER.splitlines(True) if "0000:12" not in line))
    assert run(monkeypatch, "read", tree, few) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "  note: few.xml lists 1 of the 2 GPUs" in printed
    assert run(monkeypatch, "read", tree, few, "--json") == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["few.xml lists 1 of the 2 GPUs"]


def test_files_are_called_by_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tree: Path
) -> None:
    output = tree.parent / "topology.json"
    assert run(monkeypatch, "read", tree, "-o", output) == 0
    other = tree.parent / "b.xml"
    other.write_text(WIDER)
    capsys.readouterr()
    assert run(monkeypatch, "read", output, other) == 0
    assert "Gen4 x2 in topology.json, Gen4 x16 in b.xml" in capsys.readouterr().out


def test_pairs_of_unknown_class_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = CASES / "rocm-showtopo-tpx-xxxx" / "showtopo.txt"
    if not path.exists():
        pytest.skip("the public cases are not here")
    assert run(monkeypatch, "read", path) == 0
    printed = capsys.readouterr().out
    assert "pairs of GPUs: 54 NVL, 12 SYS" in printed
    assert "how far apart they are is unknown, too: they count as SYS" in printed


def test_every_set_of_files_of_one_public_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not CASES.exists():
        pytest.skip("the public cases are not here")
    for folder, names, contradictions in (
        ("lspci-wrx90-2gpu", ("lspci_tv.txt", "lspci_vvv.txt", "numactl.txt"), 0),
        ("topo-gh200-c2c", ("lscpu.txt", "topology.txt"), 0),
        ("xpu-smi-topology-2x2", ("topology_d.txt", "topology_m.txt"), 0),
        ("xml-user-a100-bonded-nic", ("topo-1gpu.xml", "topo-4gpu.xml", "topo-8gpu.xml"), 0),
        ("xml-aws-p5-two-versions", ("topo-2023.xml", "topo-2026.xml"), 7),
    ):
        for count in range(2, len(names) + 1):
            for chosen in permutations(names, count):
                files = [CASES / folder / name for name in chosen]
                assert run(monkeypatch, "read", *files, "--json") == 0
                document = json.loads(capsys.readouterr().out)
                assert len(document["contradictions"]) == contradictions, chosen
