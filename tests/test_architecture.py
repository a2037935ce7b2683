"""The direction of the arrows, checked on the source itself."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("topo", "measure", "solve")
MAY_IMPORT = {
    "topo": {"topo"},
    "measure": {"topo", "measure"},
    "solve": {"topo", "measure", "solve"},
}


def _modules() -> dict[str, Path]:
    found = {}
    for folder in LAYERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found[_name("topocal", path)] = path
    for path in sorted((ROOT / "topocal").rglob("*.py")):
        parts = path.relative_to(ROOT / "topocal").parts
        if parts[0] not in (*LAYERS, "examples"):
            found[_name("", path)] = path
    return found


def _name(prefix: str, path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    dotted = ".".join(p for p in (prefix, *parts) if p)
    return dotted.removesuffix(".__init__")


MODULES = _modules()


def _imports(path: Path, *, at_run_time: bool) -> set[str]:
    """Modules of ours that a file imports, lazy imports counted; types aside if asked."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if at_run_time and id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_there_is_something_to_check() -> None:
    assert "topocal.topo.topology" in MODULES
    assert "topocal.cli" in MODULES
    assert len(MODULES) > 20


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_lies_below(layer: str) -> None:
    for name, path in MODULES.items():
        if not name.startswith(f"topocal.{layer}"):
            continue
        for imported in _imports(path, at_run_time=False) & MODULES.keys():
            parts = imported.split(".")
            if imported == "topocal":
                pytest.fail(f"{name} imports the front door")
            assert parts[1] in MAY_IMPORT[layer], f"{name} imports {imported}"


def test_no_import_cycles() -> None:
    graph = nx.DiGraph()
    for name, path in MODULES.items():
        for imported in _imports(path, at_run_time=True) & MODULES.keys():
            if imported != name and not name.startswith(imported + "."):
                graph.add_edge(name, imported)
    lazy_by_design = {("topocal.topo.topology", "topocal.topo.routing")}
    graph.remove_edges_from(e for e in lazy_by_design if graph.has_edge(*e))
    cycles = [c for c in nx.simple_cycles(graph) if len(c) > 1]
    assert cycles == []


def test_torch_is_imported_in_one_file_at_most() -> None:
    users = [
        name
        for name, path in MODULES.items()
        if any(m.split(".")[0] == "torch" for m in _imports(path, at_run_time=False))
    ]
    assert set(users) <= {"topocal.measure.worker"}


def test_every_folder_is_packaged_and_linked() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {name for name in MODULES if MODULES[name].name == "__init__.py"}
    assert folders == {p for p in setup["packages"] if not p.startswith("topocal.examples")}
    for layer in LAYERS:
        assert (ROOT / "topocal" / layer).is_symlink()
        assert setup["package-dir"][f"topocal.{layer}"] == layer


def test_public_names_are_declared() -> None:
    for name, path in MODULES.items():
        if path.name in ("__init__.py", "__main__.py"):
            continue
        assigned = {
            target.id
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert "__all__" in assigned, f"{name} does not declare its public names"


def test_no_file_is_much_over_five_hundred_lines() -> None:
    long = {n: len(p.read_text().splitlines()) for n, p in MODULES.items()}
    assert {n: k for n, k in long.items() if k > 520} == {}
