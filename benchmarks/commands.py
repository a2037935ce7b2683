"""How long people wait for a command: each a process of its own, from start to exit.

The figures that must hold (seconds): ``topocal --help`` 0.4, ``predict`` on a saved model 1,
``explain`` of an 8-GPU paste 3, ``report`` 3. Others stand beside them. Of several runs the least
wall time, and the least and the median processor time (user and system, children included): on a
machine that others use the latter say more, and they are what is judged. As a ratio: times as long
as a Python that does nothing.

    python benchmarks/commands.py            best of five
    python benchmarks/commands.py --smoke    once each, under 60 s

None of these loads compiled loops but for those whose work is long; the first time on a machine
that compiles them, for 10 to 20 seconds, which is not counted. What each command may load is
tested (tests/test_what_commands_load.py).
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

ROOT: Final = Path(__file__).parents[1]
B70: Final = ROOT / "examples" / "b70"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command, and the seconds that it may take (``None``: none are promised)."""

    name: str
    arguments: tuple[str, ...]
    limit_s: float | None = None


CASES: Final = (
    Case(name="topocal --help", arguments=("--help",), limit_s=0.4),
    Case(name="predict --help", arguments=("predict", "--help"), limit_s=0.4),
    Case(
        name="predict, saved model",
        arguments=("predict", "model.json", "--fan-in", "3:4,5,6,7"),
        limit_s=1.0,
    ),
    Case(name="explain, 8-GPU pastes", arguments=("explain", "topo.txt", "p2p.txt"), limit_s=3.0),
    Case(
        name="explain, 8 GPUs with fans",
        arguments=("explain", str(B70 / "pairs.csv"), str(B70 / "fans.csv"), "-t", "b70"),
        limit_s=3.0,
    ),
    Case(name="report", arguments=("report", "model.json", "-o", "report.html"), limit_s=3.0),
    Case(name="read topo -m", arguments=("read", "topo.txt")),
    Case(name="show b70", arguments=("show", "b70")),
    Case(name="plan b70", arguments=("plan", "b70")),
    Case(name="fit, 59 figures", arguments=("fit", str(B70 / "pairs.csv"), str(B70 / "fans.csv"))),
    Case(name="simulate, 2 flows", arguments=("simulate", "dgx-h100", "flows.csv")),
    Case(name="price", arguments=("price", "caps.json", "flows.csv")),
    Case(name="demo", arguments=("demo",), limit_s=30.0),
)


def pastes() -> dict[str, str]:
    """``nvidia-smi topo -m`` and p2pBandwidthLatencyTest of a box with eight GPUs."""
    count = 8
    node = [k // 4 for k in range(count)]
    names = [f"GPU{k}" for k in range(count)]
    topo = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity"])]
    for a in range(count):
        cells = [
            "X" if a == b else "PIX" if a // 2 == b // 2 else "PXB" if node[a] == node[b] else "SYS"
            for b in range(count)
        ]
        topo.append(
            "\t".join([names[a], *cells, f"{24 * node[a]}-{24 * node[a] + 23}", str(node[a])])
        )
    noise = np.random.default_rng(0)
    p2p = ["Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)"]
    p2p.append("   D\\D " + " ".join(f"{k:6d}" for k in range(count)))
    for a in range(count):
        rates = [
            (670.0 if a == b else 26.3 if node[a] == node[b] else 21.1)
            * (1 + 0.003 * noise.standard_normal())
            for b in range(count)
        ]
        p2p.append(f"{a:6d} " + " ".join(f"{rate:6.2f}" for rate in rates))
    return {
        "topo.txt": "\n".join(topo) + "\n",
        "p2p.txt": "\n".join(p2p) + "\n",
        "flows.csv": "source,destination,size\n0,4,256MiB\n1,5,64MiB\n",
    }


def timed(arguments: tuple[str, ...], place: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a command, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(arguments, cwd=place, check=True, capture_output=True)
    wall_s = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, cpu_s


def main() -> int:
    """Time them all; exit status 1 where one takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="once each, and no limits")
    smoke = parser.parse_args().smoke
    runs = 1 if smoke else 5
    topocal = (sys.executable, "-m", "topocal")
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}, Python {platform.python_version()}, best of {runs}"
    )
    late = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, text in pastes().items():
            (place / name).write_text(text)
        tables = (str(B70 / "pairs.csv"), str(B70 / "fans.csv"))
        timed((*topocal, "fit", *tables, "-t", "b70", "-o", "model.json"), place)
        timed((*topocal, "caps", "model.json", "-o", "caps.json"), place)
        least_s = min(timed((sys.executable, "-c", ""), place)[1] for _ in range(runs))
        print(
            f"{'command':28s} {'wall s':>8s} {'CPU s':>8s} {'median':>8s} {'ratio':>7s}   may take"
        )
        for case in CASES:
            times = [timed((*topocal, *case.arguments), place) for _ in range(runs)]
            wall_s, cpu_s = (min(column) for column in zip(*times, strict=True))
            median_s = statistics.median(cpu for _, cpu in times)
            limit = "" if case.limit_s is None else f"{case.limit_s:g} s"
            is_late = case.limit_s is not None and median_s > case.limit_s
            late += is_late
            print(
                f"{case.name:28s} {wall_s:8.2f} {cpu_s:8.2f} {median_s:8.2f} "
                f"{cpu_s / least_s:7.1f}   {limit}{'  LATE' if is_late else ''}"
            )
    return int(late > 0 and not smoke)


if __name__ == "__main__":
    sys.exit(main())
