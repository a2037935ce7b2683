"""Fuzz with coverage as the guide: ``python tests/fuzz/run.py TARGET… --seconds 60``.

Wants atheris (``make fuzz`` brings it, in an environment of its own).  Each target runs in a
process of its own with 1 GB and 5 s for an input, for so many seconds of processor time.  What
reached new code is kept under ``--corpus`` and is where the next run goes on; what was spent
stands there too, and a run without targets begins with the one that had the least.  What fails is
kept under ``--findings``, and the exit status tells whether anything did.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
_MOST_MB: Final = 1024
_MOST_S: Final = 5
"""Seconds of processor time for an input."""

_MOST_WALL_S: Final = 60
_PATIENCE: Final = 20
"""So many times as long on the clock as in processor time, before a target is ended."""

_LONGEST: Final = 20_000
"""Bytes of an input: files of seeds have up to 10,000."""

_SPENT: Final = "spent.json"
_TRIED: Final = re.compile(r"^tried (\d+) in ([\d.]+) s, slowest ([\d.]+) s$", re.MULTILINE)


def _fuzz(name: str, corpus: Path, seconds: float, options: list[str]) -> None:
    """Inside the process of one target; does not return."""
    import atheris

    # What numba compiles stays as it is.
    kernels = [p.stem for p in _ROOT.glob("*/*_kernel.py")]
    excluded = [f"topocal.{layer}.{k}" for layer in ("topo", "measure", "solve") for k in kernels]
    with atheris.instrument_imports(include=["topocal"], exclude=excluded):
        from targets import TARGETS, attempt
    from mutate import Mutator

    target = TARGETS[name]
    (prefix,) = (o.partition("=")[2] for o in options if o.startswith("-artifact_prefix="))

    # What is compiled on first use is not an input's own time.
    seeds = [path.read_bytes() for path in sorted(corpus.glob("seed-*"))]
    for content in seeds:
        attempt(target, content)
    began = time.process_time()
    counted = 0
    slowest_s = 0.0

    def tell(now: float) -> None:
        told = f"tried {counted} in {now - began:.1f} s, slowest {slowest_s:.3f} s"
        print(f"\n{told}", file=sys.stderr, flush=True)

    def one(content: bytes) -> None:
        nonlocal counted, slowest_s
        started = time.process_time()
        if started - began > seconds:
            tell(started)
            os._exit(0)
        counted += 1
        try:
            attempt(target, content)
            took_s = time.process_time() - started
            if took_s > _MOST_S:  # Unless it was the first to need something.
                started = time.process_time()
                attempt(target, content)
                took_s = time.process_time() - started
            slowest_s = max(slowest_s, took_s)
            assert took_s < _MOST_S, f"took {took_s:.1f} s"
        except Exception:
            # The fuzzer's own way to keep it fails now and then while Python comes down.
            name = hashlib.sha256(content).hexdigest()[:16]
            Path(f"{prefix}input-{name}").write_bytes(content)
            tell(time.process_time())
            raise

    mutator = Mutator(words=target.words(), others=seeds)

    def changed(content: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.25:
            return bytes(atheris.Mutate(content, most))
        return mutator.mutated(content, rng)[:most]

    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=changed)
    atheris.Fuzz()


def _words_file(path: Path, words: tuple[str, ...]) -> None:
    """The target's words as the fuzzer wants them."""
    lines = []
    for word in words:
        content = word.encode("utf-8", "surrogatepass")[:60]
        lines.append('"' + "".join(f"\\x{byte:02x}" for byte in content) + '"')
    path.write_text("\n".join(lines) + "\n")


def _run(name: str, target: Any, given: argparse.Namespace) -> dict[str, Any]:
    """What one target came to: inputs, seconds, slowest input, what was found."""
    corpus = given.corpus / name
    corpus.mkdir(parents=True, exist_ok=True)
    for old in corpus.glob("seed-*"):
        old.unlink()
    for number, content in enumerate((*target.seeds, *target.more)):
        (corpus / f"seed-{number}").write_bytes(content)
    words = given.corpus / f"{name}.words"
    _words_file(words, target.words())
    options = [
        f"-max_total_time={given.seconds * _PATIENCE}",
        f"-rss_limit_mb={_MOST_MB}",
        f"-timeout={_MOST_WALL_S}",
        f"-max_len={_LONGEST}",
        f"-artifact_prefix={given.findings}/{name}-",
        f"-seed={given.seed}",
        f"-dict={words}",
        "-len_control=0",
        "-print_final_stats=1",
    ]
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, __file__, "--inside", name, corpus, str(given.seconds), *options],
        capture_output=True,
        text=True,
        errors="replace",
    )
    if ran.returncode:
        log = ran.stderr[-20_000:] + ran.stdout[-20_000:]
        (given.findings / f"{name}.log").write_text(log)
    tried = _TRIED.findall(ran.stderr)
    told = re.findall(
        r"^(?:\w*(?:Error|Exception)\b.*|.*ERROR: lib.*)$", ran.stdout + ran.stderr, re.MULTILINE
    )
    inputs, cpu_s, slowest_s = tried[-1] if tried else (0, 0, 0)
    return {
        "inputs": int(inputs),
        "slowest_s": float(slowest_s),
        "cpu_s": float(cpu_s),
        "wall_s": time.monotonic() - began,
        "found": ("; ".join(told)[:300] or f"status {ran.returncode}") if ran.returncode else "",
    }


def _keep(path: Path, name: str, run: dict[str, Any]) -> dict[str, Any]:
    """Add a run to what is known of all; returns all."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    mine = known.setdefault(name, {"inputs": 0, "cpu_s": 0.0, "wall_s": 0.0, "slowest_s": 0.0})
    for what in ("inputs", "cpu_s", "wall_s"):
        mine[what] += run[what]
    mine["slowest_s"] = max(mine["slowest_s"], run["slowest_s"])
    if run["found"]:
        mine.setdefault("found", []).append(run["found"])
    path.write_text(json.dumps(known, indent=1, sort_keys=True))
    return known


def main() -> int:
    """Fuzz one target after the other."""
    if sys.argv[1:2] == ["--inside"]:
        _fuzz(sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", help="default: all, the least tried first")
    parser.add_argument("--seconds", type=int, default=60, help="of processor time, for each")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"))
    given = parser.parse_args()
    given.findings.mkdir(parents=True, exist_ok=True)
    given.corpus.mkdir(parents=True, exist_ok=True)
    from targets import TARGETS

    path = given.corpus / _SPENT
    known = json.loads(path.read_text()) if path.exists() else {}
    names = given.targets or sorted(TARGETS, key=lambda n: known.get(n, {}).get("cpu_s", 0.0))
    failed = 0
    total = 0
    for name in names:
        run = _run(name, TARGETS[name], given)
        total += run["inputs"]
        failed += bool(run["found"])
        known = _keep(path, name, run)
        spent_s = known[name]["cpu_s"]
        verdict = f"FOUND {run['found']}" if run["found"] else "nothing"
        print(
            f"{name:32} {run['inputs']:9,} inputs {run['cpu_s']:5.0f} s ({spent_s:.0f} s in all), "
            f"slowest {run['slowest_s']:.2f} s  {verdict}",
            flush=True,
        )
    print(f"{total:,} inputs, {failed} targets with findings (in {given.findings})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(_HERE))
    sys.exit(main())
