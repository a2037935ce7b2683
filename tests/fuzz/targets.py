"""What is fuzzed: everything that reads what others wrote.

A target takes bytes.  It may raise errors of :mod:`topocal.topo.errors`, each of one
printable line; anything else is a finding.  What is read is used a little too: a file that
is taken must also serve.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import seeds
from commands import COMMANDS, command_seeds, run_command
from words import texts_taken, words_of

from topocal.measure.calibration import decode_calibration, encode_calibration
from topocal.measure.importers.registry import IMPORTERS
from topocal.measure.importers.tables import parse_table
from topocal.measure.journal import Journal
from topocal.measure.load import parse_measurements
from topocal.measure.patterns import kind_of, parse_pattern
from topocal.measure.plan import FORMAT as PLAN
from topocal.measure.plan import plan_from_document, plan_to_document
from topocal.solve.caps_document import FORMAT as CAPS
from topocal.solve.caps_document import caps_from_document, encode_caps
from topocal.solve.model import FORMAT as MODEL
from topocal.solve.model import model_from_document, model_to_document
from topocal.solve.policy.files import parse_requests
from topocal.solve.predict import predict
from topocal.solve.transfer_files import parse_transfers
from topocal.topo.digest import digest_of
from topocal.topo.discover import topology_from_sysfs
from topocal.topo.errors import TopocalError
from topocal.topo.flow_files import parse_flows
from topocal.topo.io import FORMAT as TOPOLOGY
from topocal.topo.io import (
    decode_document,
    encode_document,
    topology_from_document,
    topology_to_document,
)
from topocal.topo.readers.archive import unpack
from topocal.topo.readers.gathered import topology_from_gathered
from topocal.topo.readers.reader import Reader, decode_text
from topocal.topo.readers.registry import READERS, parse_content
from topocal.topo.topology import Topology
from topocal.topo.units import parse_bytes, parse_rate, parse_seconds
from topocal.topo.what_if import parse_link, parse_route, parse_setting

__all__ = ["TARGETS", "Target", "attempt"]

_WORDS_OF_ALL: Final = (
    *sorted({kind.parse.__module__ for kind in (*READERS, *IMPORTERS)}),
    parse_pattern.__module__,
)
_ENDPOINTS: Final = ("gpu0", "gpu1", "gpu2")


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads.

    Attributes
    ----------
    read
        Reads bytes.
    make_seeds
        Makes :attr:`seeds`, which takes a fit for some.
    modules
        Whose source has the format's words.
    make_more
        Makes :attr:`more`.
    """

    read: Callable[[bytes], object]
    make_seeds: Callable[[], tuple[bytes, ...]]
    modules: tuple[str, ...] = ()
    make_more: Callable[[], tuple[bytes, ...]] = tuple

    @property
    def seeds(self) -> tuple[bytes, ...]:
        """Whole inputs of its kind."""
        return self.make_seeds()

    @property
    def more(self) -> tuple[bytes, ...]:
        """Further inputs that it takes, or once took: texts of the tests."""
        return self.make_more()

    def words(self) -> tuple[str, ...]:
        """Words of the format."""
        return words_of(self.modules)


def attempt(target: Target, content: bytes) -> TopocalError | None:
    """Read an input; an error of ours is returned, any other comes out.

    Raises
    ------
    AssertionError
        When an error of ours is not one printable line.
    Warning
        When Python or a library warns: a user would read it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target.read(content)
    except TopocalError as error:
        text = str(error)
        assert text.isprintable(), f"an error that is not printable: {text!r}"
        assert len(text) < 2_000, f"an error of {len(text)} characters: {text[:200]!r}"
        return error
    return None


def _use(topology: Topology) -> None:
    """What every command does with a machine: its routes, and writing it."""
    some = topology.endpoints[:8]
    if len(some) > 1:
        topology.routes(some)
    content = encode_document(topology_to_document(topology))
    document = decode_document(content, format=TOPOLOGY, version=1, file="again")
    assert topology_from_document(document, file="again") == topology


def _reader(reader: Reader) -> Callable[[bytes], object]:
    return lambda content: _use(reader.parse(decode_text(content, file="f"), file="f"))


def _importer(importer: Any) -> Callable[[bytes], object]:
    def read(content: bytes) -> None:
        found = importer.parse(decode_text(content, file="f"), file="f")
        encode_calibration(found.best())

    return read


def _topology(content: bytes) -> None:
    document = decode_document(content, format=TOPOLOGY, version=1, file="f")
    _use(topology_from_document(document, file="f"))


def _plan(content: bytes) -> None:
    document = decode_document(content, format=PLAN, version=1, file="f")
    encode_document(plan_to_document(plan_from_document(document, file="f")))


def _calibration(content: bytes) -> None:
    again = encode_calibration(decode_calibration(content, file="f"))
    assert encode_calibration(decode_calibration(again, file="again")) == again


def _model(content: bytes) -> None:
    document = decode_document(content, format=MODEL, version=1, file="f")
    model = model_from_document(document, file="f")
    encode_document(model_to_document(model))
    some = model.topology.endpoints[:3]
    if len(some) > 1:
        notation = f"{some[0]}<-" + ",".join(some[1:])
        predict(model, [parse_pattern(notation, 1e6)])


def _caps(content: bytes) -> None:
    document = decode_document(content, format=CAPS, version=1, file="f")
    caps = caps_from_document(document | {"digest": digest_of(document)}, file="f")
    encode_caps(caps)
    assert caps.pair_costs is not None


def _journal(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.journal"
        path.write_bytes(content)
        book = Journal(path, subject=seeds.SUBJECT, run="r", resume=True)
        try:
            encode_calibration(book.measurements())
        finally:
            book.close(done=False)


def _sysfs(content: bytes) -> None:
    """Records ``path NUL text NUL``."""
    fields = content.decode("utf-8", "replace").split("\0")
    _use(topology_from_sysfs(dict(zip(fields[::2], fields[1::2], strict=False))))


def _text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda content: parse(content.decode("utf-8", "replace"))


def _pattern(text: str) -> None:
    pattern = parse_pattern(text)
    kind_of(pattern)
    assert sorted(parse_pattern(pattern.name).pairs) == sorted(pattern.pairs)


def _given(*seeds: bytes) -> Callable[[], tuple[bytes, ...]]:
    return lambda: seeds


def _document(kind: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: (seeds.documents()[kind],)


def _output(name: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: tuple(text.encode() for text in seeds.texts()[name])


def _outputs() -> tuple[bytes, ...]:
    return tuple(some[0].encode() for some in seeds.texts().values())


def _sysfs_seed() -> tuple[bytes, ...]:
    return ("\0".join(f"{path}\0{text}" for path, text in seeds.sysfs().items()).encode(),)


def _all() -> dict[str, Target]:
    found = {
        "topology": Target(_topology, _document("topology"), (topology_from_document.__module__,)),
        "plan": Target(_plan, _document("plan"), (plan_from_document.__module__,)),
        "calibration": Target(
            _calibration, _document("calibration"), (decode_calibration.__module__,)
        ),
        "model": Target(_model, _document("model"), (model_from_document.__module__,)),
        "caps": Target(_caps, _document("caps"), (caps_from_document.__module__,)),
        "journal": Target(_journal, lambda: (seeds.journal(),)),
        "gathered": Target(
            lambda content: _use(topology_from_gathered(unpack(content, file="f"), file="f")),
            seeds.gathered,
        ),
        "sysfs": Target(_sysfs, _sysfs_seed),
        "any-machine": Target(
            lambda content: _use(parse_content(content, file="f")), _outputs, _WORDS_OF_ALL
        ),
        "any-measurement": Target(
            lambda content: parse_measurements(content, file="f"), _outputs, _WORDS_OF_ALL
        ),
        "table": Target(
            lambda content: parse_measurements(content, file="f"),
            _given(_PAIRS, _FANS, _SIDES),
            (parse_table.__module__,),
        ),
        "flows": Target(
            lambda content: parse_flows(content.decode("utf-8", "replace"), _ENDPOINTS, file="f"),
            _given(_FLOWS, _FLOWS_JSON),
            (parse_flows.__module__,),
        ),
        "requests": Target(
            lambda content: parse_requests(content, _ENDPOINTS, file="f"),
            _given(_REQUESTS, _REQUESTS_JSON),
            (parse_requests.__module__,),
        ),
        "transfers": Target(
            lambda content: parse_transfers(content, _ENDPOINTS, file="f"),
            _given(_TOGETHER, _TOTALS, _TRANSFERS_JSON, _MATRIX_JSON),
            (parse_transfers.__module__,),
        ),
        "pattern": Target(
            _text(_pattern), _given(b"3<-4,5", b"gpu0->1,gpu2", b"0<->1", b"0->4 + 1->5 + 2<-3,4")
        ),
        "bytes": Target(_text(parse_bytes), _given(b"256MiB", b"1.5e3 KB", b"7")),
        "rate": Target(_text(parse_rate), _given(b"25 GB/s", b"200Gbps", b"1e3 MiB/s")),
        "seconds": Target(_text(parse_seconds), _given(b"5us", b"1.5 ms", b"2")),
        "setting": Target(_text(parse_setting), _given(b"socket0->socket1=2x", b"gpu0=25GB/s")),
        "link": Target(_text(parse_link), _given(b"gpu0->gpu1=50GB/s")),
        "route": Target(
            _text(lambda text: parse_route(text, seeds.machine())),
            _given(b"gpu0->gpu1=switch0", b"gpu0->gpu2=switch0,gpu1,switch0"),
        ),
    }
    for reader in READERS:
        if reader.name not in found:
            found[reader.name] = _of_kind(reader, _reader(reader))
    for importer in IMPORTERS:
        found[f"measured-{importer.name}"] = _of_kind(importer, _importer(importer))
    for name in COMMANDS:
        found[f"command-{name}"] = Target(
            run_command(name), partial(command_seeds, name), modules=_WORDS_OF_ALL
        )
    return found


def _of_kind(kind: Any, read: Callable[[bytes], object]) -> Target:
    """The target of a reader or an importer."""
    return Target(
        read,
        _output(kind.name),
        modules=(kind.parse.__module__,),
        make_more=lambda: tuple(
            text.encode("utf-8", "surrogatepass")
            for text in texts_taken(kind.looks_like, lambda text: kind.parse(text, file="f"))
        ),
    )


_PAIRS: Final = b"source,destination,bandwidth_GBps,size\n0,1,25.1,1MiB\n1,0,25.0,1MiB\n"
_FANS: Final = (
    b'# fans\npattern,throughput_GBps,note\n"2<-0,1",25.0,x\n0<->1,44,\n"0->1 + 1->2",40,\n'
)
_SIDES: Final = b"direction,root,peers,throughput_GBps\nin,0,1 2,25.0\nout,2,0 1,25e0\n"
_FLOWS: Final = b"source,destination,size,start\ngpu0,gpu1,256MiB,0\ngpu1,gpu2,64MiB,1ms\n"
_TOGETHER: Final = b"source,destination,size\ngpu0,gpu1,256MiB\ngpu1,gpu2,64MiB\n"
_FLOWS_JSON: Final = (
    b'{"flows": [{"source": 0, "destination": "gpu1", "size": "1MiB", "start": 0.5}]}'
)
_REQUESTS: Final = (
    b"parameter,target,holders,shape,element_bytes\nq,2,0 1,4096 4096,2\nk,0,1 2,64 4,2\n"
)
_REQUESTS_JSON: Final = (
    b'{"format": "topocal/requests", "version": 1, "element_bytes": 2, "requests": '
    b'[{"parameter": "q", "target": 2, "holders": [0, 1], "shape": [64, 64]}]}'
)
_TOTALS: Final = b"process,send_bytes,receive_bytes\n0,10,0\n1,0,10\n2,0,0\n"
_TRANSFERS_JSON: Final = (
    b'{"element_size": 2, "transfers": [{"source": 0, "target": 1, "shape": [4, 4]},'
    b' {"source": 1, "target": 2, "bytes": 100}]}'
)
_MATRIX_JSON: Final = b'{"bytes_matrix": [[0, 1, 2], [3, 0, 4], [5, 6, 0]]}'

TARGETS: Final = _all()
