"""What a shell completes: endpoints of the machine that is named, machines and files, words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]

ASKED: list[tuple[str, set[str]]] = [
    ("predict model.json --fan-in g", {"gpu0", "gpu1", "gpu2"}),
    ("predict model.json --fan-in 0:1,gpu2", {"0:1,gpu2"}),
    ("predict model.json --fan-out gpu1:", {"gpu1:gpu0", "gpu1:gpu1", "gpu1:gpu2"}),
    ("predict --flow gpu0:gpu1 model.json --flow gpu2", {"gpu2"}),
    ("explain model.json --both-ways gpu0:gpu1", {"gpu0:gpu1"}),
    ("plan topology.json --endpoints gpu0,", {"gpu0,gpu0", "gpu0,gpu1", "gpu0,gpu2"}),
    ("plan b70 --endpoints gpu7", {"gpu7"}),
    ("caps model.json --endpoint gpu2", {"gpu2"}),
    ("export model.json --as simgrid --endpoints gpu1", {"gpu1"}),
    ("measure plan.json -o c.json --endpoints gpu1", {"gpu1"}),
    ("fabric --like topology.json --endpoints gpu1", {"gpu1"}),
    ("calibrate topology.json -o m.json --endpoints gpu1", {"gpu1"}),
    # Where nothing says which machine, or it cannot be read, nothing is said at all.
    ("predict none.json --flow g", set()),
    ("predict damaged.json --flow g", set()),
    ("predict --flow g", set()),
    ("caps - --endpoint g", set()),
    ("plan dg", {"dgx1", "dgx-a100", "dgx-h100"}),
    ("show b", {"b70", "bare.txt"}),
    ("show folder/", {"folder/inner.json"}),
    ("show fold", {"folder/"}),
    ("show .h", {".hidden"}),
    ("simulate mod", {"model.json"}),
    ("fit pairs.csv -t mi3", {"mi300x"}),
    ("export model.json --as g", {"graphml"}),
    ("export model.json --as ", {"simgrid", "nccl", "graphml", "dot"}),
    ("read x --as hw", {"hwloc"}),
    ("schema mo", {"model"}),
    ("completion ", {"bash", "zsh", "fish"}),
]


@pytest.mark.parametrize(("line", "expected"), ASKED)
def test_what_is_completed(
    line: str, expected: set[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("damaged.json").write_bytes(Path("model.json").read_bytes()[:-100])
    Path("bare.txt").touch()
    Path(".hidden").touch()
    Path("folder").mkdir()
    Path("folder/inner.json").touch()
    words = f"topocal {line}"
    monkeypatch.setenv("_TOPOCAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    status, out, err = run()
    assert (status, err) == (0, "")
    assert set(out.split()) == expected
