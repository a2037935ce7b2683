"""Do predictions keep their word, on machines that are not of the fit's own making?

Truth: boxes of 4, 8 and 16 cards whose ports differ by a few percent, with switch uplinks and
a hop between sockets, and with what else is found on real ones: a slow card, receivers that
take turns, directions that share (alike, or one more than the other), a loss by many flows,
limits that no topology shows.  They are timed by the law below, written out here and not by
the program's own simulator, with log-normal errors.  Data: the table of pairs, most of it, and
5 to 20 patterns of several flows, each timed once.  Asked: fans, bundles, both ways, rings and
pairs that nobody measured.  Every machine is fitted with its topology and without.

Told of each: the share of *narrow* predictions, how often their 95 % intervals hold the truth,
their errors; of the others how often the interval holds and how far its ends are apart.

    python benchmarks/honesty.py              everything, two minutes
    python benchmarks/honesty.py --smoke      a part, under a minute
    python benchmarks/honesty.py --seed 7 --machines 20

Seeds 11 to 15 and 314159 are spent: their failures were read to change the fit.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from topocal.measure.patterns import both_ways, bundle, fan_in, fan_out, peer, relay
from topocal.measure.samples import Measurements, Sample
from topocal.solve.fit import fit
from topocal.solve.predict import predict
from topocal.topo.builder import TopologyBuilder
from topocal.topo.flow import Pattern
from topocal.topo.resource import LinkKind, NodeKind
from topocal.topo.topology import Topology

SIZE: Final = 2.0**28

FLAVOURS: Final = (
    "ports",
    "uplinks",
    "hop",
    "slow card",
    "turns",
    "duplex",
    "one way gives",
    "fading",
    "hidden limit",
)
"""What a machine has besides ports that differ."""

NO_BOX: Final = (("hop", 4),)
"""Too small for that."""


@dataclass(frozen=True)
class Box:
    """A machine whose truth is known.

    Attributes
    ----------
    send, take
        Shape (n,): what each card's port passes, bytes per second.
    switch, socket
        Shape (n,): where each card sits.
    uplink, hop
        What a switch passes up (and down) and a socket to another; infinite where nothing limits.
    turns
        Cards that serve their senders one after another.
    together, weight
        What a card passes in both directions, and what a byte that it sends counts in that.
    fading
        Relative loss for every further flow.
    hidden
        Pairs that share a limit, and what it passes.
    """

    send: np.ndarray
    take: np.ndarray
    switch: np.ndarray
    socket: np.ndarray
    uplink: np.ndarray
    hop: float
    turns: frozenset[int]
    together: float
    weight: float
    fading: float
    hidden: tuple[frozenset[tuple[int, int]], float] | None

    def seconds(self, pattern: Pattern) -> float:
        """How long a pattern of equal sizes takes."""
        flows = [(int(f.source[3:]), int(f.destination[3:])) for f in pattern.flows]
        busy: dict[object, float] = {}

        for s, d in flows:
            for what, seconds in self._crossed(s, d):
                busy[what] = busy.get(what, 0.0) + seconds
        longest = max(busy.values())
        for root in self.turns:
            into = [(s, d) for s, d in flows if d == root]
            longest = max(longest, 0.97 * sum(self._alone(s, d) for s, d in into))
        size = pattern.flows[0].size_bytes
        return size * longest * (1.0 + self.fading * (len(flows) - 1))

    def _alone(self, s: int, d: int) -> float:
        return max(seconds for _, seconds in self._crossed(s, d))

    def _crossed(self, s: int, d: int) -> Iterator[tuple[object, float]]:
        """What a flow crosses, and for how long a byte of it keeps that busy."""
        yield ("out", s), 1 / self.send[s]
        yield ("in", d), 1 / self.take[d]
        yield ("both", s), self.weight / self.together
        yield ("both", d), 1 / self.together
        if self.switch[s] != self.switch[d]:
            yield ("up", self.switch[s]), 1 / self.uplink[self.switch[s]]
            yield ("down", self.switch[d]), 1 / self.uplink[self.switch[d]]
        if self.socket[s] != self.socket[d]:
            yield ("hop", self.socket[s]), 1 / self.hop
        if self.hidden is not None and (s, d) in self.hidden[0]:
            yield "hidden", 1 / self.hidden[1]


def box(flavour: str, cards: int, rng: np.random.Generator) -> Box:
    """A machine drawn at random."""
    port = float(rng.choice([13e9, 26e9, 28e9, 55e9]))
    differ = rng.choice([0.01, 0.03, 0.05])
    send, take = port * rng.uniform(1 - differ, 1 + differ, (2, cards))
    switch = np.arange(cards) // (2 if cards == 4 or rng.random() < 0.4 else 4)
    socket = np.arange(cards) // max(2, cards // 2)
    uplink = np.full(cards, np.inf)
    hop = np.inf
    if flavour == "uplinks" or (flavour not in ("ports", "hop") and rng.random() < 0.4):
        uplink = port * rng.uniform(0.97, 1.05) * rng.uniform(0.99, 1.01, cards)
    if flavour == "hop":
        hop = port * rng.uniform(0.5, 2.2)
    turns: frozenset[int] = frozenset()
    if flavour == "slow card":
        slow = int(rng.integers(cards))
        factor = rng.uniform(0.3, 0.8)
        send[slow] *= factor
        take[slow] *= factor if rng.random() < 0.7 else 1.0
    if flavour == "turns":
        send *= rng.uniform(0.35, 1.0, cards) if rng.random() < 0.7 else 1.0
        some = rng.random()
        count = 1 if some < 0.3 else cards if some < 0.7 else int(rng.integers(2, cards))
        turns = frozenset(rng.permutation(cards)[:count].tolist())
    together, weight = np.inf, 1.0
    if flavour in ("duplex", "one way gives"):
        together = port * rng.uniform(1.1, 1.9)
        weight = 1.0 if flavour == "duplex" else float(rng.uniform(0.2, 0.8))
    hidden = None
    if flavour == "hidden limit":
        left = rng.permutation(cards)[: max(2, cards // 2)].tolist()
        right = [c for c in range(cards) if c not in left]
        hidden = (frozenset((a, b) for a in left for b in right), port * rng.uniform(1.0, 1.8))
    fading = float(rng.uniform(0.002, 0.008)) if flavour == "fading" else 0.0
    return Box(send, take, switch, socket, uplink, hop, turns, together, weight, fading, hidden)


def topology_of(machine: Box) -> Topology:
    """What a paste would say of it: how it is wired, and no speeds."""
    builder = TopologyBuilder("box")
    for socket in sorted(set(machine.socket.tolist())):
        builder.node(f"socket{socket}", NodeKind.SOCKET)
    if len(set(machine.socket.tolist())) > 1:
        builder.connect("socket0", "socket1", LinkKind.SMP)
    for switch in sorted(set(machine.switch.tolist())):
        builder.node(f"switch{switch}", NodeKind.PCIE_SWITCH)
        (above,) = set(machine.socket[machine.switch == switch].tolist())
        builder.connect(f"switch{switch}", f"socket{above}", LinkKind.PCIE)
    for card, switch in enumerate(machine.switch.tolist()):
        builder.node(f"gpu{card}", NodeKind.GPU)
        builder.connect(f"gpu{card}", f"switch{switch}", LinkKind.PCIE)
    return builder.build()


def one_pattern(kind: str, cards: int, rng: np.random.Generator) -> Pattern:
    """A pattern of a kind, drawn at random."""
    names = [f"gpu{k}" for k in rng.permutation(cards)]
    n = int(rng.integers(3, cards + 1))
    if kind == "fan in":
        return fan_in(names[0], sorted(names[1:n]), SIZE)
    if kind == "fan out":
        return fan_out(names[0], sorted(names[1:n]), SIZE)
    if kind == "bundle":
        count = int(rng.integers(2, cards // 2 + 1))
        return bundle([(names[2 * k], names[2 * k + 1]) for k in range(count)], SIZE)
    if kind == "both ways":
        return both_ways(names[0], names[1], SIZE)
    if kind == "ring":
        return relay(names[:n], 1, SIZE)
    return peer(names[0], names[1], SIZE)


KINDS: Final = ("fan in", "fan out", "bundle", "both ways", "ring", "pair")


def measured(machine: Box, rng: np.random.Generator, kinds: Sequence[str]) -> list[Pattern]:
    """The table of pairs, most of it, and patterns of several flows."""
    cards = len(machine.send)
    lacking = float(rng.choice([0.0, 0.03, 0.1]))
    found = {
        (a, b): peer(f"gpu{a}", f"gpu{b}", SIZE)
        for a in range(cards)
        for b in range(cards)
        if a != b and rng.random() >= lacking
    }
    several: dict[str, Pattern] = {}
    for _ in range(int(rng.integers(5, 21))):
        pattern = one_pattern(str(rng.choice(kinds)), cards, rng)
        several[pattern.name] = pattern
    return [*found.values(), *several.values()]


@dataclass
class Tally:
    """What predictions of one kind came to."""

    narrow: list[bool] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    error: list[float] = field(default_factory=list)
    width: list[float] = field(default_factory=list)

    def add(self, narrow: bool, held: bool, error: float, width: float) -> None:
        """One prediction."""
        self.narrow.append(narrow)
        self.held.append(held)
        self.error.append(abs(error))
        self.width.append(width)

    def row(self) -> str:
        """In figures."""
        narrow, held = np.array(self.narrow), np.array(self.held)
        error, width = np.array(self.error), np.array(self.width)

        def part(which: np.ndarray) -> str:
            if not which.any():
                return f"{'-':>6} {'-':>6} {'-':>6} {'-':>6}"
            e = error[which]
            return (
                f"{held[which].mean():6.1%} {np.median(e):6.1%} {np.quantile(e, 0.95):6.1%} "
                f"{np.median(width[which]):6.2f}"
            )

        return f"{len(narrow):6} {narrow.mean():6.1%}  {part(narrow)}  {part(~narrow)}"


HEADER: Final = f"{'':32}  asked narrow   held median    p95  width    held median    p95  width"


def trials(
    flavours: Sequence[str], sizes: Sequence[int], seeds: Sequence[int]
) -> Iterator[tuple[str, int, int, Box, list[Pattern], Measurements]]:
    """Machines with what was measured of them, and what is asked."""
    for flavour in flavours:
        for cards in sizes:
            if (flavour, cards) in NO_BOX:
                continue
            for seed in seeds:
                rng = np.random.default_rng([seed, cards, FLAVOURS.index(flavour)])
                machine = box(flavour, cards, rng)
                noise = float(rng.choice([0.005, 0.01, 0.02, 0.03]))
                kinds = ("fan in", "fan out") if rng.random() < 0.6 else KINDS[:-1]
                patterns = measured(machine, rng, kinds)
                samples = Measurements(
                    samples=tuple(
                        Sample(
                            pattern=p,
                            seconds=machine.seconds(p) * float(np.exp(rng.normal(0, noise))),
                        )
                        for p in patterns
                    )
                )
                known = {p.name for p in patterns}
                asked = {
                    p.name: p
                    for kind in KINDS
                    for p in (one_pattern(kind, cards, rng) for _ in range(12))
                    if p.name not in known
                }
                if flavour == "turns":
                    # Several that take turns at once follow no closed form.
                    asked = {
                        name: p
                        for name, p in asked.items()
                        if len({f.destination for f in p.flows}) == 1 or len(p.flows) == 2
                    }
                pairs = [
                    peer(f"gpu{a}", f"gpu{b}", SIZE)
                    for a in range(cards)
                    for b in range(cards)
                    if a != b and f"gpu{a}->gpu{b}" not in known
                ]
                asked |= {p.name: p for p in pairs[:12]}
                yield flavour, cards, seed, machine, list(asked.values()), samples


def kind_of_asked(pattern: Pattern) -> str:
    """Which of :data:`KINDS`."""
    flows = pattern.flows
    sources, destinations = {f.source for f in flows}, {f.destination for f in flows}
    if len(flows) == 1:
        return "pair"
    if len(destinations) == 1:
        return "fan in"
    if len(sources) == 1:
        return "fan out"
    if not sources & destinations:
        return "bundle"
    return "both ways" if len(flows) == 2 and sources == destinations else "ring"


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a part, under a minute")
    parser.add_argument("--seed", type=int, default=314159)
    parser.add_argument("--machines", type=int, default=6, help="of each flavour and size")
    parser.add_argument("--flavours", nargs="+", default=FLAVOURS)
    parser.add_argument("--cards", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--missed", type=int, default=0, help="tell of so many that missed")
    options = parser.parse_args()
    count = 1 if options.smoke else options.machines
    rng = np.random.default_rng(options.seed)
    seeds = [int(s) for s in rng.integers(1 << 31, size=count)]
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, seed {options.seed}"
    )
    started = time.process_time()
    tallies: dict[tuple[str, str], Tally] = {}
    shown = 0
    sizes = [8] if options.smoke else options.cards
    for flavour, cards, seed, machine, asked, samples in trials(options.flavours, sizes, seeds):
        true = [machine.seconds(p) for p in asked]
        for given in (True, False):
            model = fit(samples, topology_of(machine) if given else None)
            how = "with" if given else "without"
            ends = set(model.topology.endpoints)
            for pattern, seconds in zip(asked, true, strict=True):
                if any({f.source, f.destination} - ends for f in pattern.flows):
                    continue
                (p,) = predict(model, [pattern])
                held = p.low_s <= seconds <= p.high_s
                width = p.high_s / p.low_s if p.low_s > 0 else np.inf
                said = (p.narrow, held, p.seconds / seconds - 1, width)
                for key in (flavour, kind_of_asked(pattern), f"{cards} cards", "all"):
                    tallies.setdefault((how, key), Tally()).add(*said)
                if not held and abs(said[2]) > 0.03 and shown < options.missed:
                    shown += 1
                    print(
                        f"{how} {flavour} {cards} cards seed {seed}: {pattern.name} true "
                        f"{pattern.total_bytes / seconds / 1e9:.3g}, said "
                        f"{p.throughput_Bps / 1e9:.3g} "
                        f"({pattern.total_bytes / p.high_s / 1e9:.3g} to "
                        f"{pattern.total_bytes / p.low_s / 1e9:.3g}), "
                        f"{'narrow, ' if p.narrow else ''}noise {model.noise:.2%}: {p.reason}"
                    )
    print(HEADER)
    for how in ("with", "without"):
        for key in (*options.flavours, *(f"{c} cards" for c in sizes), *KINDS, "all"):
            if (how, key) in tallies:
                print(f"{how + ': ' + key:32} {tallies[how, key].row()}", flush=True)
    print(f"{time.process_time() - started:.0f} s of processor")


if __name__ == "__main__":
    main()
