"""The same flows in SimGrid's C++ engine: compiles simgrid_peer.cpp, feeds it, reads it back.

Debian: ``apt-get install libsimgrid-dev g++``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from topocal.topo.capacities import SHARING_CODE
from topocal.topo.loads import Batch, Loads
from topocal.topo.resource import Sharing

__all__ = ["OPTIONS", "PeerRun", "build_peer", "run_peer", "why_not"]

OPTIONS: Final = (
    # Plain max-min shares: no TCP window, no round-trip weights, no factors, no back traffic.
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "surf/precision:1e-12",
    "maxmin/precision:1e-12",
    # Its fastest settings.
    "contexts/factory:raw",
    "network/optim:Full",
)
_SOURCE: Final = Path(__file__).with_name("simgrid_peer.cpp")
_HEADER: Final = Path("/usr/include/simgrid/s4u.hpp")


@dataclass(frozen=True)
class PeerRun:
    """Finish of each flow, wall seconds of each repeat, peak resident memory, release."""

    finish_s: NDArray[np.float64]
    wall_s: NDArray[np.float64]
    peak_kib: int
    version: str


def why_not() -> str | None:
    """Why SimGrid cannot run here; ``None`` when it can."""
    if shutil.which("g++") is None:
        return "no g++ here"
    if not _HEADER.exists():
        return "no SimGrid here (apt-get install libsimgrid-dev)"
    return None


@cache
def build_peer() -> Path:
    """The compiled peer, built once per process, in a directory that goes away with it."""
    directory = tempfile.TemporaryDirectory(prefix="topocal-simgrid-")
    _kept.append(directory)
    program = Path(directory.name) / "peer"
    subprocess.run(
        ["g++", "-O3", "-march=native", "-std=c++17", _SOURCE, "-lsimgrid", "-o", program],
        check=True,
        capture_output=True,
        text=True,
    )
    return program


_kept: list[tempfile.TemporaryDirectory[str]] = []


def run_peer(
    loads: Loads, batch: Batch, *, repeats: int = 1, options: tuple[str, ...] = OPTIONS
) -> PeerRun:
    """Run the one pattern of a batch; its capacities, duplexes and fatpipes as SimGrid links.

    Every pair becomes a route between two hosts of its own endpoints; pairs are
    those of ``loads`` and must load every resource with weight 1.
    """
    order = np.argsort(batch.start_s, kind="stable")
    names = sorted({name for pair in loads.pairs for name in pair})
    host = {name: k for k, name in enumerate(names)}
    capacities = loads.capacities
    lines = [f"links {len(capacities.resources)}"]
    for rate, code in zip(capacities.capacity_Bps, capacities.sharing, strict=True):
        assert code != SHARING_CODE[Sharing.TIME_SHARED]
        lines.append(f"{float(rate)!r} {int(code == SHARING_CODE[Sharing.FATPIPE])}")
    lines += [f"hosts {len(names)}", f"routes {len(loads.pairs)}"]
    for row, (source, destination) in enumerate(loads.pairs):
        columns = loads.indices[loads.indptr[row] : loads.indptr[row + 1]]
        route = " ".join(map(str, columns))
        lines.append(f"{host[source]} {host[destination]} {len(columns)} {route}")
    lines.append(f"flows {len(order)}")
    for f in order:
        source, destination = loads.pairs[batch.pair[f]]
        lines.append(
            f"{host[source]} {host[destination]} {int(batch.size_bytes[f])} "
            f"{float(batch.start_s[f])!r}"
        )
    lines.append(f"repeats {repeats}")
    done = subprocess.run(
        [build_peer(), "--log=root.thres:error", *(f"--cfg={o}" for o in options)],
        input="\n".join(lines),
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"LC_ALL": "C"},
    )
    answer = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    finish = np.empty(len(order))
    finish[order] = np.array(answer["finish"], dtype=np.float64)
    return PeerRun(
        finish,
        np.array(answer["seconds"], dtype=np.float64),
        int(answer["peak_kib"][0]),
        answer["version"][0],
    )
