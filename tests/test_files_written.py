"""Writing files: killed, out of room, forbidden, linked; the old content or the new is there."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from topocal.topo.errors import InputError
from topocal.topo.files import write_atomically

WRITER = """
import itertools, sys
from pathlib import Path
from topocal.topo.files import write_atomically
path, size = Path(sys.argv[1]), int(sys.argv[2])
for k in itertools.count():
    write_atomically(path, bytes([48 + k % 10]) * size)
    if k == 0:
        print("ready", flush=True)
"""


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_writer_killed_at_any_moment_leaves_the_old_content_or_the_new(tmp_path: Path) -> None:
    """Each of 12 writers replaces 4 MB again and again until it is killed."""
    target, size = tmp_path / "model.json", 1 << 22
    rng = random.Random(9)
    for _ in range(12):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(target), str(size)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0.0, 0.05))
            child.send_signal(signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
        content = target.read_bytes()
        assert len(content) == size
        assert len(set(content)) == 1
        assert _names(tmp_path) in (["model.json"], [".model.json.part", "model.json"])
    write_atomically(target, b"the next write")
    assert _names(tmp_path) == ["model.json"]


KILLED_AT = """
import os, signal, sys
from pathlib import Path
from topocal.topo.files import write_atomically

def die(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)

path, place = Path(sys.argv[1]), sys.argv[2]
if place == "fsync":
    os.fsync = die
elif place == "replace":
    Path.replace = die
write_atomically(path, b"new" * 10_000)
"""


@pytest.mark.parametrize("place", ["fsync", "replace"])
def test_a_writer_killed_before_all_is_there_leaves_the_old_content(
    tmp_path: Path, place: str
) -> None:
    target = tmp_path / "model.json"
    target.write_bytes(b"old")
    ran = subprocess.run([sys.executable, "-c", KILLED_AT, str(target), place], check=False)
    assert ran.returncode == -signal.SIGKILL
    assert target.read_bytes() == b"old"
    assert _names(tmp_path) == [".model.json.part", "model.json"]
    write_atomically(target, b"the next write")
    assert _names(tmp_path) == ["model.json"]


def test_many_writers_at_once_do_not_mix(tmp_path: Path) -> None:
    target, size = tmp_path / "f", 1 << 16
    seen_enough = threading.Event()

    def write(digit: int) -> None:
        while not seen_enough.is_set():
            write_atomically(target, bytes([48 + digit]) * size)

    threads = [threading.Thread(target=write, args=(k,), daemon=True) for k in range(4)]
    for thread in threads:
        thread.start()
    try:
        while not target.exists():
            assert all(thread.is_alive() for thread in threads)
            time.sleep(0.001)
        for _ in range(50):
            content = target.read_bytes()
            assert len(content) == size
            assert len(set(content)) == 1
    finally:
        seen_enough.set()
        for thread in threads:
            thread.join()
    assert _names(tmp_path) == ["f"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o000])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    target = tmp_path / "f"
    target.touch(0o600)
    script = (
        "import os, sys; os.umask(int(sys.argv[2])); "
        "from topocal.topo.files import write_atomically; write_atomically(sys.argv[1], b'x')"
    )
    subprocess.run([sys.executable, "-c", script, str(target), str(umask)], check=True)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_a_part_left_with_other_permissions_does_not_spread_them(tmp_path: Path) -> None:
    left = tmp_path / ".f.part"
    left.write_bytes(b"half")
    left.chmod(0o600)
    write_atomically(tmp_path / "f", b"whole")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o666 & ~umask
    assert _names(tmp_path) == ["f"]


def test_a_part_that_somebody_is_writing_is_left_alone(tmp_path: Path) -> None:
    busy = tmp_path / ".f.part"
    with busy.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(b"going on")
        stream.flush()
        write_atomically(tmp_path / "f", b"whole")
        assert busy.read_bytes() == b"going on"
    assert _names(tmp_path) == [".f.part", "f"]
    write_atomically(tmp_path / "f", b"again")
    assert _names(tmp_path) == ["f"]


def test_a_link_planted_as_a_part_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / ".f.part").symlink_to(victim)
    write_atomically(tmp_path / "f", b"whole")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "f").read_bytes() == b"whole"
    assert (tmp_path / ".f.part").is_symlink()


def test_a_hard_link_planted_as_a_part_loses_its_name_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    os.link(victim, tmp_path / ".f.part")
    write_atomically(tmp_path / "f", b"whole")
    assert victim.read_bytes() == b"precious"


def test_links_are_followed_and_stay(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    real = tmp_path / "far" / "real"
    real.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("far/real")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    dangling = tmp_path / "dangling"
    dangling.symlink_to("far/born")
    write_atomically(dangling, b"first")
    assert (tmp_path / "far" / "born").read_bytes() == b"first"
    assert _names(tmp_path / "far") == ["born", "real"]
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    _refused(loop, "too many levels of symbolic links")
    nowhere = tmp_path / "nowhere"
    nowhere.symlink_to("absent/file")
    _refused(nowhere, "no such file or directory")


def _refused(path: Path, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        write_atomically(path, b"x")
    assert "\n" not in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.file == str(path)


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    _refused(tmp_path / "absent" / "f", "no such file or directory")
    _refused(tmp_path / "file" / "f", "not a directory")
    _refused(tmp_path / "folder", "is a directory")
    _refused(tmp_path / "pipe", "is a named pipe")
    _refused(tmp_path / ("n" * 256), "file name too long")
    assert _names(tmp_path) == ["file", "folder", "pipe"]


@pytest.mark.parametrize("name", ["n" * 255, "語" * 85, "é" * 127, "a b\tc", "-rf", "..x"])
def test_any_name_that_a_file_may_have_will_do(tmp_path: Path, name: str) -> None:
    write_atomically(tmp_path / name, b"x")
    assert _names(tmp_path) == [name]


AS_NOBODY = """
import os, sys
from topocal.topo.errors import InputError
from topocal.topo.files import write_atomically
if os.getuid() == 0:
    os.setuid(65534)
try:
    write_atomically(sys.argv[1], b"new")
except InputError as error:
    print(error)
"""


def test_a_folder_that_may_not_be_written_keeps_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "f").write_bytes(b"old")
    folder.chmod(0o555)
    for above in (tmp_path, *tmp_path.parents):
        status = above.stat()
        if status.st_uid == os.getuid() and status.st_mode & 0o055 != 0o055:
            above.chmod(status.st_mode | 0o055)
        if above.name.startswith("pytest-of-"):
            break
    ran = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(folder / "f")], capture_output=True, text=True
    )
    assert ran.stderr == ""
    assert "cannot be written: permission denied" in ran.stdout
    assert (folder / "f").read_bytes() == b"old"
    assert _names(folder) == ["f"]


NO_ROOM = """
import resource, sys
from topocal.topo.errors import InputError
from topocal.topo.files import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_atomically(sys.argv[1], b"n" * 1_000_000)
except InputError as error:
    print(error)
"""


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    """The system stops the write after 100 kB, as a full disk or quota does."""
    target = tmp_path / "f"
    target.write_bytes(b"old")
    ran = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(target)], capture_output=True, text=True, check=True
    )
    assert "cannot be written: file too large" in ran.stdout
    assert target.read_bytes() == b"old"
    assert _names(tmp_path) == ["f"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A file system of 64 kB in a mount namespace of its own; skipped where there are none."""
    script = (
        "import sys; from pathlib import Path\n"
        "from topocal.topo.errors import InputError\n"
        "from topocal.topo.files import write_atomically\n"
        "target = Path(sys.argv[1]) / 'f'\n"
        "write_atomically(target, b'old')\n"
        "try:\n    write_atomically(target, b'n' * 1_000_000)\n"
        "except InputError as error:\n    print(error)\n"
        "print(target.read_bytes(), [p.name for p in target.parent.iterdir()])\n"
    )
    inner = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1"'
    try:
        ran = subprocess.run(
            ["unshare", "-rm", "sh", "-c", inner, "sh", str(tmp_path), sys.executable, script],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if "unshare" in ran.stderr or "mount" in ran.stderr:
        pytest.skip(f"no mount namespace here: {ran.stderr.strip()}")
    assert "cannot be written: no space left on device" in ran.stdout
    assert "b'old' ['f']" in ran.stdout
