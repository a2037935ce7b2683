"""Bad input to read, show, discover and gather: one line on standard error, status 2, no file."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from topocal.cli import main
from topocal.topo.io import read_topology

TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tPIX\t0-7\nGPU1\tPIX\tX\t0-7\n"
TREE = "-[0000:00]-+-00.0  Intel Corporation Device 09a2\n"
P2P = (
    "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n"
    "   D\\D     0      1 \n     0 700.10   11.20 \n     1  11.30 701.00 \n"
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command in an empty directory with one good file, ``topo.txt``."""
    monkeypatch.chdir(tmp_path)
    Path("topo.txt").write_text(TOPO)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["topocal", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return call


def refused(ran: tuple[int, str, str], words: str) -> None:
    status, out, err = ran
    assert (status, out) == (2, "")
    assert err.startswith("topocal")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert words in err


def _names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)


THINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda path: None, "no such file or directory"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "blank": (lambda path: path.write_bytes(b" \n\r\n\t"), "is empty"),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 9), "is a binary file"),
    "directory": (lambda path: path.mkdir(), "is a directory"),
    "pipe": (_fifo, "is a named pipe"),
    "socket": (_socket, "no such device or address"),
    "loop": (lambda path: path.symlink_to(path.name), "too many levels of symbolic links"),
    "dangling": (lambda path: path.symlink_to("nowhere"), "no such file or directory"),
    "huge": (lambda path: path.write_bytes(b"GPU0 X PIX\n" * 2_000_000), "larger than 16 MiB"),
    "long line": (lambda path: path.write_bytes(b"GPU0\t" * 100_000), "has a line of 500000"),
    "prose": (lambda path: path.write_text("Dear all,\nplease find"), "is of no known kind"),
    "latin": (lambda path: path.write_bytes(b"caf\xe9"), "is of no known kind"),
    "half utf-16": (lambda path: path.write_bytes(b"\xff\xfea"), "is of no known kind"),
    "escapes": (lambda path: path.write_bytes(b"\x1b]0;x\x07\x1b[2J"), "is of no known kind"),
    "object": (lambda path: path.write_text("{}"), "is of no known kind"),
    "list": (lambda path: path.write_text("[]"), "is of no known kind"),
    "deep": (lambda path: path.write_text("[" * 50_000), "is of no known kind"),
    "xml": (lambda path: path.write_text("<html><body/></html>"), "is of no known kind"),
    "cut": (lambda path: path.write_text('<system><cpu numaid="0">'), "cut off"),
    "newer": (
        lambda path: path.write_text('{"format": "topocal/topology", "version": 99}'),
        "has version 99",
    ),
    "damaged": (
        lambda path: path.write_text('{"format": "topocal/topology", "version": 1}'),
        "damaged topology",
    ),
    "gzip of nothing": (lambda path: path.write_bytes(gzip.compress(b"")), "is empty"),
    "half gzip": (lambda path: path.write_bytes(gzip.compress(TOPO.encode())[:-9]), "cut off"),
    "bomb": (
        lambda path: path.write_bytes(gzip.compress(bytes(65 << 20))),
        "unpacks to more than 64 MiB",
    ),
}


@pytest.mark.parametrize("verb", ["read", "show"])
@pytest.mark.parametrize("thing", sorted(THINGS))
def test_a_thing_that_is_no_topology(verb: str, thing: str, run: Run) -> None:
    path = Path("thing.txt")
    make, words = THINGS[thing]
    make(path)
    before = _names()
    option = {"read": "-o", "show": "--svg"}[verb]
    refused(run(verb, path, option, "out"), words)
    assert _names() == before


@pytest.mark.parametrize("verb", ["read", "show"])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/random", "/dev/tty"])
def test_devices(verb: str, device: str, run: Run) -> None:
    if not Path(device).exists():
        pytest.skip(f"there is no {device} here")
    status, out, err = run(verb, device)
    assert (status, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("name", ["..", "/", "topo.txt/x", "a" * 300, ""])
def test_paths_that_name_no_file(name: str, run: Run) -> None:
    refused(run("read", name), "check the path and its permissions")


def test_a_file_that_may_not_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: object, *_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("topocal.topo.files.os.open", denied)
    refused(run("read", "topo.txt"), "topo.txt: permission denied")


@pytest.mark.parametrize("verb", ["read", "show"])
def test_nothing_waits_for_a_named_pipe(verb: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = subprocess.run(
        [sys.executable, "-m", "topocal", verb, "pipe"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 2
    assert "is a named pipe" in ran.stderr


# What is odd and can be read all the same


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + TOPO.encode(),
        TOPO.replace("\n", "\r\n").encode(),
        TOPO.replace("\n", "\r").encode(),
        TOPO.encode("utf-16"),
        gzip.compress(TOPO.encode()),
        TOPO.encode() + b"caf\xe9\n",
        TOPO.rstrip("\n").encode(),
    ],
    ids=["mark", "crlf", "cr", "utf-16", "gzip", "latin-1", "no last line end"],
)
def test_encodings(content: bytes, run: Run) -> None:
    Path("odd.txt").write_bytes(content)
    status, out, err = run("read", "odd.txt", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["nodes"]["gpu"] == 2


@pytest.mark.parametrize("name", ["a b[red].txt", "new\nline.txt", "\x1b[31m.txt", "n\udcff.txt"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_names(name: str, options: tuple[str, ...], run: Run) -> None:
    Path(name).write_text(TOPO)
    status, out, err = run("read", name, "-o", name + ".json", *options)
    assert (status, err) == (0, "")
    assert "\x1b" not in out
    assert read_topology(name + ".json").accelerators == ("gpu0", "gpu1")
    assert run("show", name + ".json", *options)[0] == 0


def test_what_a_file_says_does_not_reach_the_terminal(run: Run) -> None:
    hostile = "NVIDIA \x1b]0;owned\x07[red]A100 (UUID: GPU-1)"
    Path("list.txt").write_text(f"GPU 0: {hostile}\n")
    for arguments in (("read", "list.txt"), ("show", "list.txt")):
        status, out, _ = run(*arguments)
        assert status == 0
        assert "\x1b" not in out
        assert "\x07" not in out
    assert run("show", "list.txt", "--svg", "x.svg")[0] == 0
    assert "\x1b" not in Path("x.svg").read_text()


def test_a_pipe_that_is_open(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(TOPO)
    command = f"{sys.executable} -m topocal read <(cat topo.txt) /dev/stdin < topo.txt"
    ran = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "the files do not contradict each other" in ran.stdout


# Several files, and --as


def test_one_file_twice(run: Run) -> None:
    Path("link.txt").symlink_to("topo.txt")
    for again in ("topo.txt", "./topo.txt", "link.txt"):
        refused(run("read", "topo.txt", again), f"{again.removeprefix('./')}: is named twice")
    refused(run("read", "-", "-"), "standard input: is named twice")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nvidia", "no kind of file 'nvidia'; did you mean nvidia"),
        ("", "no kind of file ''"),
        ("lspci", "has no line of lspci's tree"),
        ("hwloc", "topo.txt"),
        ("topology", "not a JSON file"),
    ],
)
def test_a_wrong_kind(kind: str, words: str, run: Run) -> None:
    refused(run("read", "topo.txt", "--as", kind), words)


def test_a_measurement_is_told_from_a_topology(run: Run) -> None:
    Path("p2p.txt").write_text(P2P)
    refused(run("read", "topo.txt", "p2p.txt"), "is a measurement (p2pBandwidthLatencyTest)")


def test_a_topology_that_contradicts_itself_is_named(run: Run) -> None:
    assert run("read", "topo.txt", "-o", "t.json")[0] == 0
    document = json.loads(Path("t.json").read_text())
    document["links"][0]["uses"] = [["nothing", 1.0]]
    Path("t.json").write_text(json.dumps(document))
    for verb in ("read", "show"):
        refused(run(verb, "t.json"), "t.json: ")


def test_the_second_of_two_files_is_named(run: Run) -> None:
    Path("tree.txt").write_text(TREE[:-20])
    Path("none.txt").write_text("nothing")
    refused(run("read", "topo.txt", "none.txt", "-o", "t.json"), "none.txt: is of no known kind")
    assert not Path("t.json").exists()


# Where to write


@pytest.fixture
def places(run: Run) -> Run:
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    return run


WRITERS = {
    "read": ("read", "topo.txt", "-o"),
    "discover": ("discover", "--sysfs", "sys", "-o"),
    "gather": ("gather", "--sysfs", "sys", "-o"),
    "show": ("show", "topo.txt", "--svg"),
}


@pytest.mark.parametrize("verb", sorted(WRITERS))
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("folder", "is a directory"),
        ("none/out", "no such file or directory"),
        ("topo.txt/out", "not a directory"),
        ("/dev/null", "is a device"),
        ("/dev/stdout", "standard output is no file"),
        ("-", "standard output is no file"),
        ("pipe", "is a named pipe"),
        ("loop", "too many levels of symbolic links"),
        ("", "is a directory"),
        ("x" * 300, "file name too long"),
    ],
)
def test_places_that_cannot_be_written(verb: str, place: str, words: str, places: Run) -> None:
    Path("sys/devices/system/node").mkdir(parents=True)
    before = _names()
    refused(places(*WRITERS[verb], place), f"cannot be written: {words}")
    assert _names() == before


def test_links_are_followed_and_old_files_replaced(run: Run) -> None:
    Path("link.json").symlink_to("real.json")
    for _ in range(2):
        assert run("read", "topo.txt", "-o", "link.json")[0] == 0
        assert Path("link.json").is_symlink()
        assert read_topology("real.json").accelerators == ("gpu0", "gpu1")


def test_a_tools_output_is_not_overwritten(run: Run) -> None:
    refused(run("read", "topo.txt", "-o", "topo.txt"), "would be overwritten")
    assert Path("topo.txt").read_text() == TOPO
    assert run("read", "topo.txt", "-o", "t.json")[0] == 0
    assert run("read", "t.json", "-o", "t.json")[0] == 0


def test_a_full_disk(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    (tmp_path / "topo.txt").write_text(TOPO)
    for options in ("", "--json"):
        ran = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m topocal read topo.txt {options} > /dev/full"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 2
        assert ran.stderr.count("\n") == 1
        assert ran.stderr.startswith("topocal: standard output: no space left on device; make")


# Where to look


@pytest.mark.parametrize("verb", ["discover", "gather"])
@pytest.mark.parametrize("place", ["none", "topo.txt", "folder", "loop", "pipe", "/dev/zero"])
def test_places_without_sysfs(verb: str, place: str, places: Run) -> None:
    before = _names()
    refused(places(verb, "--sysfs", place, "-o", "out"), f"{place}: holds no sysfs")
    assert _names() == before


# Standard input


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "standard input: is empty"),
        (b"\0", "standard input: is a binary file"),
        (b"nothing", "standard input: is of no known kind"),
    ],
)
@pytest.mark.parametrize("verb", ["read", "show"])
def test_standard_input(
    verb: str, content: bytes, words: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    refused(run(verb, "-"), words)


@pytest.mark.parametrize("verb", ["read", "show"])
def test_closed_standard_input(verb: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    refused(run(verb, "-"), "standard input: cannot be read")


# The command line itself


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("read",), "topocal read: Missing argument 'FILE'; see topocal read --help"),
        (("read", "topo.txt", "--nope"), "No such option: --nope"),
        (("read", "--as"), "Option '--as' requires an argument"),
        (("show", "a", "b"), "unexpected extra argument"),
        (("raed", "topo.txt"), "No such command 'raed'"),
        (("gather", "x"), "unexpected extra argument"),
        (("show", "b7"), "no file and no reference machine 'b7'; did you mean b70?"),
    ],
)
def test_command_lines(arguments: tuple[str, ...], words: str, run: Run) -> None:
    refused(run(*arguments), words)
