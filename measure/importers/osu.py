"""OSU micro-benchmarks: ``osu_bw``, ``osu_bibw``, ``osu_latency``, ``osu_mbw_mr``.

What the figures are (c/mpi/pt2pt and c/util of the OSU micro-benchmarks): MB is 10**6 bytes.
``osu_bw`` keeps a window of messages under way from rank 0 to rank 1, ``osu_bibw`` in both
directions at once, of which it prints the sum; ``osu_latency`` is half of a round trip.
``osu_mbw_mr`` with n pairs is the total of n flows at once, rank i to rank i + n.  A put
moves bytes from rank 0, a get to it.  Collectives are readings.

Where the ranks are is not printed.  A line above that names a pair of devices is believed;
buffers on devices of one node are taken to be those of ``gpu0`` and ``gpu1``, where each
rank takes the device of its own number, and a note says so; else the ends are ``rank0`` and
``rank1``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from topocal.measure.importers.figures import in_order, to_number
from topocal.measure.importers.imported import Draft, Imported, Latency, Reading
from topocal.measure.importers.importer import Importer
from topocal.measure.importers.sweeps import only_start_up, sweep_samples
from topocal.measure.samples import Sample
from topocal.topo.readers.paste import plain_lines
from topocal.topo.units import format_bytes

__all__ = ["OSU", "looks_like_osu", "parse_osu"]

TITLE: Final = "OSU micro-benchmarks"

_TITLE: Final = re.compile(
    r"#\s{0,4}OSU\s{1,4}([A-Za-z]{2,12})(?:-([A-Z_]{2,16}))?\s{1,4}(.{1,80}?)\s{1,4}Test\b"
    r"(?:\s{1,4}v([0-9.]{1,10}))?"
)
_PAIRS: Final = re.compile(r"#\s{0,4}\[\s{0,4}pairs:\s{0,4}([0-9]{1,6})\s{0,4}\]")
_BUFFERS: Final = re.compile(
    r"#\s{0,4}Send Buffer on (\w{1,20}).{0,20}? and Receive Buffer on (\w{1,20})", re.I
)
_COMMAND: Final = re.compile(r"\bosu_(?:bw|bibw|latency|mbw_mr|\w{2,30})\b(.{0,400})")
_ON_DEVICE: Final = re.compile(r"\s([DMH])\s{1,4}([DMH])(?:\s|$)")
_SEVERAL_NODES: Final = re.compile(
    r"(?:^|\s)(?:-N\s{0,2}(?!1\b)[0-9]|--nodes?[= ](?!1\b)[0-9]|--?bynode|--map-by[= ]\S{0,20}node"
    r"|--?host(?:s|file|list)?[= ]\S{0,80},|--?hostfile|-f\s{1,4}hosts?|-(?:ppn|npernode)[= ]1\b)"
)
_NAMED: Final = re.compile(
    r"\b(?:pair|gpus?|devices?|gcds?|tiles?)\s{0,4}[:=#(]?\s{0,4}([0-9]{1,4})\s{0,4}"
    r"(?:,|-+>?|<->|to|and|:)\s{0,4}(?:gpu|device)?\s{0,4}([0-9]{1,4})\b",
    re.I,
)
_ROW: Final = re.compile(
    r"(?:[^#]{0,60}?[\s>:|\]])??\s{0,40}([0-9]{1,12})\s{1,60}([0-9]{1,12}(?:\.[0-9]{1,12})?)"
    r"(?:\s.{0,200})?"
)
_LOOK_BACK: Final = 12
_MOST_PAIRS: Final = 64
_MB: Final = 1e6
_US: Final = 1e-6


@dataclass(slots=True)
class _Section:
    """One run of one benchmark."""

    title: str
    line: int
    device: bool
    named: tuple[str, str] | None
    apart: bool
    pairs: int = 1
    rows: list[tuple[int, float, int]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """``bw``, ``bibw``, ``latency``, ``several`` or nothing for a collective."""
        title = self.title.lower().replace("_", " ")
        if "multiple bandwidth" in title:
            return "several" if self.pairs > 1 else "bw"
        if "bi-directional" in title or "bibandwidth" in title or "bi-bandwidth" in title:
            return "bibw"
        if title.endswith("bandwidth"):
            return "bw"
        plain = {"latency", "persistent latency", "one sided put latency", "put latency"}
        if title in plain or (title.startswith(("put", "get")) and "latency" in title):
            return "latency"
        return ""

    @property
    def backwards(self) -> bool:
        """Whether bytes come to rank 0: a get."""
        return re.match(r"(?:one sided )?get\b", self.title.lower()) is not None


def looks_like_osu(text: str) -> bool:
    """Whether a text has the title of one of the benchmarks."""
    return _TITLE.search(text) is not None


def parse_osu(text: str, *, file: str) -> Imported:
    """The runs in one text.

    Raises
    ------
    FormatError
        When there is none.
    InputError
        When a figure is no rate.
    """
    draft = Draft(kind="osu", title=TITLE, file=file)
    assumed = False
    groups: dict[tuple[str, str, str, str], list[Sample]] = {}
    latencies: dict[tuple[str, str, str, str], list[Latency]] = {}
    readings: list[Reading] = []
    for section in _sections(plain_lines(text)):
        ends, guessed = _ends(section)
        if not section.kind:
            readings += _of_collective(draft, section)
            continue
        if section.kind == "several":
            found, kept = _several(draft, section)
            groups.setdefault(("several", "", "", ""), []).extend(found)
            readings += kept
            continue
        assumed |= guessed and bool(section.rows)
        a, b = reversed(ends) if section.backwards else ends
        key = (section.kind, a, b, "")
        groups.setdefault(key, []).extend(_samples(draft, section, a, b))
        if section.kind == "latency":
            latencies.setdefault(key, []).extend(
                Latency(source=a, destination=b, seconds=t * _US, where=draft.where(line))
                for size, t, line in section.rows
                if size == 0 and t > 0
            )
    if assumed:
        draft.note(
            "which devices the ranks used is not said: rank 0 is taken to be gpu0, rank 1 gpu1"
        )
    windowed = {key[1:3] for key, found in groups.items() if key[0] in ("bw", "bibw") and found}
    for key, samples in groups.items():
        kind, a, b, _ = key
        small = only_start_up(samples)
        draft.add(
            _LABELS[kind].format(a=a, b=b),
            [] if small else samples,
            conditions={"direction": _WAYS[kind], "statistic": "mean", "messages": _MESSAGES[kind]},
            latencies=latencies.get(key, ()),
            readings=small,
            # One message at a time has another start-up time than a window of them.
            default=kind != "latency" or (a, b) not in windowed,
        )
    draft.add("no patterns of known ends", readings=readings, default=False)
    return draft.done()


_LABELS: Final = {
    "bw": "{a}->{b} by size",
    "bibw": "{a}<->{b} by size, both ways",
    "latency": "{a}->{b} by size, one message at a time",
    "several": "several pairs at once",
}
_WAYS: Final = {
    "bw": "one way",
    "bibw": "both ways",
    "latency": "one way",
    "several": "several at once",
}
_MESSAGES: Final = {
    "bw": "a window of them",
    "bibw": "a window of them",
    "latency": "one at a time",
    "several": "a window of them",
}


def _sections(lines: Sequence[str]) -> list[_Section]:
    found: list[_Section] = []
    inside = False
    for number, line in enumerate(lines, 1):
        if "OSU" in line and (title := _TITLE.search(line)) is not None:
            above = [x for x in lines[max(0, number - 1 - _LOOK_BACK) : number - 1] if x.strip()]
            found.append(_section(title, above, number))
            inside = True
        elif not inside:
            continue
        elif "#" in line:
            if (pairs := _PAIRS.search(line)) is not None:
                found[-1].pairs = int(pairs[1])
            elif (buffers := _BUFFERS.search(line)) is not None:
                found[-1].device = all(w.upper() != "HOST" for w in buffers.groups())
        elif (row := _ROW.fullmatch(line)) is not None:
            value = to_number(row[2])
            if value is not None:
                found[-1].rows.append((int(row[1]), value, number))
        elif line.strip() and found[-1].rows:
            inside = False
    return found


def _section(title: re.Match[str], above: list[str], number: int) -> _Section:
    device = False
    apart = False
    named = None
    for line in above:
        if _TITLE.search(line) is not None or _ROW.fullmatch(line) is not None:
            # What stands above another run belongs to that.
            device, apart, named = False, False, None
            continue
        apart |= _SEVERAL_NODES.search(line) is not None
        if (command := _COMMAND.search(line)) is not None:
            buffers = _ON_DEVICE.search(command[1])
            device = buffers is not None and "H" not in buffers.groups()
        if (pair := _NAMED.search(line)) is not None and pair[1] != pair[2]:
            named = (pair[1], pair[2])
    return _Section(title[3], number, device, named, apart)


def _ends(section: _Section) -> tuple[tuple[str, str], bool]:
    """The names of both ends, and whether that they are devices was assumed."""
    if section.named is not None:
        a, b = section.named
        return (f"gpu{int(a)}", f"gpu{int(b)}"), False
    if section.device and not section.apart:
        return ("gpu0", "gpu1"), True
    return ("rank0", "rank1"), False


def _samples(draft: Draft, section: _Section, a: str, b: str) -> list[Sample]:
    latency = section.kind == "latency"
    pairs = in_order(a, b) if section.kind == "bibw" else [(a, b)]
    figures = [
        (size, size / (value * _US) if latency else value * _MB, line)
        for size, value, line in section.rows
        if size > 0 and value > 0
    ]
    return sweep_samples(draft, pairs, figures)


def _several(draft: Draft, section: _Section) -> tuple[list[Sample], list[Reading]]:
    n = section.pairs
    if n > _MOST_PAIRS:
        return [], [
            Reading(
                what=f"{n} pairs together, {format_bytes(size)} each",
                value=value * _MB,
                unit="B/s",
                reason=f"more than {_MOST_PAIRS} pairs, of which nothing says where they are",
                where=draft.where(line),
            )
            for size, value, line in section.rows
            if size > 0 and value > 0
        ]
    pairs = [(f"rank{k}", f"rank{k + n}") for k in range(n)]
    figures = [(size, value * _MB, line) for size, value, line in section.rows if size > 0]
    return sweep_samples(draft, pairs, figures), []


def _of_collective(draft: Draft, section: _Section) -> list[Reading]:
    return [
        Reading(
            what=f"{section.title} at {format_bytes(size)}",
            value=value * _US,
            unit="s",
            reason="which bytes go where in a collective is the library's choice",
            where=draft.where(line),
        )
        for size, value, line in section.rows
        if value > 0
    ]


OSU: Final = Importer(
    name="osu",
    title=TITLE,
    looks_like=looks_like_osu,
    parse=parse_osu,
)
"""The importer that the registry lists."""
