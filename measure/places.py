"""Where one process stands among all that measure: what torchrun, srun or a launcher of ours says.

Each tells every process its number and how many there are, and how they find each other:
torchrun in ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``MASTER_ADDR``, ``MASTER_PORT``; srun in
``SLURM_PROCID``, ``SLURM_NTASKS``, ``SLURM_LOCALID`` and the list of its nodes, whose first one
serves as the meeting point; :mod:`topocal.measure.launch` in a file that all of them have open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from topocal.topo.errors import InputError, one_line

__all__ = ["Place", "first_node", "place_from_environment"]

_PORTS: Final = range(20_000, 32_000)
"""Where a job of srun meets unless ``MASTER_PORT`` says: below the ports that Linux hands out
by itself (``ip_local_port_range`` begins at 32768)."""


def _promise_nothing(_: float) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One process among all.

    Attributes
    ----------
    rank, size
        Its number, and how many there are.
    local_rank, local_size
        The same on its own host; the first says which device it takes.
    meeting
        How they find each other, as ``torch.distributed.init_process_group`` takes it:
        ``env://`` or ``file:///…``.
    promise
        Says that the next sign of life comes within so many seconds; whoever watches ends
        everything when it does not.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    meeting: str
    promise: Callable[[float], None] = _promise_nothing


def place_from_environment(environment: Mapping[str, str] | None = None) -> Place | None:
    """This process's place by torchrun's or srun's variables; ``None`` where there are none.

    Under srun, ``MASTER_ADDR`` and ``MASTER_PORT`` are set where they are not.

    Raises
    ------
    InputError
        When the variables contradict each other.
    """
    given: Mapping[str, str] = os.environ if environment is None else environment
    if "RANK" in given and "WORLD_SIZE" in given:
        return _place(given, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    # One task is what a batch script itself is, which starts no others.
    if "SLURM_PROCID" in given and given.get("SLURM_NTASKS", "1") != "1":
        place = _place(
            given, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"
        )
        if environment is None:
            os.environ.setdefault("MASTER_ADDR", _slurm_address(given))
            job = _number(given, "SLURM_JOB_ID", 0) + _number(given, "SLURM_STEP_ID", 0)
            os.environ.setdefault("MASTER_PORT", str(_PORTS[job % len(_PORTS)]))
        return place
    return None


def _place(given: Mapping[str, str], rank: str, size: str, local: str, local_size: str) -> Place:
    number, count = _number(given, rank, 0), _number(given, size, 1)
    if not 0 <= number < count:
        raise InputError(
            f"{rank} is {number} and {size} is {count}",
            remedy="start the processes with torchrun or srun, or use --spawn",
        )
    return Place(
        rank=number,
        size=count,
        local_rank=_number(given, local, 0),
        local_size=_number(given, local_size, 1),
        meeting="env://",
    )


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    # Slurm gives some of them as lists: "4(x2)".
    match = re.match(r"[0-9]{1,9}(?![0-9])", text)
    if match is None:
        raise InputError(f"{name} is {one_line(text)!r}", remedy="set it to a number, or unset it")
    return int(match[0])


def _slurm_address(given: Mapping[str, str]) -> str:
    nodes = given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST", "")
    if not nodes or given.get("SLURM_STEP_NUM_NODES", given.get("SLURM_NNODES")) == "1":
        return "127.0.0.1"
    return first_node(nodes)


def first_node(nodes: str) -> str:
    """The first name in Slurm's short form of a list of nodes.

    >>> first_node("gpu[03-07,12],login1")
    'gpu03'
    >>> first_node("a1,a2")
    'a1'
    """
    match = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\]([^\[,]*))?", nodes)
    assert match is not None  # Every part of it may be empty.
    return match[1] + (match[2] or "") + (match[3] or "")
