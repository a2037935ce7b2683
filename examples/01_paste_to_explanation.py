"""From two pastes to an answer: what is slow on this machine, and why?

The pastes are what `nvidia-smi topo -m` and `p2pBandwidthLatencyTest` print.  Six GPUs in threes
behind two PCIe switches; somebody complains that GPU 5 is slow.  On the command line the same is

    topocal explain topo.txt p2p.txt
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import topocal as tc
from topocal.solve.explain import explain
from topocal.topo.readers.registry import read_any

PASTES = Path(__file__).with_name("paste")


def main() -> None:
    """Read the pastes, and print what they say."""
    machine = read_any(PASTES / "topo.txt")
    measured = tc.load(PASTES / "p2p.txt")
    print(f"{len(machine.accelerators)} GPUs, {len(measured.samples)} figures\n")
    found = explain(measured, machine)
    for finding in found.findings:
        print(textwrap.fill(f"- {finding.text}", 79, subsequent_indent="  "))
    if found.fewest is not None:
        print()
        for sentence in found.fewest.sentences:
            print(sentence)


if __name__ == "__main__":
    main()
