"""How ranks find each other, and who did not come.

All ranks share a store: of a launcher of ours one in memory, which all its children have
open; of torchrun its own; else one that rank 0 serves at ``MASTER_ADDR`` and nowhere else
(torch by itself would listen at every address of the host).  Everybody says in it that it is
there, and waits for the others: who is missing when time is up is named.

torch is handed over by who has it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from topocal.measure.places import Place
from topocal.measure.waits import complaint, first_line
from topocal.topo.errors import InputError, MeasurementError, TopocalError, one_line
from topocal.topo.units import format_seconds

__all__ = ["meet"]

_FIRST_LOOK_S: Final = 1e-3
_LAST_LOOK_S: Final = 0.2
"""How often is looked whether all are there: less and less often."""

_GRACE_S: Final = 2.0
"""How much longer than rank 0 itself others wait for its word."""

_MOST_NAMED: Final = 4

_HERE: Final = "topocal/here/{}"
_MISSING: Final = "topocal/missing"
"""Keys in the store: that a rank has come, and which ones have not."""


def meet(dist: Any, place: Place, limit_s: float, names: Sequence[str] | None = None) -> Any:
    """The store of all ranks, once all of them are there.

    Parameters
    ----------
    dist
        The module ``torch.distributed``.
    limit_s
        How long is waited for the others.
    names
        Of the ranks, for messages.

    Raises
    ------
    InputError
        When the environment does not say where to meet.
    MeasurementError
        When rank 0 cannot listen, or some rank does not come; it is named.
    """
    until = time.monotonic() + limit_s
    try:
        store = _store(dist, place, limit_s, until)
        store.set(_HERE.format(place.rank), "1")
        missing = _count(store, place, until) if place.rank == 0 else _hear(store, place, until)
        if missing and place.rank == 0:
            # Who asks a store that has gone gets pages of torch's own stack.
            time.sleep(2 * _LAST_LOOK_S)
    except TopocalError:
        raise
    except (RuntimeError, ValueError, OSError) as error:
        raise MeasurementError(
            f"rank {place.rank} of {place.size} did not meet the others: {first_line(error)}",
            remedy="check that every rank was started, and MASTER_ADDR and MASTER_PORT",
        ) from error
    if missing:
        raise complaint(f"{_who(missing, names)} did not come within {format_seconds(limit_s)}")
    return store


def _count(store: Any, place: Place, until: float) -> list[int]:
    """Who is missing when time is up, as rank 0 finds and tells."""
    missing = list(range(1, place.size))
    for _ in _looks(until):
        while missing and store.check([_HERE.format(missing[-1])]):
            missing.pop()
        if not missing:
            break
    missing = [r for r in missing if not store.check([_HERE.format(r)])]
    store.set(_MISSING, " ".join(map(str, missing)))
    return missing


def _hear(store: Any, place: Place, until: float) -> list[int]:
    """Who is missing by what rank 0 says; rank 0, where it says nothing."""
    for _ in _looks(until + _GRACE_S):
        if store.check([_MISSING]):
            return [int(r) for r in store.get(_MISSING).split()]
    return [r for r in range(place.size) if not store.check([_HERE.format(r)])] or [0]


def _looks(until: float) -> Iterator[None]:
    """Moments to look, until the time is up."""
    pause = _FIRST_LOOK_S
    while True:
        yield
        if time.monotonic() > until:
            return
        time.sleep(pause)
        pause = min(2 * pause, _LAST_LOOK_S)


def _who(ranks: Sequence[int], names: Sequence[str] | None) -> str:
    shown = [
        f"rank {r}" if names is None or r >= len(names) else f"rank {r} ({names[r]})"
        for r in ranks[:_MOST_NAMED]
    ]
    more = len(ranks) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _store(dist: Any, place: Place, limit_s: float, until: float) -> Any:
    limit = timedelta(seconds=limit_s)
    if place.meeting.startswith("file://"):
        store = dist.FileStore(place.meeting.removeprefix("file://"), place.size)
        store.set_timeout(limit)
        return store
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return next(dist.rendezvous(place.meeting, place.rank, place.size, timeout=limit))[0]
    host, port = _address()
    listening = None
    if place.rank == 0:
        listening = _listen(place, host, port)
    else:
        _await_port(place, host, port, limit_s, until)
    return dist.TCPStore(
        host,
        port,
        place.size,
        place.rank == 0,
        timeout=limit,
        wait_for_workers=False,
        master_listen_fd=listening,
    )


def _address() -> tuple[str, int]:
    host, text = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not host or not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 1 << 16):
        raise InputError(
            "MASTER_ADDR and MASTER_PORT do not say where the ranks meet",
            remedy="set them to rank 0's host and a free port, the same everywhere",
        )
    return host, int(text)


def _listen(place: Place, host: str, port: int) -> int | None:
    """A descriptor that listens at one address.

    ``None`` where that would not do, and torch is to listen at all of them: the address is not
    one of this host's, as behind a translation of addresses, or it is the loopback that many
    hosts call themselves by (``127.0.1.1``), which others cannot reach.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise MeasurementError(
            f"nobody knows the host {one_line(host)}, where rank 0 is to listen (MASTER_ADDR, or "
            "the first node of the Slurm step)",
            remedy="set MASTER_ADDR to a name or address of rank 0's host that all others know",
        ) from error
    for family, _, _, _, address in found:
        is_inside = ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
        if is_inside and str(address[0]) != host and place.local_size < place.size:
            return None
        try:
            return socket.create_server(address, family=family, backlog=1024).detach()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise MeasurementError(
                    f"rank 0 cannot listen at {host}:{port}: address already in use",
                    remedy="set MASTER_PORT to a free port, the same everywhere",
                ) from error
    return None


def _await_port(place: Place, host: str, port: int, limit_s: float, until: float) -> None:
    """Until rank 0 listens; torch's own wait for that says a lot on standard error."""
    why = ""
    for _ in _looks(until):
        try:
            with socket.create_connection((host, port), timeout=max(1.0, limit_s / 10)):
                return
        except OSError as error:
            why = error.strerror or first_line(error)
    raise complaint(
        f"rank {place.rank} did not reach rank 0 at {host}:{port} within "
        f"{format_seconds(limit_s)}: {why}"
    )
