"""Which GPUs of the machine a tool's numbers stand for, where a paste shows how that was set.

CUDA numbers the devices of ``CUDA_VISIBLE_DEVICES`` from 0.  ``export`` holds until the next
one; a setting before a command holds for that command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["VisibleDevices"]

_SET: Final = re.compile(
    r"\bCUDA_VISIBLE_DEVICES[ \t]{0,4}=[ \t]{0,4}[\"']?"
    r"([0-9]{1,4}(?:,[ ]?[0-9]{1,4}){0,255})[\"']?(?=[\s;&)\"'`]|$)"
)
_GPU: Final = re.compile(r"(?:gpu)?([0-9]{1,6})")
_UNSET: Final = re.compile(r"\bunset[ \t]{1,8}CUDA_VISIBLE_DEVICES\b")
_COMMAND: Final = re.compile(
    r"(?:^|[\s/])(?:p2pBandwidthLatencyTest|simpleP2P|bandwidthTest|nvbandwidth|[a-z_]{2,20}_perf)"
    r"(?:_mpi)?(?=\s|$)"
)


@dataclass(slots=True)
class VisibleDevices:
    """What the lines so far say.

    Attributes
    ----------
    numbers
        Numbers of the machine's GPUs by the tool's; empty where nothing is said.
    exported
        Those that hold for every further command.
    """

    numbers: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()

    def read(self, line: str) -> bool:
        """Take what a line sets; whether it sets anything."""
        if _UNSET.search(line):
            self.numbers = self.exported = ()
            return True
        found = _SET.search(line)
        if found is None:
            if self.numbers != self.exported and _COMMAND.search(line):
                self.numbers = self.exported
            return False
        listed = tuple(str(int(n)) for n in found[1].split(","))
        self.numbers = listed if len(set(listed)) == len(listed) else ()
        command = _COMMAND.search(line, found.end())
        if command is None:
            self.exported = self.numbers
        return True

    def of(self, number: str) -> str:
        """The machine's number of a device.

        >>> seen = VisibleDevices()
        >>> seen.read("$ export CUDA_VISIBLE_DEVICES=2,3"), seen.of("1"), seen.of("7")
        (True, '3', '7')
        >>> seen.of("gpu1"), seen.of("cpu0")
        ('3', 'cpu0')
        """
        named = _GPU.fullmatch(number)
        if named is None:
            return number
        bare = int(named[1])
        return self.numbers[bare] if bare < len(self.numbers) else str(bare)
