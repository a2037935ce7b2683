"""Machines of which pairs were measured one way and both ways at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from posted_figures import (
    CASES,
    Claim,
    Machine,
    asked_of,
    every,
    gives,
    samples_of,
    single,
    slow_port,
    there_and_back,
)

from topocal.measure.samples import Sample
from topocal.topo.readers.registry import read_any


def _pairs_machine(
    slug: str,
    name: str,
    title: str,
    *,
    family: Callable[[Sample], str] = lambda _: "each pair both ways",
    topology: str = "",
    wiring: str = "none: inferred from the figures",
    misfits: Mapping[str, str] | None = None,
    structure: Mapping[str, Claim] | None = None,
    **conditions: str,
) -> Machine:
    """A machine of which pairs were measured one way and both ways."""
    folder = CASES / slug.split(":")[0]
    samples = samples_of(f"{folder.name}/{name}", **conditions)
    return Machine(
        slug=slug,
        title=title,
        wiring=wiring,
        topology=read_any(folder / topology) if topology else None,
        basis=single(samples),
        asked=asked_of(samples, family),
        structure=structure or {},
        misfits=misfits or {},
    )


def _across(s: Sample) -> str:
    low = {f"gpu{k}" for k in range(3)}
    a, b = s.pattern.pairs[0]
    return f"pairs {'inside a switch' if (a in low) == (b in low) else 'across'} both ways"


def _boards(s: Sample) -> str:
    one_board = s.name in ("gpu0<->gpu2", "gpu1<->gpu3")
    return f"pairs of {'one board' if one_board else 'two boards'} both ways"


def _ends(s: Sample) -> str:
    return f"{'host and a GPU' if 'cpu' in s.name else 'two GPUs'} both ways"


def pairs_machines() -> list[Machine]:
    """Machines of which pairs were measured one way and both ways."""
    small = "p2p-straggler-and-small-boxes"
    duplex = {"each pair both ways": "duplex"}
    return [
        _pairs_machine(
            "old-7gpu-x1-risers",
            "p2p.txt",
            "6x GTX 1070 and a GTX 1080 on x1 risers, peer access",
            family=_across,
            topology="topology.txt",
            wiring="its nvidia-smi topo -m",
            structure={
                "what GPU 6 sends is not held up, what it gets across is": every(
                    gives(0.82, ("gpu6", "gpu0"), within=0.05),
                    gives(0.73, ("gpu0", "gpu6"), within=0.05),
                )
            },
            misfits={
                "pairs inside a switch both ways": "class",
                "pairs across both ways": "class",
            },
        ),
        _pairs_machine(
            "old-azure-m60-vm",
            "p2p_4gpu.txt",
            "4x half a Tesla M60 in a virtual machine",
            p2p="off",
            family=_boards,
            topology="topology_4gpu.txt",
            wiring="its nvidia-smi topo -m, which shows nothing but SOC",
            structure={
                "GPUs 0 and 2, and 1 and 3, share an uplink": every(
                    gives(5.47, *there_and_back("gpu0", "gpu2")),
                    gives(5.47, *there_and_back("gpu1", "gpu3")),
                    gives(10.4, *there_and_back("gpu0", "gpu1")),
                )
            },
            misfits={
                "pairs of one board both ways": "pairs",
                "pairs of two boards both ways": "duplex",
            },
        ),
        _pairs_machine(f"{small}:3", "p2p_3gpu_b.txt", "3x RTX 3090 class, peer access"),
        _pairs_machine(
            f"{small}:2 on", "p2p_2gpu.txt", "2x RTX 4090 on x4 links, peer access", p2p="on"
        ),
        _pairs_machine(
            f"{small}:2 off",
            "p2p_2gpu.txt",
            "2x RTX 4090 on x4 links, no peer access",
            p2p="off",
            misfits=duplex,
        ),
        _pairs_machine(
            "pix-no-p2p-2080ti",
            "p2p.txt",
            "2x RTX 2080 Ti behind one switch, no peer access",
            p2p="off",
            topology="topology.txt",
            wiring="its nvidia-smi topo -m and -p2p",
            structure={
                "both ways pass hardly more than one way": gives(
                    6.1, *there_and_back("gpu0", "gpu1")
                )
            },
        ),
        _pairs_machine(
            "phb-hides-chipset-link:b on",
            "pairs.csv",
            "2x RTX 3090 on EPYC, peer access",
            box="b",
            p2p="on",
        ),
        _pairs_machine(
            "phb-hides-chipset-link:b off",
            "pairs.csv",
            "2x RTX 3090 on EPYC, no peer access",
            box="b",
            p2p="off",
            misfits=duplex,
        ),
        _pairs_machine(
            "rbt-7900xtx-no-p2p", "rbt.txt", "2x RX 7900 XTX and host memory", misfits=duplex
        ),
        _pairs_machine(
            "gpucopy-superbench-2gpu", "gpu_copy.txt", "2x A100 class, copy engines", family=_ends
        ),
        _pairs_machine(
            "transferbench-mi250-8gcd",
            "transferbench.txt",
            "4x MI250 (8 GCDs), copies by kernels",
            family=_ends,
            misfits={"host and a GPU both ways": "duplex", "two GPUs both ways": "fabric"},
        ),
        _pairs_machine(
            "nvbw-gb300-station",
            "nvbandwidth.txt",
            "Grace and one Blackwell GPU",
            structure={
                "both directions share one memory of about 350": every(
                    gives(347.0, *there_and_back("cpu0", "gpu0")), gives(359.0, ("cpu0", "gpu0"))
                )
            },
            misfits=duplex,
        ),
        _pairs_machine(
            "contend-host-bothways-a100", "bothways.csv", "A100 and host memory", misfits=duplex
        ),
    ]


def one_slow_card() -> Machine:
    """Seven GPUs of which one hangs on a narrow link; both ways only."""
    slug = "p2p-straggler-and-small-boxes"
    samples = samples_of(f"{slug}/p2p_7gpu.txt")
    return Machine(
        slug=f"{slug}:7",
        title="6x RTX 4090 and a small card on a narrow link, both ways only",
        given="nothing",
        asked=asked_of(
            samples,
            lambda s: f"pairs {'with' if 'gpu6' in s.name else 'without'} the small card",
        ),
        structure={
            "the small card's port is slow, not six pairs": every(
                gives(3.93, *there_and_back("gpu0", "gpu6")),
                gives(50.5, *there_and_back("gpu0", "gpu1")),
                slow_port("gpu6", 2.1),
            )
        },
    )


def chipset() -> Machine:
    """Three GPUs of which one hangs off the chipset; single pairs only."""
    slug = "phb-hides-chipset-link"
    return Machine(
        slug=f"{slug}:a",
        title="3x RTX 3090 on a desktop board, one off the chipset",
        basis=samples_of(f"{slug}/pairs.csv", "a"),
        structure={
            "GPU 0's own port is the slow one": every(
                gives(6.5, ("gpu0", "gpu1")), gives(13.17, ("gpu1", "gpu2")), slow_port("gpu0", 7.0)
            )
        },
    )


def bridged_pairs() -> Machine:
    """Eight GPUs with NVLink bridges between neighbours, both ways only, half the table."""
    slug = "p2p-a40-nvlink-pairs-epyc"
    samples = samples_of(f"{slug}/p2p.txt")
    bridged = ("gpu0<->gpu1", "gpu2<->gpu3")

    def family(s: Sample) -> str:
        if s.name in bridged:
            return "bridged pairs"
        near = all(int(e[3:]) < 4 for e in s.pattern.pairs[0])
        return f"pairs of {'one socket' if near else 'two sockets'}"

    return Machine(
        slug=slug,
        title="8x A40 with NVLink bridges, both ways only, three rows of eight",
        given="nothing",
        asked=asked_of(samples, family),
        structure={
            "bridged pairs pass 101.6, others of a socket 50": every(
                gives(101.6, *there_and_back("gpu0", "gpu1")),
                gives(101.6, *there_and_back("gpu2", "gpu3")),
                gives(50.2, *there_and_back("gpu0", "gpu2")),
            )
        },
        misfits={"bridged pairs": "fabric", "pairs of one socket": "fabric"},
    )
