"""The source itself: nothing that runs what it reads, no shell, no writing around the one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("topo", "measure", "solve", "topocal", "benchmarks", "examples")

FORBIDDEN_MODULES: Final = {
    "pickle": "runs what it reads",
    "cPickle": "runs what it reads",
    "dill": "runs what it reads",
    "cloudpickle": "runs what it reads",
    "shelve": "is pickle on disk",
    "marshal": "crashes on what others wrote",
    "joblib": "is pickle on disk",
    "yaml": "may build any object",
    "xml.etree.ElementTree": "expands entities; topo/readers/xml.py does not",
    "xml.dom.minidom": "expands entities; topo/readers/xml.py does not",
    "lxml": "expands entities; topo/readers/xml.py does not",
    "telnetlib": "talks to the network",
    "urllib.request": "talks to the network",
    "requests": "talks to the network",
    "http.client": "talks to the network",
    "tempfile.mktemp": "names a file that somebody else may make first",
}
FORBIDDEN_CALLS: Final = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.spawnl", "os.spawnv",
    "subprocess.getoutput", "subprocess.getstatusoutput", "commands.getoutput", "tempfile.mktemp",
    "numpy.load", "np.load", "np.save", "np.savez", "torch.load", "torch.save", "pd.read_pickle",
    "tarfile.TarFile.extractall", "shutil.unpack_archive",
}  # fmt: skip
MAY_WRITE: Final = {
    "topo/files.py": "the one way",
    "topo/gather.py": "a tar archive in memory",
    "measure/journal.py": "appends, each line with fsync",
    "measure/fabric/namespaces.py": "the kernel's own files, and hosts inside a namespace",
    "measure/fabric/build.py": "the kernel's own switches inside a namespace",
}
"""Files of the product that write otherwise than through write_atomically, and why."""


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(part.is_symlink() for part in (path, *path.parents) if part != ROOT):
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


SOURCES = dict(_sources())


def _dotted(node: ast.expr) -> str:
    """``os.system`` of a name or attribute; the last name where the rest is computed."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return ""


def _faults(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = []
        for name in names:
            for bad, why in FORBIDDEN_MODULES.items():
                if name == bad or name.startswith(f"{bad}."):
                    found.append(f"line {node.lineno}: {name} {why}")
        if not isinstance(node, ast.Call):
            continue
        called = _dotted(node.func)
        last = called.rpartition(".")[2]
        if called in FORBIDDEN_CALLS or last == "extractall":
            found.append(f"line {node.lineno}: calls {called}")
        for keyword in node.keywords:
            value = keyword.value
            is_false = isinstance(value, ast.Constant) and value.value is False
            runs = called.startswith(("subprocess.", "asyncio.")) or last in ("run", "Popen")
            if keyword.arg == "shell" and runs and not is_false:
                found.append(f"line {node.lineno}: a command for a shell")
            if keyword.arg == "allow_pickle" and not is_false:
                found.append(f"line {node.lineno}: allows pickle")
            if keyword.arg == "autoescape" and is_false:
                found.append(f"line {node.lineno}: a template without escapes")
    return found


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 200
    assert {"topo/files.py", "topocal/cli.py", "benchmarks/solver.py"} <= SOURCES.keys()


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_runs_what_it_reads(name: str) -> None:
    assert _faults(SOURCES[name]) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml\nyaml.load(f)",
        "eval('1')",
        "exec(text)",
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.Popen(c, shell=how)",
        "np.load(path, allow_pickle=True)",
        "archive.extractall('.')",
        "import xml.etree.ElementTree as E",
        "jinja2.Environment(autoescape=False)",
    ],
)
def test_the_check_finds_what_it_is_for(text: str) -> None:
    assert _faults(ast.parse(text)) != []


def _writes(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        last = _dotted(node.func).rpartition(".")[2]
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        modes += [k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)]
        opens = last == "open" and any(
            isinstance(m, str) and set(m) & set("wax+") and len(m) < 4 for m in modes
        )
        if opens or last in ("write_text", "write_bytes", "mkstemp", "NamedTemporaryFile"):
            found.append(f"line {node.lineno}: {last}")
    return found


@pytest.mark.parametrize(
    "name", [n for n in SOURCES if n.split("/")[0] not in ("benchmarks", "examples")]
)
def test_files_are_written_one_way(name: str) -> None:
    if name not in MAY_WRITE:
        assert _writes(SOURCES[name]) == []


def test_the_check_of_writing_finds_what_it_is_for() -> None:
    for text in ("open(p, 'w')", "p.open(mode='ab')", "p.write_text('')", "tempfile.mkstemp()"):
        assert _writes(ast.parse(text)) != []
    assert _writes(ast.parse("open(p)\np.open('rb')\np.read_text()")) == []


def test_programs_are_run_by_lists_of_words() -> None:
    """The first argument of every program that is run is a list, tuple or name, never text."""
    runs = 0
    for name, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _dotted(node.func) in (
                "subprocess.run",
                "subprocess.Popen",
                "subprocess.check_output",
                "subprocess.check_call",
                "subprocess.call",
            ):
                runs += 1
                first = node.args[0]
                is_text = isinstance(first, ast.JoinedStr) or (
                    isinstance(first, ast.Constant) and isinstance(first.value, str)
                )
                assert not is_text, f"{name}:{node.lineno}"
    assert runs > 3
