"""Who should send what: from a fitted machine to caps, and from caps to a policy.

Every card wants two regions that all the others hold.  caps.json is all that a policy needs; every
rank that holds the same digest gives the same answer.  On the command line: `topocal caps`,
`topocal price`, `topocal assign`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import topocal as tc
from topocal.solve.caps_document import caps_digest
from topocal.topo.units import format_bytes, format_seconds

TABLES = Path(__file__).with_name("b70")


def wanted() -> list[tc.Request]:
    """Two regions for each card, each held by all the others."""
    cards = [f"gpu{k}" for k in range(8)]
    return [
        tc.Request(
            parameter=f"layer{k}",
            target=cards[k % 8],
            holders=tuple(card for card in cards if card != cards[k % 8]),
            origin=(0, 0),
            shape=(4096, 4096),
            element_bytes=2,
        )
        for k in range(16)
    ]


def main() -> None:
    """Write caps, read them as another rank would, choose, and compare with the first holder."""
    tables = [TABLES / "pairs.csv", TABLES / "fans.csv"]
    model = tc.fit(tc.read_tables(tables), tc.machines.b70())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "caps.json")
        tc.write_caps(model.caps(), path)
        caps = tc.read_caps(path)
        size, digest = format_bytes(path.stat().st_size), caps_digest(caps)[:15]
    print(f"caps.json is all that a rank needs: {size}, digest {digest}…\n")
    requests = wanted()
    print(
        f"{len(requests)} regions of 32 MiB, each wanted by one card and held by the other seven:"
    )
    number = {name: k for k, name in enumerate(caps.endpoints)}
    first = [(number[r.holders[0]], number[r.target], 4096 * 4096 * 2.0) for r in requests]
    naive = tc.price(caps, first)
    where = naive.busiest.label if naive.busiest else "nothing"
    answer = tc.assign(caps, requests)
    print(f"  the first holder of each   {format_seconds(naive.seconds):>8}   busy: {where}")
    busy = model.resources[answer.bottleneck].label if answer.bottleneck else "nothing"
    print(f"  topocal's choice           {format_seconds(answer.finish_s):>8}   busy: {busy}")
    print(f"  proven: no choice before   {format_seconds(answer.bound_s):>8}")
    senders = Counter(part.holder for _, parts in answer for part in parts)
    counts = ", ".join(f"{name} {n}" for name, n in sorted(senders.items()))
    print(f"\nparts by sender: {counts}")


if __name__ == "__main__":
    main()
