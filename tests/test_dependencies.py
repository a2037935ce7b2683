"""What is installed with topocal: little, permissive, listed, pinned for CI, and no torch."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PERMISSIVE = {
    "MIT", "MIT-0", "0BSD", "BSD", "BSD-2-Clause", "BSD-3-Clause", "Apache", "Apache-2.0", "2.0",
    "ISC", "ISCL", "PSF-2.0", "Zlib", "CC0-1.0", "LLVM-exception", "WITH", "AND", "OR", "License",
    "Software",
}  # fmt: skip
"""Words that the statement of a permissive licence is made of."""

OPTIONAL = {"torch", "pynvml", "deepspeed", "simgrid"}
"""Imported where they are installed, and only then."""

PARTS = {"markupsafe"}
"""Of jinja2, which cannot do without."""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _closure(requirements: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Everything that is installed for these requirements, by its normal name."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        one = waiting.pop()
        extras = {"", *one.extras}
        name = _normal(one.name)
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(one.name)
        except metadata.PackageNotFoundError:
            continue
        for text in found[name].requires or ():
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(inner)
    return found


@cache
def _plain() -> dict[str, metadata.Distribution]:
    return _closure(PROJECT["dependencies"])


def _licence(package: metadata.Distribution) -> str:
    stated = package.metadata
    if expression := stated.get("License-Expression"):
        return str(expression)
    classified = [
        text.split(" :: ")[-1]
        for text in stated.get_all("Classifier") or ()
        if text.startswith("License ::")
    ]
    return ", ".join(classified) or str(stated.get("License") or "").partition("\n")[0]


def _words(licence: str) -> set[str]:
    return set(re.findall(r"[A-Za-z0-9.-]+", licence))


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9A-Za-z.+!]+", pin) for pin in pins)
    found = {_normal(pin.partition("==")[0]): pin.partition("==")[2] for pin in pins}
    assert len(found) == len(pins)
    return found


def _listed() -> dict[str, str]:
    rows = re.findall(
        r"^\| ([a-z0-9-]+) \| (.+?) \| ", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE
    )
    return {name: licence for name, licence in rows if name != "package"}


def test_every_package_is_listed_with_its_licence() -> None:
    """In the environment that the constraints describe; others bring other packages."""
    pins = _pins()
    if any(pins.get(name) != package.version for name, package in _plain().items()):
        pytest.skip("other versions are installed than constraints.txt pins")
    assert _listed() == {name: _licence(package) for name, package in _plain().items()}


@pytest.mark.parametrize("name", sorted(_plain()))
def test_licences_are_permissive(name: str) -> None:
    licence = _licence(_plain()[name])
    assert licence
    assert _words(licence) <= PERMISSIVE


def test_a_licence_that_is_not_would_be_seen() -> None:
    for licence in ("GPL-3.0-only", "GNU Lesser General Public License v3 (LGPLv3)", "Proprietary"):
        assert not _words(licence) <= PERMISSIVE


def test_the_constraints_pin_all_that_ci_installs() -> None:
    wanted = [*PROJECT["dependencies"]]
    for some in PROJECT["optional-dependencies"].values():
        wanted += some
    assert _closure(wanted).keys() - _pins().keys() == set()


def test_a_plain_install_brings_no_torch_and_touches_none() -> None:
    assert not {n for n in _plain() if n.startswith(("torch", "nvidia", "triton", "deepspeed"))}
    (torch,) = (Requirement(text) for text in PROJECT["optional-dependencies"]["measure"])
    assert torch.name == "torch"
    assert {s.operator for s in torch.specifier} == {">="}


def _imported() -> dict[str, set[str]]:
    """Packages that are no part of Python, by the files that import them."""
    found: dict[str, set[str]] = {}
    for folder in ("topo", "measure", "solve", "topocal"):
        for path in (ROOT / folder).rglob("*.py"):
            if any(part.is_symlink() for part in (path, *path.parents) if part != ROOT):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                for top in {name.partition(".")[0] for name in names}:
                    if top not in sys.stdlib_module_names and top != "topocal":
                        found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


def test_what_is_imported_is_asked_for_and_what_is_asked_for_is_used() -> None:
    asked = {_normal(Requirement(text).name) for text in PROJECT["dependencies"]}
    imported = {_normal(name) for name in _imported()}
    assert imported - asked - OPTIONAL - PARTS == set()
    # cvxpy finds this solver by itself.
    assert asked - imported - {"clarabel"} == set()


def test_torch_is_imported_in_few_places() -> None:
    places = _imported().get("torch", set())
    assert all(p.startswith(("measure/", "topocal/deepspeed")) for p in places), places
