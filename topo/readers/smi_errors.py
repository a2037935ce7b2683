"""What management tools print in place of their output, so that a message can say so."""

from __future__ import annotations

import re
from typing import Final

from topocal.topo.errors import FormatError, Where, one_line

__all__ = ["looks_like_tool_error", "refuse_tool_error"]

_ERRORS: Final = (
    (
        re.compile(
            r"[Uu]sage: (?:\S{0,200}/)?(?:nvidia-smi|xpu-smi|rocm-smi|amd-smi|numactl|lscpu)\b"
        ),
        "the tool printed its help",
        "run it with the option, such as nvidia-smi topo -m or xpu-smi topology -m",
    ),
    (
        re.compile(r'Option "?-[a-z0-9]{1,8}"? is missing its value'),
        "this driver's nvidia-smi lacks the option",
        "take it on Linux or with a newer driver, or give nvidia-smi -q",
    ),
    (
        re.compile(
            r"(?:Invalid combination of input arguments|Unrecognized option|is not recognized"
            r" as an internal or external command|unrecognized arguments:|invalid choice:)"
        ),
        "the tool does not know what it was asked",
        "check the command line, or take it with a newer tool",
    ),
    (
        re.compile(
            r"NVIDIA-SMI has failed|Failed to initialize NVML|couldn't communicate with the "
            r"NVIDIA driver|Unable to determine the device handle"
        ),
        "the driver did not answer",
        "repair the driver, then take the output again",
    ),
    (
        re.compile(r"No devices were found|No supported devices? found|No AMD GPUs detected"),
        "the tool found no device",
        "take it on the machine that has the GPUs",
    ),
    (
        re.compile(
            r"(?:nvidia-smi|rocm-smi|amd-smi|xpu-smi|numactl|lscpu): (?:command )?not found"
        ),
        "the tool is not installed",
        "take it where the driver is installed",
    ),
)

_LONGEST: Final = 4_000
"""Characters; an error is short, and a log that merely mentions one is not an error."""


def looks_like_tool_error(text: str) -> bool:
    """Whether a text is nothing but a management tool's error message."""
    return len(text) <= _LONGEST and any(pattern.search(text) for pattern, _, _ in _ERRORS)


def refuse_tool_error(text: str, *, file: str) -> None:
    """Raise an error that says what a tool's error message means.

    Raises
    ------
    FormatError
        When the text has one.
    """
    for pattern, meaning, remedy in _ERRORS:
        found = pattern.search(text[:_LONGEST])
        if found:
            number = text.count("\n", 0, found.start()) + 1
            line = text.split("\n", number)[number - 1]
            raise FormatError(
                f"is a message, not an output: {one_line(line)!r}: {meaning}",
                where=Where(file=file, line=number),
                remedy=remedy,
            )
