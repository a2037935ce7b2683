"""Who sends what: what answers take when simulated, beside other policies and the bound.

Weight syncs from trainers with ZeRO-3 shards in 2 to 8 replicas to tensor-parallel rollouts,
on other cards or the same, of a dense model with grouped-query attention (hidden 4096,
feed-forward 11008 or 14336, bfloat16).  The answers come from caps; their flows, one for each
pair, are then run by the fluid simulator on the machine's topology, as are those of the
other policies.  Figures are relative to the bound, which no answer can undercut.

The published machine is fitted to its published figures.  The others have their specified
capacities, and once more with every capacity drawn around them (log-normal, 20 %); one of
them once more with receivers that serve one sender at a time.

    python benchmarks/policy.py            everything, minutes
    python benchmarks/policy.py --smoke    a part of each, under 50 s
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from topocal.published import tell
from topocal.solve.model import Model
from topocal.solve.nominal_model import nominal_model
from topocal.solve.pair_costs import PairCosts
from topocal.solve.policy.answer import Assignment
from topocal.solve.policy.assign import assign
from topocal.solve.policy.baselines import BASELINES, baseline
from topocal.solve.policy.requests import Request
from topocal.solve.policy.table import table_of
from topocal.topo.fabric import plain_switch
from topocal.topo.flow import Flow
from topocal.topo.fluid import simulate
from topocal.topo.machines.catalogue import build_machine
from topocal.topo.resource import Resource, Sharing, Use
from topocal.topo.topology import Topology

_SPREAD = 0.2
_SEED = 20261129
_WITH_SPLITS, _WITHOUT = 0.03, 0.10
"""How far above the bound answers are meant to be at most, with and without splits."""

_LAYER = (
    ("q_proj", 4096, 4096, 0),
    ("k_proj", 1024, 4096, 0),
    ("v_proj", 1024, 4096, 0),
    ("o_proj", 4096, 4096, 1),
    ("gate_proj", 11008, 4096, 0),
    ("up_proj", 11008, 4096, 0),
    ("down_proj", 4096, 11008, 1),
    ("input_norm", 4096, 0, None),
    ("post_norm", 4096, 0, None),
)
_ENDS = (("embed", 32000, 4096, 0), ("head", 32000, 4096, 0), ("norm", 4096, 0, None))


@dataclass(frozen=True)
class Sync:
    """Trainer cards with so many replicas of every shard, and rollouts of ``tp`` cards each."""

    trainers: Sequence[int]
    replicas: int
    rollouts: Sequence[int]
    tp: int
    layers: int

    @property
    def name(self) -> str:
        """In a few words."""
        same = "same cards" if set(self.trainers) & set(self.rollouts) else "other cards"
        same += ", crossed" if self.rollouts[0] > self.rollouts[-1] else ""
        count = f"{len(self.trainers)}->{len(self.rollouts)}"
        return f"{count} {same}, replicas {self.replicas}, tp {self.tp}"

    def requests(self, cards: Sequence[str]) -> list[Request]:
        """Every region that a rollout card wants: its block's part of each shard."""
        shards = len(self.trainers) // self.replicas
        holders = [
            tuple(cards[self.trainers[s + k * shards]] for k in range(self.replicas))
            for s in range(shards)
        ]
        return list(self._regions(cards, holders))

    def _regions(
        self, cards: Sequence[str], holders: Sequence[tuple[str, ...]]
    ) -> Iterator[Request]:
        shards = len(holders)
        table = [
            (f"layers.{k}.{name}", *rest) for k in range(self.layers) for name, *rest in _LAYER
        ]
        for name, rows, columns, axis in [*table, *_ENDS]:
            for number, card in enumerate(self.rollouts):
                block = number % self.tp
                top, bottom, left, right = 0, rows, 0, columns
                if axis == 0:
                    top, bottom = rows * block // self.tp, rows * (block + 1) // self.tp
                elif axis == 1:
                    left, right = columns * block // self.tp, columns * (block + 1) // self.tp
                for shard in range(shards):
                    low = max(top, rows * shard // shards)
                    high = min(bottom, rows * (shard + 1) // shards)
                    if low < high:
                        yield Request(
                            parameter=name,
                            target=cards[card],
                            holders=holders[shard],
                            origin=(low, left) if columns else (low,),
                            shape=(high - low, right - left) if columns else (high - low,),
                            element_bytes=2,
                        )


@dataclass(frozen=True)
class Row:
    """One sync on one machine: seconds by policy, and what the answers cost."""

    machine: str
    sync: Sync
    split: Assignment
    whole: Assignment
    simulated_s: dict[str, float]
    cpu_s: tuple[float, float]

    def above(self, name: str) -> float:
        """How far above the bound a policy's simulated finish is."""
        return self.simulated_s[name] / self.split.bound_s - 1.0


def machines() -> Iterator[tuple[str, Model]]:
    """Every machine with a model of it."""
    yield "b70, fitted", tell().model
    rng = np.random.default_rng(_SEED)
    for name, topology in (
        ("nvswitch", build_machine("dgx-h100")),
        ("2x8", plain_switch([build_machine("dgx-h100")] * 2)),
        ("8x8", build_machine("rail-pod")),
    ):
        yield name, nominal_model(topology)
        drawn = _drawn(topology, rng)
        yield f"{name}, drawn", nominal_model(drawn)
        if name == "2x8":
            yield f"{name}, by turns", nominal_model(_by_turns(drawn))


def _drawn(topology: Topology, rng: np.random.Generator) -> Topology:
    """Every specified capacity as some machine might have it."""
    return topology.with_resources(
        replace(one, nominal_Bps=one.nominal_Bps * float(np.exp(rng.normal(0.0, _SPREAD))))
        for one in topology.resources.values()
        if one.nominal_Bps is not None
    )


def _by_turns(topology: Topology) -> Topology:
    """Every card receives from one sender at a time."""
    engines = {card: f"{card}.receiver" for card in topology.accelerators}
    return topology.with_resources(
        (Resource(id=name, sharing=Sharing.TIME_SHARED) for name in engines.values()),
        [Use(resource=name, destinations=(card,)) for card, name in engines.items()],
    )


def syncs(cards: int, *, smoke: bool) -> Iterator[Sync]:
    """Of a thousand to a hundred thousand requests, as many as a machine's size makes natural."""
    half, every = cards // 2, range(cards)
    low, high = range(half), range(half, cards)
    even, odd = range(0, cards, 2), range(1, cards, 2)
    layers = {8: 32, 16: 16, 64: 2}[cards] // (4 if smoke and cards < 64 else 1)
    yield Sync(low, 2, high, 4, layers)
    yield Sync(every, 4, every, 4, layers)
    if smoke:
        return
    yield Sync(every, 2, every[::-1], 4, layers)
    yield Sync(every, 4, every[::-1], 2, layers)
    yield Sync(high, 4, low, 2, layers)
    yield Sync(every, 2, every, 8, layers)
    yield Sync(every, 8, every, 4, layers)
    yield Sync(even, 4, odd, 4, layers)
    if cards == 64:
        yield Sync(every, 4, every, 8, 16)
        yield Sync(low, 8, high, 8, 32)


def run(name: str, model: Model, sync: Sync) -> Row:
    """Answer, simulate, and compare."""
    caps = model.caps()
    asked = sync.requests(caps.endpoints)
    found, took = [], []
    for split in (True, False):
        begin = time.process_time()
        found.append(assign(caps, asked, split=split))
        took.append(time.process_time() - begin)
    simulated = {
        "split": _simulated(model, found[0].bytes_of_pair, caps.endpoints),
        "whole": _simulated(model, found[1].bytes_of_pair, caps.endpoints),
    }
    costs = PairCosts.of(caps)
    table = table_of(costs, asked)
    for policy in BASELINES:
        holder = baseline(policy, costs, table)
        moves = holder != table.target
        pair = (holder * len(caps.endpoints) + table.target)[moves]
        size = table.size_bytes[moves].astype(np.float64)
        moved = np.bincount(pair, size, len(caps.endpoints) ** 2)
        simulated[policy] = _simulated(model, moved, caps.endpoints)
    return Row(name, sync, found[0], found[1], simulated, (took[0], took[1]))


def _simulated(model: Model, moved: NDArray[np.float64], ends: Sequence[str]) -> float:
    """Finish by the simulator on the machine itself, one flow for each pair."""
    flows = [
        Flow(source=ends[p // len(ends)], destination=ends[p % len(ends)], size_bytes=moved[p])
        for p in np.flatnonzero(moved).tolist()
    ]
    return simulate(model.topology, flows, model.capacities).seconds if flows else 0.0


def print_row(row: Row) -> None:
    """One line: gaps to the bound in per cent, or how many times it."""
    shown = []
    for name in ("split", "whole", *BASELINES):
        above = row.above(name)
        shown.append(f"{above:>10.1%}" if above < 1 else f"{1 + above:>9.1f}x")
    print(
        f"{row.machine:16} {row.sync.name:46} {len(row.split.requests):6d} "
        f"{len(row.split.part_row) - len(row.split.requests):6d}"
        + "".join(shown)
        + f"   {row.split.bound_s * 1e3:8.2f} {row.cpu_s[0]:6.2f} {row.cpu_s[1]:6.2f}",
        flush=True,
    )


def each_a_flow(known: Sequence[tuple[str, Model]], *, smoke: bool) -> None:
    """The same where every region, or part, is a flow of its own: shares go by their number."""
    print("\nEvery region a flow of its own, above the bound")
    for name, model in known:
        caps = model.caps()
        if len(caps.endpoints) > 16 or (smoke and "drawn" not in name):
            continue
        costs, ends = PairCosts.of(caps), caps.endpoints
        gaps = []
        for sync in list(syncs(len(ends), smoke=False))[: 2 if smoke else 6]:
            asked = replace(sync, layers=max(4, sync.layers // 4)).requests(ends)
            answer = assign(caps, asked)
            if answer.bound_s <= 0:
                continue
            flows = [
                (part.holder, request.target, math.prod(part.shape) * request.element_bytes)
                for request, parts in answer
                for part in parts
            ]
            table = table_of(costs, asked)
            found = [_apart(model, flows)]
            for policy in BASELINES:
                holders = baseline(policy, costs, table).tolist()
                rows = zip(holders, table.target.tolist(), table.size_bytes.tolist(), strict=True)
                found.append(_apart(model, [(ends[h], ends[t], size) for h, t, size in rows]))
            gaps.append(np.array(found) / answer.bound_s - 1.0)
        all_of = np.array(gaps)
        ahead = all_of[:, 0] - all_of[:, 1:].min(axis=1)
        print(
            f"  {name:16} {len(gaps)} syncs: ours {all_of[:, 0].max():+.1%} at most; "
            f"behind the best other {max(0.0, ahead.max()):.1%} at most; per-request "
            f"{all_of[:, 4].max():+.1%}, least-loaded {all_of[:, 2].max():+.1%} at most"
        )


def _apart(model: Model, flows: Sequence[tuple[str, str, int]]) -> float:
    """Finish of flows that are not merged by pair."""
    moving = [
        Flow(source=source, destination=target, size_bytes=float(size))
        for source, target, size in flows
        if source != target
    ]
    return simulate(model.topology, moving, model.capacities).seconds if moving else 0.0


def timing(model: Model, *, smoke: bool) -> None:
    """Seconds of one core by number of requests, on the largest machine."""
    print("\nCPU seconds of one process, everything but reading files (8x8, drawn)")
    caps = model.caps()
    cases = [
        Sync(range(32), 4, range(32, 64), 8, 10),
        Sync(range(64), 4, range(64), 4, 2),
        Sync(range(64), 4, range(64), 4, 24),
    ]
    for sync in cases[: 2 if smoke else 3]:
        asked = sync.requests(caps.endpoints)
        begin = time.process_time()
        answer = assign(caps, asked)
        middle = time.process_time()
        digest = answer.digest
        end = time.process_time()
        print(
            f"  {len(asked):6d} requests: assign {middle - begin:5.2f}, "
            f"digest {end - middle:4.2f}; {answer.gap:+.2%} of the bound; {digest[:19]}"
        )


def verdict(rows: Sequence[Row]) -> list[str]:
    """What is missed, a line each; and how far off at worst."""
    missed = []
    for name, limit in (("split", _WITH_SPLITS), ("whole", _WITHOUT)):
        gaps = np.array([row.above(name) for row in rows])
        print(
            f"{name}: median {np.median(gaps):+.2%}, largest {gaps.max():+.2%} above the bound; "
            f"{int((gaps <= limit).sum())} of {len(rows)} within {limit:.0%}"
        )
        missed += [
            f"{row.machine}, {row.sync.name}: {name} {row.above(name):+.1%} above the bound"
            for row in rows
            if row.above(name) > limit
        ]
    for row in rows:
        best = min(BASELINES, key=lambda name: row.simulated_s[name])
        for ours in ("split", "whole"):
            if row.simulated_s[ours] > row.simulated_s[best] * (1 + 1e-6):
                missed.append(f"SLOWER than {best}: {row.machine}, {row.sync.name}, {ours}")
    best = np.array([min(r.simulated_s[b] for b in list(BASELINES)[:4]) for r in rows])
    ours = np.array([row.simulated_s["split"] for row in rows])
    print(
        f"the best of the four other policies takes {np.median(best / ours):.2f} times as long "
        f"(median), {np.max(best / ours):.2f} at most"
    )
    return missed


def main() -> None:
    """Run everything, or the smoke part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="a part of each, under 50 s")
    smoke = bool(parser.parse_args().smoke)
    begin = time.perf_counter()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    known = list(machines())
    first = Sync(range(4), 2, range(4, 8), 4, 1)
    assign(known[0][1].caps(), first.requests(known[0][1].caps().endpoints))
    print(f"models and first call, compiled or cached: {time.perf_counter() - begin:.1f} s\n")
    print(
        f"{'machine':16} {'sync':46} {'asked':>6} {'cuts':>6}"
        + "".join(f"{name:>13}"[-10 if len(name) < 10 else -13 :] for name in ("split", "whole"))
        + "".join(f"{name[:9]:>10}" for name in BASELINES)
        + f"   {'bound ms':>8} {'CPU s':>6} {'whole':>6}"
    )
    rows = []
    for name, model in known:
        cards = len(model.caps().endpoints)
        if smoke and name in ("nvswitch", "8x8"):
            continue
        for sync in syncs(cards, smoke=smoke):
            row = run(name, model, sync)
            if row.split.bound_s <= 0:
                continue
            rows.append(row)
            print_row(row)
    print()
    missed = verdict(rows)
    for line in missed:
        print(f"  {line}")
    each_a_flow(known, smoke=smoke)
    timing(known[-1][1], smoke=smoke)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory {peak:.0f} MB; {time.perf_counter() - begin:.0f} s in all")
    if any(line.startswith("SLOWER") for line in missed):
        raise SystemExit("slower than another policy")


if __name__ == "__main__":
    main()
