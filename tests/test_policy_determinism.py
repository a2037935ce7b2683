"""The same answer to the bit: in any process, with any number of threads, in any order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples" / "b70"

PROGRAM = """
import json, os, random, sys
import numpy as np

cores, order, before = json.loads(sys.argv[1])
if cores:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))

import topocal as tc
from topocal.solve.caps_document import read_caps

if before:
    # Another solve by the same solver, in the same process.
    import cvxpy as cp
    x = cp.Variable(3, integer=True)
    cp.Problem(cp.Maximize(cp.sum(x)), [x <= np.array([1.5, 2.5, 3.5])]).solve(solver="HIGHS")

caps = read_caps(sys.argv[2])
asked = tc.read_requests(sys.argv[3], caps.endpoints)
place = list(range(len(asked)))
random.Random(order).shuffle(place)
found = {}
for split in (True, False):
    answer = tc.assign(caps, [asked[k] for k in place], split=split)
    parts = sorted(
        (place[k], part.holder, part.origin, part.shape)
        for k, (_, own) in enumerate(answer)
        for part in own
    )
    found[str(split)] = [
        answer.digest,
        answer.finish_s.hex(),
        answer.bound_s.hex(),
        [c.busy_s.hex() for c in answer.candidates],
        parts,
    ]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Caps of the published machine, and a sync on it."""
    import topocal as tc
    from topocal.solve.caps_document import write_caps

    place = tmp_path_factory.mktemp("policy")
    measured = tc.read_tables([str(EXAMPLES / "pairs.csv"), str(EXAMPLES / "fans.csv")])
    write_caps(tc.fit(measured, tc.machines.b70()).caps(), place / "caps.json")
    asked = [
        {
            "parameter": f"{layer}.{name}",
            "target": f"gpu{target}",
            "holders": [f"gpu{shard}", f"gpu{shard + 4}"],
            "origin": [256 * shard, 0],
            "shape": [256, columns],
        }
        for layer in range(6)
        for name, columns in (("qkv", 6144), ("out", 2048), ("up", 5632))
        for shard in range(4)
        for target in range(8)
    ]
    document = {"format": "topocal/requests", "version": 1, "element_bytes": 2, "requests": asked}
    (place / "requests.json").write_text(json.dumps(document))
    return place / "caps.json", place / "requests.json"


@pytest.mark.heavy
def test_processes_agree_to_the_bit(files: tuple[Path, Path]) -> None:
    found = []
    for number, (threads, hashes, cores, order, before) in enumerate(
        [("1", "0", 1, 1, False), ("2", "1", 0, 2, False), ("8", "2", 0, 3, True)]
    ):
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")
        threads_of = {f"{name}_NUM_THREADS": threads for name in names}
        environment = os.environ | threads_of | {"PYTHONHASHSEED": hashes}
        # More threads than cores is an error to numba; what it may use does not matter here.
        environment.pop("NUMBA_NUM_THREADS")
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps([cores, order, before]), *map(str, files)],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        # The solver's own banner may come first.
        found.append(json.loads(ran.stdout.splitlines()[-1]))
        assert found[number] == found[0]
    digest, finish, _, _, parts = found[0]["True"]
    assert digest.startswith("sha256:")
    assert float.fromhex(finish) > 0
    assert len(parts) >= 6 * 3 * 4 * 8
