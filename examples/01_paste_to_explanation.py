"""From two pastes to an answer: what is slow on this machine, and why?

The pastes are what `nvidia-smi topo -m` and `p2pBandwidthLatencyTest` print.  Six GPUs in threes
behind two PCIe switches; somebody complains that GPU 5 is slow.  On the command line the same is

    topocal explain topo.txt p2p.txt
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import topocal as tc
from topocal.solve.explain import explain
from topocal.topo.readers.registry import read_any

TOPO = """\
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    CPU Affinity    NUMA Affinity
GPU0     X      PIX     PIX     SYS     SYS     SYS     0-23            0
GPU1    PIX      X      PIX     SYS     SYS     SYS     0-23            0
GPU2    PIX     PIX      X      SYS     SYS     SYS     0-23            0
GPU3    SYS     SYS     SYS      X      PIX     PIX     24-47           1
GPU4    SYS     SYS     SYS     PIX      X      PIX     24-47           1
GPU5    SYS     SYS     SYS     PIX     PIX      X      24-47           1
"""

P2P = """\
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2      3      4      5
     0 879.47  26.25  26.29  19.56  19.55   9.70
     1  26.35 880.60  26.33  19.57  19.60   9.69
     2  26.26  26.25 879.43  19.65  19.64   9.72
     3  19.64  19.56  19.58 880.25  26.33   9.72
     4  19.65  19.55  19.61  26.32 880.01   9.69
     5  12.90  12.88  12.93  12.92  12.90 879.60
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2      3      4      5
     0 880.00  52.28  52.21  38.98  38.97  19.30
     1  52.28 880.00  52.22  38.89  38.83  19.38
     2  52.21  52.22 880.00  38.81  38.93  19.38
     3  38.98  38.89  38.81 880.00  52.30  19.37
     4  38.97  38.83  38.93  52.30 880.00  19.39
     5  19.30  19.38  19.38  19.37  19.39 880.00
"""


def main() -> None:
    """Write the pastes to files, read them, and print what they say."""
    with tempfile.TemporaryDirectory() as folder:
        topo, p2p = Path(folder, "topo.txt"), Path(folder, "p2p.txt")
        topo.write_text(TOPO)
        p2p.write_text(P2P)
        machine = read_any(topo)
        measured = tc.load(p2p)
    print(f"{len(machine.accelerators)} GPUs, {len(measured.samples)} figures\n")
    found = explain(measured, machine)
    for finding in found.findings:
        print(f"- {finding.text}")
    if found.fewest is not None:
        print()
        for sentence in found.fewest.sentences:
            print(sentence)


if __name__ == "__main__":
    main()
