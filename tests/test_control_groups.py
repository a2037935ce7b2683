"""Memory within the limits of control groups: as files say it, and in groups of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from real_messages import PATIENCE_S, children, pausing_after, topocal, wait_for_batches

from topocal.measure.calibration import read_calibration
from topocal.measure.control_groups import room_in_groups
from topocal.measure.design import design
from topocal.measure.host_facts import free_host_bytes
from topocal.measure.plan import write_plan
from topocal.topo.machines import b70

MEMINFO = "MemTotal: 64 kB\nMemFree: 1 kB\nMemAvailable:   32 kB\n"


def put(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


#   What the files say.                                        What is left.
SECOND = "0::/job/step\n"
FIRST = "5:cpu,cpuacct:/job\n4:memory:/job/step\n1:name=systemd:/\n"
ROOMS = {
    "no group": ({}, None),
    "no limit": (
        {
            "proc/self/cgroup": SECOND,
            "sys/fs/cgroup/job/step/memory.max": "max\n",
            "sys/fs/cgroup/job/step/memory.current": "1000\n",
        },
        None,
    ),
    "its own": (
        {
            "proc/self/cgroup": SECOND,
            "sys/fs/cgroup/job/step/memory.max": "5000\n",
            "sys/fs/cgroup/job/step/memory.current": "1000\n",
        },
        4000,
    ),
    "one above it is tighter": (
        {
            "proc/self/cgroup": SECOND,
            "sys/fs/cgroup/job/step/memory.max": "5000\n",
            "sys/fs/cgroup/job/step/memory.current": "1000\n",
            "sys/fs/cgroup/job/memory.max": "6000\n",
            "sys/fs/cgroup/job/memory.current": "5500\n",
        },
        500,
    ),
    "the outermost": (
        {
            "proc/self/cgroup": SECOND,
            "sys/fs/cgroup/memory.max": "3000\n",
            "sys/fs/cgroup/memory.current": "9000\n",
        },
        0,
    ),
    "slowed down before it is full": (
        {
            "proc/self/cgroup": SECOND,
            "sys/fs/cgroup/job/step/memory.max": "max\n",
            "sys/fs/cgroup/job/step/memory.high": "2000\n",
            "sys/fs/cgroup/job/step/memory.current": "500\n",
        },
        1500,
    ),
    "files that were read are dropped": (
        {
            "proc/self/cgroup": SECOND,
            "sys/fs/cgroup/job/step/memory.max": "5000\n",
            "sys/fs/cgroup/job/step/memory.current": "4500\n",
            "sys/fs/cgroup/job/step/memory.stat": "anon 500\nfile 4000\ninactive_file 3900\n",
        },
        4400,
    ),
    "first version": (
        {
            "proc/self/cgroup": FIRST,
            "sys/fs/cgroup/memory/job/step/memory.limit_in_bytes": "5000\n",
            "sys/fs/cgroup/memory/job/step/memory.usage_in_bytes": "4500\n",
            "sys/fs/cgroup/memory/job/step/memory.stat": "inactive_file 1\n"
            "total_inactive_file 1000\n",
        },
        1500,
    ),
    "first version: a container that knows its host's path": (
        {
            "proc/self/cgroup": "4:memory:/docker/0123\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
        },
        6000,
    ),
    "both versions: memory is the first's": (
        {
            "proc/self/cgroup": FIRST + "0::/job\n",
            "sys/fs/cgroup/unified/job/cgroup.procs": "",
            "sys/fs/cgroup/memory/job/step/memory.limit_in_bytes": "5000\n",
            "sys/fs/cgroup/memory/job/step/memory.usage_in_bytes": "0\n",
        },
        5000,
    ),
    "a namespace that begins below": (
        {
            "proc/self/cgroup": "0::/../other\n",
            "sys/fs/cgroup/memory.max": "3000\n",
            "sys/fs/cgroup/memory.current": "1000\n",
        },
        2000,
    ),
    "nonsense": (
        {
            "proc/self/cgroup": "a line\n\n0::/job\n4:memory\n",
            "sys/fs/cgroup/job/memory.max": "²\n",
            "sys/fs/cgroup/job/memory.current": "-5\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9" * 400,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1",
        },
        None,
    ),
}


@pytest.mark.parametrize("name", ROOMS)
def test_room_in_groups(name: str, tmp_path: Path) -> None:
    files, room = ROOMS[name]
    assert room_in_groups(put(tmp_path, files)) == room


def test_what_the_host_has_is_the_most(tmp_path: Path) -> None:
    root = put(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": SECOND})
    assert free_host_bytes(root) == 32 * 1024
    put(root, {"sys/fs/cgroup/memory.max": "40000", "sys/fs/cgroup/memory.current": "1000"})
    assert free_host_bytes(root) == 32 * 1024
    put(root, {"sys/fs/cgroup/memory.max": "30000"})
    assert free_host_bytes(root) == 29_000


# In groups of this machine, where it lets us make them.


def own_group() -> tuple[Path, str] | None:
    """Where a group for memory could be made, and what its limit is called."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            if (folder / "memory.limit_in_bytes").exists():
                return folder, "memory.limit_in_bytes"
        elif number == "0" and not controllers:
            folder = Path("/sys/fs/cgroup") / path.lstrip("/")
            if (folder / "memory.current").exists():
                return folder, "memory.max"
    return None


class Group:
    """A control group below our own."""

    def __init__(self, folder: Path, limit: str) -> None:
        self.folder, self._limit = folder, limit

    def allow(self, bytes_: int) -> None:
        (self.folder / self._limit).write_text(str(bytes_))

    def enter(self) -> None:
        """In a child, before it is another program."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def most_used(self) -> int:
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with suppress(OSError):
                return int((self.folder / name).read_text())
        return 0


@pytest.fixture
def group() -> Iterator[Group]:
    found = own_group()
    if found is None:
        pytest.skip("no control group accounts for memory here")
    parent, limit = found
    folder = parent / f"topocal-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        if not (folder / limit).exists():
            pytest.skip("groups that are made here do not account for memory")
        yield Group(folder, limit)
    finally:
        # Who has ended leaves the group a moment later.
        for _ in range(100):
            with suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)
        else:
            pytest.fail("somebody is still in the group")


LEFT = (
    "from topocal.measure.host_facts import free_host_bytes\n"
    "before = free_host_bytes()\n"
    "held = bytearray(64 << 20)\n"
    "print(before, before - free_host_bytes())\n"
)


def test_a_group_s_limit_is_seen(group: Group) -> None:
    group.allow(300 << 20)
    ran = subprocess.run(
        [sys.executable, "-c", LEFT], preexec_fn=group.enter, capture_output=True, text=True
    )
    before, taken = map(int, ran.stdout.split())
    assert (100 << 20) < before < (300 << 20)
    assert (60 << 20) < taken < (80 << 20)


def measure(folder: Path, group: Group, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=folder,
        preexec_fn=group.enter,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


MEASURE = ("measure", "plan.json", "-o", "c.json", "--spawn", "2", "--backend", "gloo")


def planned(folder: Path, size_bytes: float) -> Path:
    """A folder with a plan; each of two ranks has two buffers of the size."""
    made = design(b70(), endpoints=["gpu0", "gpu1"], sizes_bytes=[size_bytes], repeats=3)
    write_plan(made, folder / "plan.json")
    return folder


@pytest.mark.heavy
def test_buffers_that_a_group_has_no_room_for_are_refused(tmp_path: Path, group: Group) -> None:
    pytest.importorskip("torch", reason="measuring needs torch")
    folder = planned(tmp_path, 2.0**28)
    group.allow(1 << 30)
    process = measure(folder, group, *topocal(*MEASURE))
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert "and 1 more on its host need 1 GiB of buffers, and " in err
    assert len(err.splitlines()) == 1
    assert group.most_used < (1 << 30)
    assert not (folder / "c.json").exists()


EATER = """
import sys
from pathlib import Path

group = Path(sys.argv[1])

def killed():
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            words = (group / name).read_text().split()
            return int(words[words.index("oom_kill") + 1])

held = []
while not killed():
    held.append(bytearray(b"x" * (8 << 20)))
"""
"""Takes memory until the kernel has ended somebody for it, and now and then itself as well."""


@pytest.mark.heavy
def test_who_is_ended_for_a_groups_memory_is_named(tmp_path: Path, group: Group) -> None:
    pytest.importorskip("torch", reason="measuring needs torch")
    folder = planned(tmp_path, 2.0**16)
    group.allow(1 << 30)
    process = measure(folder, group, *pausing_after(1, *MEASURE))
    wait_for_batches(process, folder / "c.json.journal", 1)
    # Whom the kernel takes first.
    Path(f"/proc/{children(process)[1]}/oom_score_adj").write_text("1000")
    subprocess.run([sys.executable, "-c", EATER, str(group.folder)], preexec_fn=group.enter)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert err == (
        "topocal: rank 1 (gpu1) was killed by SIGKILL; if nobody did, the kernel was out of "
        "memory: see dmesg; what was measured is in c.json.journal; go on with --resume\n"
    )
    again = measure(folder, group, *topocal(*MEASURE, "--resume"))
    _, err = again.communicate(timeout=PATIENCE_S)
    assert (again.returncode, err) == (0, "")
    assert read_calibration(folder / "c.json").samples
