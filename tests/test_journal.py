"""What has been measured is on disk, whatever happens to whoever writes it."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocal.measure.calibration import decode_calibration, encode_calibration
from topocal.measure.journal import Journal, journal_path
from topocal.measure.load import load
from topocal.measure.patterns import fan_in, peer
from topocal.measure.samples import Sample
from topocal.topo.errors import FormatError, InputError, TopocalError

GROUP: dict[str, Any] = {"backend": "gloo", "ranks": ["gpu0", "gpu1", "gpu2"], "hosts": 1}
SMALLER: dict[str, Any] = {"backend": "gloo", "ranks": ["gpu0", "gpu2"], "hosts": 1}


def sample(seconds: float = 1e-3, *, round_: int = 0, **more: Any) -> Sample:
    return Sample(
        pattern=fan_in("gpu0", ["gpu1", "gpu2"], 4096.0),
        seconds=seconds,
        round=round_,
        issue="group",
        flow_finish_s=(seconds / 2, seconds),
        endpoint_start_s=(0.0, 1e-5, 2e-5),
        endpoint_end_s=(seconds, seconds / 3, seconds / 2),
        **more,
    )


def opened(path: Path | None, *, resume: bool = False, subject: str = "plan") -> Journal:
    return Journal(path, subject=subject, run="abc", resume=resume)


def begun(path: Path | None, **more: Any) -> Journal:
    journal = opened(path, **more)
    journal.begin(GROUP)
    return journal


def test_what_is_put_in_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = begun(path)
    first = [sample(1e-3, iterations=7), sample(2e-3, repeat=1), sample(9.0, set_aside="warm-up")]
    journal.add(0, 0, first, after_s=1.0)
    journal.add(1, 4, [sample(3e-3, round_=4)], after_s=2.5)
    journal.remark("odd")
    journal.remark("odd")
    journal.links({"gpu0": "16.0 GT/s x16"})
    journal.copies({"gpu0": 2e9})
    journal.close(done=False)
    again = opened(path, resume=True)
    for found in (journal.measurements(), again.measurements()):
        assert [s.seconds for s in found.samples] == [1e-3, 2e-3, 3e-3]
        assert [s.seconds for s in found.set_aside] == [9.0]
        assert found.samples[0].iterations == 7
        assert found.samples[0].endpoint_start_s == (0.0, 1e-5, 2e-5)
        assert [s.round for s in found.samples] == [0, 0, 4]
        (run,) = found.runs
        assert run.provenance == GROUP | {
            "run": "abc",
            "duration_s": 2.5,
            "remarks": ["odd"],
            "links": {"gpu0": "16.0 GT/s x16"},
            "local_copy_Bps": {"gpu0": 2e9},
        }
        decode_calibration(encode_calibration(found), file="x")
    assert [s.seconds for s in again.measurements(1).samples] == [3e-3]
    key = ((("gpu1", "gpu0"), ("gpu2", "gpu0")), 4096.0, "group")
    assert again.measured(0) == again.measured(1) == {key}
    assert again.measured(2) == set()


def test_only_what_counts_is_measured() -> None:
    journal = begun(None)
    journal.add(0, 0, [sample(9.0, set_aside="warm-up")], after_s=1.0)
    assert journal.measured(0) == set()
    journal.add(0, 0, [sample(1.0)], after_s=1.0)
    assert len(journal.measured(0)) == 1
    journal.set_aside(0, 0, ["gpu0<-gpu1,gpu2"], 4096.0, "group", "drift")
    assert journal.measured(0) == set()
    reasons = sorted(s.set_aside or "" for s in journal.measurements().set_aside)
    assert reasons == ["drift", "warm-up"]
    # What comes after counts again.
    journal.add(0, 0, [sample(2.0)], after_s=1.0)
    assert [s.seconds for s in journal.measurements().samples] == [2.0]


def test_a_remark_of_setting_aside_survives(tmp_path: Path) -> None:
    journal = begun(tmp_path / "j")
    journal.add(0, 3, [sample(1.0, round_=3)], after_s=1.0)
    journal.add(0, 4, [sample(2.0, round_=4)], after_s=1.0)
    fan = ["gpu0<-gpu1,gpu2"]
    journal.set_aside(0, 3, fan, 4096.0, "group", "drift")
    journal.set_aside(1, 4, fan, 4096.0, "group", "another plan's")
    journal.set_aside(0, 4, fan, 8192.0, "group", "another size")
    journal.set_aside(0, 4, fan, 4096.0, "one-by-one", "issued otherwise")
    journal.set_aside(0, 4, ["gpu0->gpu1"], 4096.0, "group", "another pattern")
    journal.close(done=False)
    again = opened(tmp_path / "j", resume=True)
    assert [s.seconds for s in again.measurements().samples] == [2.0]
    assert [s.set_aside for s in again.measurements().set_aside] == ["drift"]


def whole(path: Path) -> bytes:
    journal = begun(path)
    for k in range(3):
        journal.add(0, k, [sample(1.0 + k, round_=k)], after_s=float(k))
    journal.close(done=False)
    return path.read_bytes()


@settings(deadline=None, max_examples=60)
@given(share=st.floats(0.0, 1.0))
def test_half_a_line_counts_as_not_written(
    tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    path = tmp_path_factory.mktemp("cut") / "j"
    content = whole(path)
    cut = int(share * len(content))
    path.write_bytes(content[:cut])
    journal = opened(path, resume=True)
    journal.begin(GROUP)
    kept = content[:cut].count(b'{"batch"') - (
        0 if cut == 0 or content[:cut].endswith(b"\n") else b'{"batch"' in _last_line(content[:cut])
    )
    assert len(journal.measurements().samples) == kept
    journal.add(0, 9, [sample(9.0, round_=9)], after_s=9.0)
    journal.close(done=False)
    again = opened(path, resume=True)
    assert len(again.measurements().samples) == kept + 1
    again.close(done=False)


def _last_line(content: bytes) -> bytes:
    return content.rpartition(b"\n")[2]


def test_killed_at_any_moment(tmp_path: Path) -> None:
    # Whatever was said to be written before the kill is there after it.
    script = """
        import os, sys
        from topocal.measure.journal import Journal
        from topocal.measure.patterns import peer
        from topocal.measure.samples import Sample
        journal = Journal(sys.argv[1], subject="plan", run="abc")
        journal.begin({"backend": "gloo", "ranks": ["gpu0", "gpu1"]})
        for k in range(100000):
            p = peer("gpu0", "gpu1", 4096.0)
            journal.add(0, k, [Sample(pattern=p, seconds=1.0 + k, issue="group")], after_s=1.0)
            os.write(1, b"%d\\n" % k)
    """
    path = tmp_path / "j"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    said = [int(line) for line in told if line.endswith(b"\n")]
    found = opened(path, resume=True).measurements()
    assert [s.seconds for s in found.samples][: len(said)] == [1.0 + k for k in said]
    assert len(found.samples) <= len(said) + 1


def test_an_unfinished_one_is_not_overwritten(tmp_path: Path) -> None:
    content = whole(tmp_path / "j")
    with pytest.raises(InputError, match="was not finished; go on with --resume, or remove it"):
        opened(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == content


def test_only_one_may_write(tmp_path: Path) -> None:
    journal = begun(tmp_path / "j")
    with pytest.raises(InputError, match="somebody else is measuring into it"):
        opened(tmp_path / "j", resume=True)
    journal.close(done=True)
    assert not (tmp_path / "j").exists()


def test_another_plan_is_another_journal(tmp_path: Path) -> None:
    whole(tmp_path / "j")
    with pytest.raises(InputError, match="is the journal of another plan"):
        opened(tmp_path / "j", resume=True, subject="other")


def test_the_same_group_goes_on_under_the_same_conditions_only(tmp_path: Path) -> None:
    whole(tmp_path / "j")
    journal = opened(tmp_path / "j", resume=True)
    with pytest.raises(InputError, match="the journal and now differ in backend: gloo against"):
        journal.begin(GROUP | {"backend": "nccl"})
    with pytest.raises(InputError, match="differ in backend"):
        journal.begin(SMALLER | {"backend": "nccl"})
    with pytest.raises(InputError, match="differ in hosts"):
        journal.begin(GROUP | {"hosts": 2})
    journal.begin(GROUP)
    assert journal.run == "abc"
    journal.add(0, 7, [sample(7.0)], after_s=3.0)
    (run,) = journal.measurements().runs
    assert run.provenance["duration_s"] == 2.0 + 3.0


def test_a_smaller_group_is_a_run_of_its_own(tmp_path: Path) -> None:
    whole(tmp_path / "j")
    journal = opened(tmp_path / "j", resume=True)
    journal.begin(SMALLER | {"hosts": 2})
    pair = Sample(pattern=peer("gpu0", "gpu2", 4096.0), seconds=5.0, issue="group")
    journal.add(0, 7, [pair], after_s=3.0)
    found = journal.measurements()
    first, second = found.runs
    assert first.provenance["ranks"] == GROUP["ranks"]
    assert "ranks" not in second.provenance
    assert "hosts" not in second.provenance
    assert second.provenance["run"] == "abc-1"
    assert second.provenance["remarks"] == ["measured by a group of 2"]
    assert [(s.seconds, s.run) for s in found.samples if s.run] == [(5.0, 1)]
    # Both are read together.
    (tmp_path / "cal.json").write_bytes(encode_calibration(found))
    assert len(load(tmp_path / "cal.json").samples) == 4


#   What is done to a line in the middle.           What is said.
DAMAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "not JSON": (lambda t: t.replace("{", "(", 1), "j:3: damaged journal"),
    "wrong type": (lambda t: t.replace('"seconds":1.0', '"seconds":"x"'), "j:3: damaged journal"),
    "unknown field": (lambda t: t.replace('"batch"', '"batsch"'), "j:3: damaged journal"),
    "negative size": (lambda t: t.replace("4096", "-4096"), "j:3: damaged journal"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_in_the_middle_is_told_with_its_line(tmp_path: Path, kind: str) -> None:
    change, words = DAMAGES[kind]
    lines = whole(tmp_path / "j").decode().splitlines(keepends=True)
    changed = change(lines[2])
    assert changed != lines[2]
    (tmp_path / "j").write_text("".join([*lines[:2], changed, *lines[3:]]))
    with pytest.raises(FormatError, match=re.escape(words)):
        opened(tmp_path / "j", resume=True)


@pytest.mark.parametrize("first", ["{}", '{"format":"topocal/plan","version":1}', "[1]", "x"])
def test_something_else_is_not_taken_for_a_journal(tmp_path: Path, first: str) -> None:
    (tmp_path / "j").write_text(first + "\n")
    with pytest.raises(FormatError):
        opened(tmp_path / "j", resume=True)
    assert (tmp_path / "j").read_text() == first + "\n"


def test_a_newer_one_is_refused(tmp_path: Path) -> None:
    text = whole(tmp_path / "j").decode().replace('"version":1', '"version":2', 1)
    (tmp_path / "j").write_text(text)
    with pytest.raises(FormatError, match="is not a topocal/journal of version 1"):
        opened(tmp_path / "j", resume=True)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    journal = begun(tmp_path / "j")
    before = (tmp_path / "j").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores SIGXFSZ; writing beyond the limit is an error, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(InputError, match=r"cannot be written: .*; make room"):
            journal.add(0, 0, [sample()], after_s=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "j").read_bytes() == before
    assert journal.measurements().samples == ()
    journal.add(0, 0, [sample()], after_s=1.0)
    journal.close(done=False)
    assert len(opened(tmp_path / "j", resume=True).measurements().samples) == 1


@pytest.mark.parametrize("path", [".", "missing/j"])
def test_where_nothing_can_be_written(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        opened(tmp_path / path)


@settings(deadline=None, max_examples=80)
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "j"
    path.write_bytes(content)
    try:
        opened(path, resume=True).close(done=False)
    except TopocalError as error:
        assert "\n" not in str(error)


def test_a_journal_lies_beside_its_output() -> None:
    assert journal_path("a/cal.json") == Path("a/cal.json.journal")
    assert os.fspath(journal_path(Path("cal"))) == "cal.journal"


def test_a_changed_digit_is_noticed(tmp_path: Path) -> None:
    """Still JSON, still a timing: only the check of the line tells."""
    path = tmp_path / "j"
    text = whole(path).decode()
    lines = text.splitlines()
    number = next(k for k, line in enumerate(lines, start=1) if '"samples"' in line)
    lines[number - 1] = lines[number - 1].replace("gpu1", "gpu2", 1)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError, match="its check is not that of its content") as error:
        opened(path, resume=True)
    assert error.value.where is not None
    assert error.value.where.line == number
    assert error.value.remedy == f"keep the {number - 1} lines before it, or remove the file"


def test_what_is_before_a_damaged_line_can_be_kept(tmp_path: Path) -> None:
    journal = begun(tmp_path / "j")
    journal.add(0, 0, [sample(1e-3)], after_s=1.0)
    journal.add(0, 1, [sample(2e-3, round_=1)], after_s=2.0)
    journal.close(done=False)
    lines = (tmp_path / "j").read_bytes().splitlines(keepends=True)
    (tmp_path / "j").write_bytes(b"".join(lines[:-1]))
    kept = opened(tmp_path / "j", resume=True).measurements()
    assert [s.seconds for s in kept.samples] == [1e-3]


def test_a_line_without_a_check_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "j"
    expected = len(read_all(path, whole(path)).samples)
    bare = re.sub(rb',"check":\d+}', b"}", path.read_bytes())
    assert b'"check"' not in bare
    assert len(read_all(path, bare).samples) == expected > 0


def read_all(path: Path, content: bytes) -> Any:
    path.write_bytes(content)
    journal = opened(path, resume=True)
    try:
        return journal.measurements()
    finally:
        journal.close(done=False)


def test_a_journal_without_timings_does_not_stay(tmp_path: Path) -> None:
    """What was refused before the first timing is not in the way of the next attempt."""
    begun(tmp_path / "j").close(done=False)
    assert not (tmp_path / "j").exists()
    opened(tmp_path / "j", subject="another plan").close(done=False)


def test_what_is_refused_is_not_kept_open(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"format": "something else"}\n')
    before = len([*Path("/proc/self/fd").iterdir()])
    for resume in (True, False):
        with pytest.raises(TopocalError):
            opened(path, resume=resume)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_one_that_is_removed_meanwhile_ends_it_at_once(tmp_path: Path) -> None:
    """Else all that is measured from then on would be for nothing."""
    folder = tmp_path / "folder"
    folder.mkdir()
    book = Journal(folder / "j", subject="plan", run="r")
    book.begin({"backend": "gloo"})
    book.remark("one")
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="was removed while it was being written; measure anew"):
        book.remark("two")
    book.close(done=False)
