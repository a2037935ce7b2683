"""An emulated fabric with plain sockets: it passes what it should, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from quiet_machine import patiently
from real_messages import PATIENCE_S

from topocal.measure.fabric import faults
from topocal.measure.fabric.emulated import Fabric
from topocal.measure.fabric.namespaces import die_with_parent
from topocal.measure.fabric.shape import shape_of
from topocal.measure.fabric.shapes import two_nodes
from topocal.topo.errors import EmulationError, InputError, UnknownEndpointError
from topocal.topo.machines import b70

pytestmark = pytest.mark.alone

B70 = shape_of(b70()).blueprint
MiB = float(2**20)

TRAFFIC = r"""
import json, os, socket, sys, threading, time
flows, port = json.loads(sys.argv[1]), 5000
me = os.environ["TOPOCAL_ENDPOINT"]
finish = {}
def take(connection):
    room = bytearray(1 << 18)
    number = int.from_bytes(connection.recv(2, socket.MSG_WAITALL), "big")
    left = int(flows[number][3])
    while left:
        got = connection.recv_into(room, min(left, len(room)))
        assert got
        left -= got
    finish[number] = time.monotonic()
def give(connection, number):
    time.sleep(max(0.0, start - time.monotonic()))
    connection.sendall(bytes(int(flows[number][3])))
threads = []
expected = [k for k, f in enumerate(flows) if f[1] == me]
with socket.create_server(("", port)) as server:
    open_ones = []
    for k, (source, _, address, _) in enumerate(flows):
        if source == me:
            while True:
                try:
                    connection = socket.create_connection((address, port))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.01)
            connection.sendall(k.to_bytes(2, "big"))
            open_ones.append(connection)
            threads.append(threading.Thread(target=give, args=(connection, k)))
    for _ in expected:
        connection, _ = server.accept()
        open_ones.append(connection)
        threads.append(threading.Thread(target=take, args=(connection,)))
    print("ready", flush=True)
    start = float(input())
    for t in threads:
        t.start()
    for t in threads:
        t.join()
print(json.dumps({k: t - start for k, t in finish.items()}))
"""


def seconds_of(
    fabric: Fabric, pairs: Sequence[tuple[str, str]], size: float = 4 * MiB
) -> list[float]:
    """When each flow's last byte has come, of flows that start together."""
    blueprint = fabric.blueprint
    flows = [(s, d, blueprint.address(blueprint.rank[d]), size) for s, d in pairs]
    inputs, outputs, commands = [], [], []
    for name in sorted({end for pair in pairs for end in pair}):
        reader, writer = os.pipe()
        told, tell = os.pipe()
        command = [sys.executable, "-S", "-c", TRAFFIC, json.dumps(flows)]
        rank = blueprint.rank[name]
        commands.append(fabric.run(rank, command, preferred=True, stdin=told, stdout=writer))
        os.close(writer)
        os.close(told)
        outputs.append(os.fdopen(reader))
        inputs.append(tell)
    assert {output.readline() for output in outputs} == {"ready\n"}
    start = time.monotonic() + 0.2
    for tell in inputs:
        os.write(tell, f"{start}\n".encode())
        os.close(tell)
    found: dict[int, float] = {}
    for output in outputs:
        with output:
            found.update({int(k): t for k, t in json.loads(output.read()).items()})
    assert [command.wait(PATIENCE_S) for command in commands] == [0] * len(commands)
    return [found[k] for k in range(len(flows))]


def slowest(fabric: Fabric, pairs: Sequence[tuple[str, str]]) -> float:
    """Bytes per second of one flow: its size over the time until all are done, best of three."""
    return 4 * MiB / min(max(seconds_of(fabric, pairs)) for _ in range(3))


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """One fabric at a time: two would share the cores that carry them."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def possible() -> None:
    """Skips everything, with the reason, where there can be no fabric."""
    try:
        with Fabric(shape_of(b70(), endpoints=("gpu0", "gpu1")).blueprint):
            pass
    except EmulationError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def fabric(possible: None) -> Iterator[Fabric]:
    with Fabric(B70) as standing:
        yield standing


def run_text(fabric: Fabric, rank: int, script: str) -> str:
    reader, writer = os.pipe()
    command = fabric.run(rank, ["sh", "-c", script], stdout=writer)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    assert command.wait(PATIENCE_S) == 0
    return text


# What it passes.


def test_one_flow_gets_what_the_slowest_link_of_its_route_passes(fabric: Fabric) -> None:
    truth = B70.truth

    expected = {
        ("gpu1", "gpu3"): truth["gpu1->switch0"],
        ("gpu5", "gpu4"): min(truth["switch2->gpu4"], truth["gpu5->switch2"]),
    }
    found: dict[tuple[str, str], float] = {}

    def check() -> None:
        found.update({pair: slowest(fabric, [pair]) for pair in expected})
        assert found == pytest.approx(expected, rel=0.05)

    try:
        patiently(check)
    finally:
        # However busy the machine is.
        for pair, most in expected.items():
            assert found.get(pair, 0.0) < 1.05 * most


@pytest.mark.heavy
def test_flows_share_a_link_equally(fabric: Fabric) -> None:
    pairs = [("gpu1", "gpu0"), ("gpu2", "gpu0"), ("gpu6", "gpu0")]

    def check() -> None:
        times = seconds_of(fabric, pairs)
        expected = 3 * 4 * MiB / B70.truth["switch0->gpu0"]
        assert median(times) == pytest.approx(expected, rel=0.05)
        assert min(times) > 0.9 * expected

    patiently(check)


@pytest.mark.heavy
def test_directions_do_not_disturb_each_other(fabric: Fabric) -> None:
    def check() -> None:
        tries = [seconds_of(fabric, [("gpu2", "gpu3"), ("gpu3", "gpu2")]) for _ in range(3)]
        for k, name in enumerate(("gpu2->switch1", "gpu3->switch1")):
            expected = 4 * MiB / B70.truth[name]
            assert min(times[k] for times in tries) == pytest.approx(expected, rel=0.05)

    patiently(check)


@pytest.mark.heavy
def test_a_capacity_changes_while_it_stands(fabric: Fabric) -> None:
    def check() -> None:
        fabric.change("gpu6->switch3", 20e6)
        try:
            assert slowest(fabric, [("gpu6", "gpu7")]) == pytest.approx(20e6, rel=0.05)
            assert slowest(fabric, [("gpu7", "gpu6")]) > 40e6
            fabric.change("switch3->gpu7", 10e6)  # In the middle, not at the endpoint.
            assert slowest(fabric, [("gpu6", "gpu7")]) == pytest.approx(10e6, rel=0.05)
        finally:
            fabric.change("gpu6->switch3", B70.truth["gpu6->switch3"])
            fabric.change("switch3->gpu7", B70.truth["switch3->gpu7"])

    patiently(check)


@pytest.mark.heavy
def test_background_traffic_takes_its_share(fabric: Fabric) -> None:
    def check() -> None:
        alone = slowest(fabric, [("gpu0", "gpu1")])
        others = fabric.background("gpu4", "gpu1", 30e6)
        try:
            shared = slowest(fabric, [("gpu0", "gpu1")])
        finally:
            others.stop()
        # gpu1 takes in 56 MB/s: two senders get half of it each, the third gets nothing back.
        assert shared == pytest.approx(B70.truth["switch0->gpu1"] / 2, rel=0.1)
        assert alone > 1.5 * shared

    patiently(check)


@pytest.mark.heavy
def test_faults_show(possible: None) -> None:
    changed = faults.half_duplex(B70, "gpu2->switch1", 40e6)
    changed = faults.limit_ingress(changed, "gpu5", 25e6)
    changed = faults.limit_ingress(changed, "gpu7", 20e6, ["gpu4", "gpu5"])
    changed = faults.slow(changed, "switch0->socket0", 0.25)

    def check() -> None:
        with Fabric(changed) as fabric:
            both = max(seconds_of(fabric, [("gpu2", "gpu3"), ("gpu3", "gpu2")]))
            assert both == pytest.approx(2 * 4 * MiB / 40e6, rel=0.05)
            assert slowest(fabric, [("gpu4", "gpu5")]) == pytest.approx(25e6, rel=0.05)
            assert slowest(fabric, [("gpu4", "gpu7")]) == pytest.approx(20e6, rel=0.05)
            assert slowest(fabric, [("gpu6", "gpu7")]) > 40e6
            up = changed.truth["switch0->socket0"]
            assert slowest(fabric, [("gpu0", "gpu6")]) == pytest.approx(up, rel=0.05)
            assert slowest(fabric, [("gpu6", "gpu0")]) > 1.5 * up
            fabric.change("gpu2<->switch1", 20e6)
            assert slowest(fabric, [("gpu2", "gpu3")]) == pytest.approx(20e6, rel=0.05)

    patiently(check)


# Commands and hosts.


def test_a_command_knows_who_it_is(fabric: Fabric) -> None:
    text = run_text(fabric, 5, "echo $RANK $WORLD_SIZE $MASTER_ADDR $GLOO_SOCKET_IFNAME")
    assert text.split() == ["5", "8", B70.address(0), "eth0"]
    assert run_text(fabric, 5, "ls /sys/class/net >/dev/null; ip -br link").count("\n") == 2


def test_two_nodes_are_two_hosts(possible: None) -> None:
    own = os.uname().nodename
    with Fabric(shape_of(two_nodes()).blueprint) as fabric:
        names = [run_text(fabric, rank, "uname -n").strip() for rank in (0, 3, 4, 7)]
    assert names == ["node0", "node0", "node1", "node1"]
    assert os.uname().nodename == own


def test_a_child_process_enters(fabric: Fabric) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        die_with_parent()
        status = 1
        with suppress(BaseException):
            fabric.enter(3)
            names = sorted(p.name for p in Path("/proc/self/net/dev_snmp6").parent.glob("dev"))
            interfaces = re.findall(r"(\w+):", Path("/proc/self/net/dev").read_text())
            os.write(writer, json.dumps([names, interfaces, os.environ["RANK"]]).encode())
            status = 0
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    _, interfaces, rank = json.loads(text)
    assert {"lo", "eth0"} <= set(interfaces)
    assert not any(re.fullmatch(r"[lhbp]\d+", name) for name in interfaces)
    assert rank == "3"
    # The parent is where it was, and its fabric still answers.
    assert run_text(fabric, 0, "echo $RANK") == "0\n"


def test_what_cannot_be_done_is_said(fabric: Fabric) -> None:
    with pytest.raises(EmulationError, match="no such file"):
        fabric.run(0, ["/nonexistent/command"])
    with pytest.raises(EmulationError, match="no capacity of its own"):
        fabric.change("nothing", 1e6)
    with pytest.raises(InputError, match="a capacity of -1"):
        fabric.change("gpu0->switch0", -1)
    with pytest.raises(UnknownEndpointError):
        fabric.background("gpu0", "gpu9", 1e6)
    with pytest.raises(EmulationError, match="closed"):
        Fabric(B70).change("gpu0->switch0", 1e6)


def test_what_cannot_be_built_is_one_line_with_the_reason(possible: None) -> None:
    # gpu7's own end of its link is in its namespace; the middle has no such interface.
    broken = replace(B70, hops=(("socket0", "gpu0", "gpu7->switch3"),))
    with pytest.raises(EmulationError, match="cannot be built: bridge:") as caught, Fabric(broken):
        pass
    assert "\n" not in str(caught.value)


# What is left.

PARENT = """
import json, os, sys, time
from topocal.measure.fabric.shape import shape_of
from topocal.measure.fabric.emulated import Fabric
from topocal.topo.machines import b70
from topocal.measure.fabric.namespaces import die_with_parent
with Fabric(shape_of(b70()).blueprint) as fabric:
    for rank in range(8):
        fabric.run(rank, ["sh", "-c", "sleep 1000 & sleep 1000"])
    fabric.background("gpu0", "gpu7", 1e6)
    child = os.fork()
    if child == 0:
        die_with_parent()
        fabric.enter(2)
        time.sleep(1000)
    print("ready", flush=True)
    if sys.argv[1] == "wait":
        time.sleep(1000)
    os.kill(child, 9)
    os.waitpid(child, 0)
"""


def processes_below(parent: int) -> set[int]:
    """Every descendant, by what /proc says."""
    above = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                stat = (folder / "stat").read_text()
                above[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found, new = set[int](), {parent}
    while new:
        found |= new
        new = {pid for pid, of in above.items() if of in new} - found
    return found - {parent}


def networks_of(processes: set[int]) -> set[str]:
    found = set()
    for pid in processes:
        with suppress(OSError):
            found.add(str(Path(f"/proc/{pid}/ns/net").readlink()))
        with suppress(OSError):
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    target = str(file.readlink())
                    if target.startswith("net:"):
                        found.add(target)
    return found - {str(Path("/proc/self/ns/net").readlink())}


def holders_of(networks: set[str]) -> set[int]:
    everybody = {int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()}
    return {pid for pid in everybody if networks_of({pid}) & networks}


def alive(processes: set[int]) -> set[int]:
    found = set()
    for pid in processes:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found


def until(nothing: Callable[[], Any]) -> Any:
    """What is left in the end; what takes so long is not gone."""
    limit = time.monotonic() + PATIENCE_S
    while (left := nothing()) and time.monotonic() < limit:
        time.sleep(0.02)
    return left


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["success", "KILL", "TERM", "INT", "holder"])
def test_nothing_is_left_behind(possible: None, tmp_path: Path, how: str) -> None:
    interfaces = {p.name for p in Path("/sys/class/net").iterdir()}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, "end" if how == "success" else "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    if how != "success":
        # Holder, its child, commands, background traffic.
        assert not until(lambda: len(processes_below(parent.pid)) < 2 + 8 * 2 + 2)
    below = processes_below(parent.pid)
    networks = networks_of(below | {parent.pid})
    if how != "success":
        assert len(networks) == 1 + 8
    if how == "holder":
        # Its one direct child that is not the process that entered.
        (holder,) = (
            p for p in below if b"fabric.holder" in _command(p) and _above(p) == parent.pid
        )
        os.kill(holder, signal.SIGKILL)
        assert until(lambda: alive({p for p in below if _above(p) != parent.pid})) == set()
        parent.kill()
    elif how != "success":
        parent.send_signal(getattr(signal, f"SIG{how}"))
    parent.wait(PATIENCE_S)
    parent.stdout.close()
    assert until(lambda: alive(below)) == set()
    assert until(lambda: holders_of(networks)) == set()
    assert {p.name for p in Path("/sys/class/net").iterdir()} == interfaces
    assert list(tmp_path.iterdir()) == []


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _above(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


# The command.


TOPOCAL = (sys.executable, "-m", "topocal", "fabric")


def topocal(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOPOCAL, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_the_command_runs_at_every_endpoint(possible: None) -> None:
    done = topocal("--like", "two-nodes", "--", "sh", "-c", "echo $RANK:$LOCAL_RANK:$(uname -n)")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == [f"{r}:{r % 4}:node{r // 4}" for r in range(8)]


def test_without_privileges_a_user_namespace_gives_them(possible: None) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("drops privileges that it does not have, or setpriv is missing")
    # Root keeps what it takes to map itself into a user namespace, as any other user may.
    without = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-all"]
    done = subprocess.run(
        [*without, *TOPOCAL, "--", "sh", "-c", "uname"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if "no emulated fabric here" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout) == (0, "Linux\n" * 8), done.stderr


def test_a_refusal_is_one_line_with_the_reason(possible: None) -> None:
    """In a user namespace that may have no further networks."""
    script = 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", *TOPOCAL, "--", "true"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if "unshare:" in done.stderr.splitlines()[0][:9]:
        pytest.skip(done.stderr)
    assert done.returncode == 2
    assert done.stderr.startswith("topocal: no emulated fabric here: unshare: ")
    assert done.stderr.count("\n") == 1


def test_the_first_failure_ends_the_others(possible: None) -> None:
    done = topocal("--", "sh", "-c", "test $RANK != 3 && sleep 1000; exit 7")
    assert done.returncode == 7
    assert done.stderr == "topocal: rank 3 (gpu3) ended with 7; the others were ended\n"
    done = topocal("--", "sh", "-c", "test $RANK != 3 && sleep 1000; kill -9 $$")
    assert done.returncode == 128 + 9
    assert "SIGKILL" in done.stderr
    done = topocal("--", "/nonexistent")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
