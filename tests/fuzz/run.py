"""Fuzz with coverage as the guide: ``python tests/fuzz/run.py TARGET… --seconds 60``.

Wants atheris (``make fuzz`` brings it, in an environment of its own).  Each target runs in a
process of its own with 1 GB and 5 s for an input; what fails is kept under ``--findings``, and
the exit status tells whether anything did.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
_MOST_MB: Final = 1024
_MOST_S: Final = 5
"""Seconds of processor time for an input."""

_MOST_WALL_S: Final = 60
_LONGEST: Final = 20_000
"""Bytes of an input: files of seeds have up to 10,000."""


def _fuzz(name: str, corpus: Path, options: list[str]) -> None:
    """Inside the process of one target; does not return."""
    import atheris

    # What numba compiles stays as it is.
    kernels = [p.stem for p in _ROOT.glob("*/*_kernel.py")]
    excluded = [f"topocal.{layer}.{k}" for layer in ("topo", "measure", "solve") for k in kernels]
    with atheris.instrument_imports(include=["topocal"], exclude=excluded):
        from targets import TARGETS, attempt
    from mutate import mutated

    target = TARGETS[name]
    (prefix,) = (o.partition("=")[2] for o in options if o.startswith("-artifact_prefix="))

    def one(content: bytes) -> None:
        began = time.process_time()
        try:
            attempt(target, content)
            took_s = time.process_time() - began
            assert took_s < _MOST_S, f"took {took_s:.1f} s"
        except Exception:
            # The fuzzer's own way to keep it fails now and then while Python comes down.
            name = hashlib.sha256(content).hexdigest()[:16]
            Path(f"{prefix}input-{name}").write_bytes(content)
            raise

    # What is compiled on first use is not an input's own time.
    for path in corpus.iterdir():
        attempt(target, path.read_bytes())

    def mutator(content: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(content, most))
        return mutated(content, rng)[:most]

    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=mutator)
    atheris.Fuzz()


def _run(
    name: str, seeds: tuple[bytes, ...], seconds: int, findings: Path, seed: int
) -> tuple[int, str, int]:
    """Inputs tried, what was found, exit status."""
    with tempfile.TemporaryDirectory() as corpus:
        for number, content in enumerate(seeds):
            (Path(corpus) / f"seed-{number}").write_bytes(content)
        options = [
            f"-max_total_time={seconds}",
            f"-rss_limit_mb={_MOST_MB}",
            f"-timeout={_MOST_WALL_S}",
            f"-max_len={_LONGEST}",
            f"-artifact_prefix={findings}/{name}-",
            f"-seed={seed}",
            "-len_control=0",
            "-print_final_stats=1",
        ]
        ran = subprocess.run(
            [sys.executable, __file__, "--inside", name, corpus, *options],
            capture_output=True,
            text=True,
            errors="replace",
        )
    tried = re.findall(r"number_of_executed_units: (\d+)|^#(\d+)", ran.stderr, re.MULTILINE)
    count = max((int(a or b) for a, b in tried), default=0)
    if ran.returncode:
        (findings / f"{name}.log").write_text(ran.stderr[-20_000:] + ran.stdout[-20_000:])
    told = re.findall(
        r"^(?:\w*(?:Error|Exception)\b.*|.*ERROR: lib.*)$", ran.stdout + ran.stderr, re.MULTILINE
    )
    return count, "; ".join(told)[:300], ran.returncode


def main() -> int:
    """Fuzz one target after the other."""
    if sys.argv[1:2] == ["--inside"]:
        _fuzz(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    given = parser.parse_args()
    given.findings.mkdir(parents=True, exist_ok=True)
    from targets import TARGETS

    failed = 0
    total = 0
    for name in given.targets or TARGETS:
        began = time.monotonic()
        count, told, status = _run(
            name, TARGETS[name].seeds, given.seconds, given.findings, given.seed
        )
        total += count
        failed += status != 0
        verdict = f"FOUND {told} (exit status {status})" if status else "nothing"
        print(
            f"{name:32} {count:9,} inputs {time.monotonic() - began:6.0f} s  {verdict}", flush=True
        )
    print(f"{total:,} inputs, {failed} targets with findings (in {given.findings})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(_HERE))
    sys.exit(main())
