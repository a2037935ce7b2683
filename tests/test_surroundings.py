"""Odd surroundings: streams that nobody is at, no width, no home, no folder, other encodings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from topocal import cli

ROOT = Path(__file__).parents[1]

Run = Callable[..., tuple[int, str, str]]

# A line of each verb that says much and takes little.
GOOD: dict[str, str] = {
    "assign": "caps.json wanted.csv",
    "calibrate": "topology.json -o m.json --simulate model.json --rounds 1",
    "caps": "model.json",
    "completion": "bash",
    "demo": "",
    "diff": "model.json other.json",
    "discover": "--sysfs sys",
    "explain": "pairs.csv fans.csv",
    "export": "model.json --as dot",
    "fabric": "--like topology.json",
    "fit": "pairs.csv fans.csv",
    "gather": "--sysfs sys",
    "measure": "--help",
    "plan": "topology.json",
    "predict": "model.json --fan-in 0:1,2",
    "price": "caps.json flows.csv",
    "read": "topology.json",
    "report": "model.json -o r.html",
    "schema": "",
    "show": "topology.json",
    "simulate": "model.json flows.csv",
}


def _more_files() -> None:
    Path("other.json").write_bytes(Path("model.json").read_bytes())
    Path("sys/devices/system/node").mkdir(parents=True, exist_ok=True)


@pytest.mark.parametrize("columns", ["20", "0", "wide"])
@pytest.mark.parametrize("verb", cli.VERBS)
def test_a_terminal_of_any_width(
    verb: str, columns: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _more_files()
    monkeypatch.setenv("COLUMNS", columns)
    for line in (GOOD[verb], "--help") if columns == "20" else (GOOD[verb],):
        status, out, err = run(verb, *line.split())
        assert status == 0
        assert all(note.startswith("note: ") for note in err.splitlines())
        assert out.strip()


def _process(
    arguments: str, folder: Path, *, shell: str = "{}", environment: Mapping[str, str | None] = {}
) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, put into some words of a shell."""
    merged = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        ["bash", "-c", shell.replace("{}", f"'{sys.executable}' -m topocal {arguments}")],
        cwd=folder,
        capture_output=True,
        env={k: v for k, v in merged.items() if v is not None},
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(made: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("folder")
    for name, content in made.items():
        (found / name).write_bytes(content)
    return found


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("shell", "arguments", "status"),
    [
        # Nobody reads what is said of an error: its status says it all the same.
        ("{} 2>&-", "show none.txt", 2),
        ("{} >&- 2>&-", "show none.txt", 2),
        ("{} 2>/dev/full", "show none.txt", 2),
        ("{} 2>/dev/full", "nonsense", 2),
        ("{ { {}; } 2>&1 >&3 | true; exit ${PIPESTATUS[0]}; } 3>/dev/null", "show none.txt", 2),
        # Nobody reads the answer.
        ("{} >&-", "show topology.json", 0),
        ("{} >&- 2>&- <&-", "show topology.json --json", 0),
        ("{} | true; exit ${PIPESTATUS[0]}", "show dgx-h100 --json", 0),
        ("{} | head -c 1; exit ${PIPESTATUS[0]}", "predict model.json --flow 0:1", 0),
        # The answer was no.
        ("{} >&-", "diff model.json changed.json", 1),
        # Nobody can write the answer.
        ("{} >/dev/full", "show topology.json", 2),
        ("{} >/dev/full 2>&1", "show topology.json", 2),
    ],
)
def test_streams_that_nobody_is_at(shell: str, arguments: str, status: int, folder: Path) -> None:
    document = json.loads((folder / "model.json").read_text())
    del document["digest"]
    for resource in document["resources"]:
        for key in ("capacity_Bps", "low_Bps", "high_Bps"):
            resource[key] = resource[key] and resource[key] * 3
    (folder / "changed.json").write_text(json.dumps(document))
    ran = _process(arguments, folder, shell=shell)
    assert ran.returncode == status
    assert b"Traceback" not in ran.stderr
    assert b"Exception ignored" not in ran.stderr
    assert ran.stderr.count(b"\n") <= 1


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ("show b70", 0, ""),
        ("schema model", 0, ""),
        ("plan b70 -o plan.json", 2, "plan.json: cannot be written: no such file or directory"),
        ("predict model.json --flow 0:1", 2, "model.json: no such file or directory"),
        ("gather --sysfs sys", 2, "host.tar.gz: cannot be written: no such file or directory"),
    ],
)
def test_a_folder_that_has_been_deleted(
    arguments: str, status: int, words: str, tmp_path: Path
) -> None:
    ran = _process(arguments, tmp_path, shell="mkdir gone && cd gone && rmdir ../gone && {}")
    assert ran.returncode == status
    assert words in ran.stderr.decode()
    assert ran.stderr.count(b"\n") == (1 if words else 0)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": None},
        {"HOME": "/nonexistent", "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None},
        {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache", "NUMBA_CACHE_DIR": None},
        {"TMPDIR": "/nonexistent", "TMP": "/nonexistent"},
        {"PATH": "/usr/bin:/bin"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1:strict"},
        {"LC_CTYPE": "xx_XX.ISO-8859-7", "LC_ALL": None, "LANG": None, "PYTHONUTF8": "0"},
        {"TERM": None, "COLUMNS": None, "LINES": None},
        {"PYTHONWARNINGS": "error"},
        {"PYTHONOPTIMIZE": "2"},
    ],
    ids=str,
)
def test_an_odd_environment(environment: dict[str, str | None], folder: Path) -> None:
    for arguments in ("simulate model.json flows.csv", "fabric --like topology.json"):
        ran = _process(arguments, folder, environment=environment)
        said = [line for line in ran.stderr.splitlines() if not line.startswith(b"bash: warning")]
        assert (ran.returncode, said) == (0, [])
        assert ran.stdout.strip()


@pytest.mark.parametrize(
    "arguments", ["schema model", "export model.json --as graphml", "caps model.json --json"]
)
def test_what_programs_read_is_utf_8_in_any_encoding(arguments: str, folder: Path) -> None:
    plain = _process(arguments, folder)
    ascii_only = _process(arguments, folder, environment={"PYTHONIOENCODING": "ascii"})
    assert plain.returncode == 0
    assert ascii_only.stdout == plain.stdout
    plain.stdout.decode("utf-8")


def test_help_survives_an_encoding_without_its_characters(folder: Path) -> None:
    for arguments in ("--help", "measure --help", "nonsense"):
        ran = _process(arguments, folder, environment={"PYTHONIOENCODING": "ascii"})
        assert ran.returncode == (2 if arguments == "nonsense" else 0)
        assert b"Traceback" not in ran.stderr


def test_names_that_no_encoding_has(folder: Path) -> None:
    """A file name that is no UTF-8 is written and told."""
    odd = os.fsdecode(b"caf\xe9.json")
    ran = _process("plan topology.json -o $'caf\\xe9.json'", folder)
    assert ran.returncode == 0, ran.stderr
    assert (folder / odd).exists()
    ran = _process("predict $'nicht\\xe9.json' --flow 0:1", folder)
    assert ran.returncode == 2
    assert ran.stderr.count(b"\n") == 1
    assert b"no such file" in ran.stderr
