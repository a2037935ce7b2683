"""How ranks meet, over a store that only pretends: where rank 0 listens, and who is missing."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from real_messages import free_port

from topocal.measure.meeting import meet
from topocal.measure.places import Place
from topocal.topo.errors import InputError, MeasurementError


def place(rank: int, size: int = 3, *, meeting: str = "env://", local_size: int = 3) -> Place:
    return Place(rank=rank, size=size, local_rank=rank, local_size=local_size, meeting=meeting)


class Store:
    """What all have said; ``others`` are there from the start."""

    def __init__(self, others: Sequence[int], word: str | None = None) -> None:
        self.content = {f"topocal/here/{r}": "1" for r in others}
        if word is not None:
            self.content["topocal/missing"] = word

    def set_timeout(self, limit: timedelta) -> None:
        pass

    def set(self, key: str, value: str) -> None:
        self.content[key] = value

    def get(self, key: str) -> bytes:
        return self.content[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(k in self.content for k in keys)


class Dist:
    """torch.distributed as far as it is asked for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.given: dict[str, Any] = {}

    def FileStore(self, path: str, size: int) -> Store:  # As torch calls it.
        self.given = {"path": path, "size": size}
        return self.store

    def TCPStore(self, *_: Any, **given: Any) -> Store:  # As torch calls it.
        self.given = given
        return self.store


def of_file(rank: int, store: Store, limit_s: float = 0.01) -> Any:
    return meet(
        Dist(store), place(rank, meeting="file:///proc/self/fd/9"), limit_s, ("a", "b", "c")
    )


def test_all_are_there() -> None:
    store = Store([1, 2])
    assert of_file(0, store) is store
    assert store.get("topocal/missing") == b""
    assert of_file(1, store) is store


@pytest.mark.parametrize(
    ("rank", "store", "words"),
    [
        (0, Store([2]), r"^rank 1 \(b\) did not come within 10 ms"),
        (0, Store([]), r"^rank 1 \(b\), rank 2 \(c\) did not come"),
        (2, Store([0], "1"), r"^rank 1 \(b\) did not come"),
        # Rank 0 says nothing at all.
        (2, Store([1]), r"^rank 0 \(a\) did not come"),
        (2, Store([0, 1]), r"^rank 0 \(a\) did not come"),
    ],
    ids=["one", "two", "by-the-first", "the-first", "the-first-hangs"],
)
def test_who_is_missing(rank: int, store: Store, words: str) -> None:
    with pytest.raises(MeasurementError, match=words) as caught:
        of_file(rank, store)
    assert caught.value.others_fault


def test_of_many_a_few_are_named() -> None:
    with pytest.raises(MeasurementError, match=r"rank 3, rank 4 and 3 more did not come"):
        meet(Dist(Store([])), place(0, 8, meeting="file:///x"), 0.0)


@pytest.mark.parametrize(
    ("host", "local_size", "listens"),
    [
        ("127.0.0.1", 1, True),
        ("localhost", 3, True),
        # Others could not reach it.
        ("localhost", 1, False),
        # An address of documentation (RFC 5737), which no host has.
        ("192.0.2.1", 1, False),
    ],
)
def test_where_the_first_listens(
    monkeypatch: pytest.MonkeyPatch, host: str, local_size: int, listens: bool
) -> None:
    port = free_port()
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setenv("MASTER_PORT", str(port))
    dist = Dist(Store([1, 2]))
    meet(dist, place(0, local_size=local_size), 1.0)
    descriptor = dist.given["master_listen_fd"]
    assert (descriptor is not None) == listens
    if descriptor is not None:
        with socket.socket(fileno=descriptor) as listening:
            assert listening.getsockname()[1] == port
            assert listening.getsockname()[0] in ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("host", "port"),
    [("", "1"), ("h", ""), ("h", "0"), ("h", "65536"), ("h", "9" * 5000), ("h", "²")],
)
def test_nowhere_to_meet(monkeypatch: pytest.MonkeyPatch, host: str, port: str) -> None:
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setenv("MASTER_PORT", port)
    with pytest.raises(InputError, match="do not say where the ranks meet"):
        meet(Dist(Store([])), place(0), 1.0)


def test_a_host_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # Not asked for: a resolver may take its time, or know every name.
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")  # RFC 2606
    monkeypatch.setenv("MASTER_PORT", "29500")
    words = r"nobody knows the host no-such-host\.invalid.*MASTER_ADDR"
    with pytest.raises(MeasurementError, match=words):
        meet(Dist(Store([])), place(0), 1.0)
