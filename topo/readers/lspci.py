"""``lspci``: the tree of ``-tv``, the link of each device of ``-vvv``, or both in one paste.

The tree says what hangs below what; ``LnkCap`` says what a link can do and
``LnkSta`` what it does.  Either alone is read, too, as far as it goes.  Prompts,
command lines and the password line of ``sudo`` around them are passed over, and
``numactl --hardware`` in the same paste gives the memory nodes.

References
----------
Output of pciutils: ls-tree.c, ls-caps.c and lspci.c of https://github.com/pciutils/pciutils.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from topocal.topo.builder import TopologyBuilder
from topocal.topo.errors import FormatError, Where, one_line
from topocal.topo.readers.lspci_devices import is_device_line, parse_device_blocks
from topocal.topo.readers.lspci_forms import as_device_list, is_other_form
from topocal.topo.readers.lspci_tree import is_tree_line, parse_tree_lines
from topocal.topo.readers.numa_text import spans
from topocal.topo.readers.pci_function import PciFunction, Role
from topocal.topo.readers.pci_tree import add_pci_tree, few, place_by_buses
from topocal.topo.readers.reader import Reader
from topocal.topo.readers.sockets import MemoryNode, add_sockets, commonest
from topocal.topo.topology import Topology

__all__ = ["LSPCI", "looks_like_lspci", "parse_lspci"]

MAX_FUNCTIONS: Final = 50_000
"""More than any machine has, virtual functions included."""

MAX_LINES: Final = 400_000
"""``lspci -vvv`` prints about 60 lines per function."""

_SNIFFED_LINES: Final = 400


def looks_like_lspci(text: str) -> bool:
    """Whether a text has lines of lspci's in it."""
    lines = text.split("\n", _SNIFFED_LINES)[:_SNIFFED_LINES]
    return any(is_tree_line(line) or is_device_line(line) or is_other_form(line) for line in lines)


def parse_lspci(text: str, *, file: str) -> Topology:
    """The machine that lspci's output describes.

    Raises
    ------
    FormatError
        When no line of it is lspci's.
    """
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise FormatError(
            f"has {len(lines)} lines; at most {MAX_LINES} are read",
            where=Where(file=file),
            remedy="give the output of one machine",
        )
    drawn = parse_tree_lines(lines)
    blocks = parse_device_blocks(as_device_list(lines))
    if not drawn and not blocks.functions:
        raise FormatError(
            "has no line of lspci's tree (-tv) or device list (-vvv)",
            where=Where(file=file),
            remedy="give what `lspci -tv` or `sudo lspci -vvv` prints",
        )
    functions = _join(drawn, blocks.functions)
    if len(functions) > MAX_FUNCTIONS:
        raise FormatError(
            f"lists {len(functions)} PCI functions; at most {MAX_FUNCTIONS} are read",
            where=Where(file=file),
            remedy="give the output of one machine",
        )
    if not drawn:
        place_by_buses(functions, blocks.buses)
    builder = TopologyBuilder(Path(file).stem or "machine")
    words = [w for w, there in (("tree", drawn), ("device list", blocks.functions)) if there]
    builder.source(f"{Path(file).name}: lspci {' and '.join(words)}")
    ids = _add_machine(builder, functions, _read_numactl(lines), file)
    _note_gaps(builder, functions, ids, drawn=bool(drawn), listed=bool(blocks.functions))
    if blocks.denied:
        builder.note(
            "lspci was run without root, so it shows no link speeds: run `sudo lspci -vvv`"
        )
    return builder.build()


def _join(drawn: dict[str, PciFunction], listed: dict[str, PciFunction]) -> dict[str, PciFunction]:
    """Devices of the tree with what the list says about them; of the list alone without a tree."""
    if not drawn:
        return dict(listed)
    for address, seen in listed.items():
        function = drawn.get(address)
        if function is None:
            seen.parent = seen.root = None
            drawn[address] = seen
            continue
        function.pci_class = seen.pci_class
        function.vendor = seen.vendor or function.vendor
        function.device = seen.device or function.device
        function.model = seen.model or function.model
        function.numa = seen.numa
        function.port = seen.port
        function.state, function.capability = seen.state, seen.capability
        function.redirects = seen.redirects
        function.virtual = function.virtual or seen.virtual
        if not function.bridge:
            function.role = seen.role
    return drawn


@dataclass(slots=True)
class _Numactl:
    """What ``numactl --hardware`` says."""

    nodes: dict[int, MemoryNode] = field(default_factory=dict)
    distances: dict[tuple[int, int], float] = field(default_factory=dict)


def _read_numactl(lines: list[str]) -> _Numactl:
    found = _Numactl()
    cpus: dict[int, str] = {}
    sizes: dict[int, int] = {}
    columns: list[int] = []
    for line in lines:
        if match := re.fullmatch(r"node ([0-9]{1,4}) cpus:((?: [0-9]{1,6})*)\s*", line):
            cpus[int(match[1])] = spans([int(n) for n in match[2].split()])
        elif match := re.fullmatch(r"node ([0-9]{1,4}) size: ([0-9]{1,12}) MB\s*", line):
            sizes[int(match[1])] = int(match[2]) << 20
        elif re.fullmatch(r"node((?:\s+[0-9]{1,4})+)\s*", line):
            columns = [int(n) for n in line.split()[1:]]
        elif match := re.fullmatch(r"\s*([0-9]{1,4}):((?:\s+[0-9]{1,4})+)\s*", line):
            values = match[2].split()
            if len(values) == len(columns):
                row = int(match[1])
                found.distances |= {
                    (row, n): float(v) for n, v in zip(columns, values, strict=True) if n != row
                }
    for number in sorted(cpus)[:256]:
        found.nodes[number] = MemoryNode(
            number=number, cpu_list=cpus[number], memory_bytes=sizes.get(number)
        )
    return found


def _add_machine(
    builder: TopologyBuilder, functions: dict[str, PciFunction], numactl: _Numactl, file: str
) -> dict[str, str]:
    """Sockets and devices; returns the node ids of the GPUs and NICs."""
    by_root: dict[str | None, list[int | None]] = defaultdict(list)
    for function in functions.values():
        by_root[function.root].append(function.numa)
    # Devices whose root bus is not shown stand each where it says itself.
    apart = {n for n in by_root.pop(None, []) if n is not None}
    numas = {root: commonest(numbers) for root, numbers in by_root.items()}
    stated = {n for n in numas.values() if n is not None} | apart
    nodes = dict(numactl.nodes)
    for number in stated - set(nodes):
        nodes[number] = MemoryNode(number=number)
    sockets = add_sockets(
        builder,
        [nodes[n] for n in sorted(nodes)],
        distances=numactl.distances,
        endpoints=bool(numactl.nodes),
    )
    if not nodes:
        builder.note(
            "lspci does not say which socket a root bus hangs off: all are taken to share one, "
            "so pairs on different root buses may be farther apart than is shown"
        )
    elif len(nodes) > 1 and (lost := [r for r, n in numas.items() if n is None and r]):
        builder.note(f"root buses {few(lost)}: lspci does not say which socket they hang off")
    if len(stated) > 1:
        mixed = [
            r for r, found in by_root.items() if r and len({n for n in found if n is not None}) > 1
        ]
        if mixed:
            builder.note(f"root buses {few(mixed)}: devices below them name different NUMA nodes")

    def socket_of(root: str | None) -> str:
        number = numas.get(root)
        return sockets.of() if number is None else sockets.of(number)

    return add_pci_tree(builder, functions, socket_of, file=file, socket_near=sockets.of)


def _note_gaps(
    builder: TopologyBuilder,
    functions: dict[str, PciFunction],
    ids: dict[str, str],
    *,
    drawn: bool,
    listed: bool,
) -> None:
    unplaced = [node for address, node in ids.items() if functions[address].root is None]
    if unplaced:
        builder.note(
            f"{few(unplaced)}: what stands above them is not shown, so which of them share a "
            "switch or an uplink is unknown; add `lspci -tv`"
        )
    silent = [
        node
        for address, node in ids.items()
        if not functions[address].state.known and not functions[address].capability.known
    ]
    if silent and drawn and not listed:
        builder.note(f"{few(silent)}: link speeds are not shown; add `sudo lspci -vvv`")
    if not any(functions[address].role is Role.GPU for address in ids):
        builder.note("lspci lists no GPU that computes")
    if models := {one_line(f.model) for f in functions.values() if f.role is Role.NVSWITCH}:
        builder.note(
            f"NVSwitches are listed ({few(sorted(models))}), but lspci does not show NVLink: add "
            "`nvidia-smi topo -m`"
        )


LSPCI: Final = Reader(
    name="lspci",
    title="lspci -tv, lspci -vvv",
    looks_like=looks_like_lspci,
    parse=parse_lspci,
)
"""The reader that the registry lists."""
