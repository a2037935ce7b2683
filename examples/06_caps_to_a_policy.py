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
        print(f"caps.json: {format_bytes(path.stat().st_size)}, digest {caps_digest(caps)[:15]}…")
    requests = wanted()
    answer = tc.assign(caps, requests)
    senders = Counter(part.holder for _, parts in answer for part in parts)
    print("senders: " + ", ".join(f"{name} {n}" for name, n in sorted(senders.items())))
    print(
        f"finish {format_seconds(answer.finish_s)}; no answer finishes before "
        f"{format_seconds(answer.bound_s)}; busiest: {answer.bottleneck}"
    )
    number = {name: k for k, name in enumerate(caps.endpoints)}
    first = [(number[r.holders[0]], number[r.target], 4096 * 4096 * 2.0) for r in requests]
    naive = tc.price(caps, first)
    where = naive.busiest.label if naive.busiest else "nothing"
    print(f"the first holder of each: {format_seconds(naive.seconds)} on {where}")


if __name__ == "__main__":
    main()
