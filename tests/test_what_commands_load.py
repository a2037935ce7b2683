"""Which large packages each command loads: what it does not need would take longer than its work.

No times are asserted here; benchmarks/commands.py reads them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from topocal.cli import VERBS

B70 = Path(__file__).parents[1] / "examples" / "b70"

TOPO: Final = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tSYS\tSYS\t0-23\t0
GPU1\tPIX\t X \tSYS\tSYS\t0-23\t0
GPU2\tSYS\tSYS\t X \tPIX\t24-47\t1
GPU3\tSYS\tSYS\tPIX\t X \t24-47\t1
"""
P2P: Final = """\
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2      3
     0 670.00  26.31  21.10  21.15
     1  26.28 671.00  21.05  21.12
     2  21.11  21.08 669.00  26.35
     3  21.14  21.07  26.29 670.00
"""

NEVER: Final = frozenset({"torch", "matplotlib", "scipy.stats", "numba", "pandas", "IPython"})
"""Not for eight accelerators or fewer, whatever the command."""

SOLVERS: Final = frozenset({"cvxpy", "highspy", "clarabel", "scipy.optimize"})
GRAPHS: Final = frozenset({"scipy.sparse.csgraph", "scipy.sparse.linalg", "scipy.linalg"})
PAGES: Final = frozenset({"jinja2", "rich.progress", "rich.markdown"})
ALL: Final = NEVER | SOLVERS | GRAPHS | PAGES | {"scipy.special", "scipy.cluster", "scipy.spatial"}

COMMANDS: Final = {
    "--help": ((), (ALL - {"rich.markdown"}) | {"numpy", "networkx", "scipy"}),
    "read": (("topo.txt",), (ALL - PAGES) | {"scipy"}),
    "show": (("b70",), ALL),
    "plan": (("b70",), ALL),
    "predict": (("model.json", "--fan-in", "3:4,5,6,7"), ALL),
    "simulate": (("dgx-h100", "flows.csv"), ALL),
    "caps": (("model.json",), ALL),
    "price": (("caps.json", "flows.csv"), ALL),
    "diff": (("model.json", "later.json"), NEVER | SOLVERS | PAGES),
    "report": (("model.json", "-o", "report.html"), NEVER | SOLVERS),
    "explain": (("topo.txt", "p2p.txt"), NEVER),
    "fit": ((str(B70 / "pairs.csv"), str(B70 / "fans.csv"), "-t", "b70"), NEVER),
}
"""Arguments, and what must not be loaded."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("commands")
    (found / "topo.txt").write_text(TOPO)
    (found / "p2p.txt").write_text(P2P)
    (found / "flows.csv").write_text("source,destination,size\n0,4,256MiB\n1,5,64MiB\n")
    tables = (str(B70 / "pairs.csv"), str(B70 / "fans.csv"))
    for arguments in (
        ("fit", *tables, "-t", "b70", "-o", "model.json"),
        ("caps", "model.json", "-o", "caps.json"),
    ):
        subprocess.run(
            [sys.executable, "-m", "topocal", *arguments],
            cwd=found,
            check=True,
            capture_output=True,
        )
    (found / "later.json").write_bytes((found / "model.json").read_bytes())
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_no_more_than_it_needs(command: str, place: Path) -> None:
    arguments, unwanted = COMMANDS[command]
    code = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from topocal.__main__ import main
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, command, *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(ran.stderr.splitlines()[-1]))
    assert loaded & unwanted == set()
    if command in VERBS:
        own = {f"topocal.commands.{verb}" for verb in VERBS} & loaded
        assert own == {f"topocal.commands.{command}"}


# The one function that cvxpy takes from scipy.stats: loaded when it is called.
def test_cvxpy_is_whole_without_scipy_stats() -> None:
    code = """
import sys
from topocal.solve.modeller import cvxpy
cp = cvxpy()
assert "scipy.stats" not in sys.modules
from cvxpy.atoms import quantum_rel_entr
taken = getattr(quantum_rel_entr, "entropy", None)
import scipy.stats
assert scipy.stats is sys.modules["scipy.stats"] and callable(scipy.stats.norm.ppf)
assert taken is None or taken([0.5, 0.5]) == scipy.stats.entropy([0.5, 0.5])
x = cp.Variable()
cp.Problem(cp.Minimize(cp.square(x - 3))).solve()
print(round(float(x.value), 6))
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "3.0"
