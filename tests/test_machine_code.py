"""Machine code that is compiled once is kept for the next process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from topocal.topo import jit

CALL = """
import sys
from topocal.topo.busiest import busiest
from topocal.topo.capacities import Capacities
from topocal.topo.flow import Flow, Pattern
from topocal.topo.fluid import simulate
from topocal.topo import fluid_kernel, jit
from topocal.topo.machines import dgx_h100
jit._WORTH_LOADING = jit._WORTH_LOADING_ONE = 0  # so that even this is compiled
machine = dgx_h100()
flows = (Flow(source="gpu0", destination="gpu1", size_bytes=1e9),)
capacities = Capacities.of(machine, default_Bps=1e9)
assert busiest(machine, [Pattern(flows=flows)], capacities).seconds[0] == \
    simulate(machine, flows, capacities).seconds
stats = fluid_kernel.run.made.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def call(**environment: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", CALL],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.heavy
def test_machine_code_is_kept_for_the_next_process(tmp_path: Path) -> None:
    assert call(NUMBA_CACHE_DIR=str(tmp_path)) == [0, 1]
    assert call(NUMBA_CACHE_DIR=str(tmp_path)) == [1, 0]


def test_where_machine_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jit._directory.cache_clear()
    try:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "here"))
        found = jit._directory()
        assert found is not None
        assert found.parent == tmp_path / "here"
        jit._directory.cache_clear()
        monkeypatch.delenv("NUMBA_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = jit._directory()
        assert found is not None
        assert found.parent == tmp_path / "topocal"
        # Nowhere to write: no directory, and each process compiles for itself.
        jit._directory.cache_clear()
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
        assert jit._directory() is None
    finally:
        jit._directory.cache_clear()
