"""ucx_perftest: outputs made for the tests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topocal.measure.importers.registry import import_any, sniff
from topocal.measure.importers.ucx import looks_like_ucx, parse_ucx
from topocal.topo.errors import TopocalError

HEADER = """\
+--------------+--------------+------------------------------+---------------------+-----------+
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  \
message rate (msg/s) |
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |\
  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+
"""

BOX = """\
| API:          protocol layer                             |
| Test:         tag match bandwidth                        |
| Message size: 104857600                                  |
"""

FINAL = """\
[thread 0]           5    10.0  2000.0  2000.0    50000.00   40000.00    500    500
Final:              10    10.0  2500.0  2500.0    41000.00   40000.00    400    400
"""

COMMANDS = (
    "CUDA_VISIBLE_DEVICES=2 ucx_perftest -t tag_bw -m cuda -s $((1024*1024*100)) -n 10 & sleep 1; "
    "CUDA_VISIBLE_DEVICES=5 ucx_perftest -t tag_bw -m cuda -s $((1024*1024*100)) -n 10 localhost\n"
)

MiB = 2.0**20


def rates(text: str) -> dict[str, tuple[float, float]]:
    """MiB/s and bytes of each sample that a fit uses."""
    return {
        s.name: (round(s.throughput_Bps / MiB, 3), s.pattern.total_bytes)
        for s in import_any(text, file="ucx.txt").best().samples
    }


def test_the_final_line_counts() -> None:
    assert sniff(HEADER + BOX + FINAL, file="x.txt").name == "ucx"
    assert rates(HEADER + BOX + FINAL) == {"client->server": (40000.0, 104857600.0)}


def test_devices_of_both_commands_are_the_ends() -> None:
    assert rates(COMMANDS + HEADER + FINAL) == {"gpu5->gpu2": (40000.0, 104857600.0)}
    alone = COMMANDS.split("; ")[0] + "\n"
    assert set(rates(alone + HEADER + FINAL)) == {"client->server"}


def test_without_a_size_it_is_that_of_the_time_of_one_message() -> None:
    (found,) = rates(HEADER + FINAL).values()
    assert found == (40000.0, 40000 * MiB * 2500e-6)


def test_a_get_comes_from_the_server() -> None:
    text = HEADER + BOX.replace("tag match bandwidth", "get latency / bandwidth") + FINAL
    assert set(rates(text)) == {"server->client"}


def test_an_older_line_without_a_stage() -> None:
    text = HEADER.replace("overhead", "latency") + BOX + FINAL.split("Final:")[1]
    assert rates(text) == {"client->server": (40000.0, 104857600.0)}


def test_a_run_that_was_cut_uses_its_last_figure() -> None:
    found = import_any(HEADER + BOX + FINAL.split("Final:")[0], file="x.txt")
    assert len(found.best().samples) == 1
    assert any("interim" in n for n in found.notes)


def test_small_messages_are_no_rate() -> None:
    found = import_any(HEADER + BOX.replace("104857600", "8") + FINAL, file="x.txt")
    assert not found.usable
    assert "small" in found.why_not()


def test_latencies_are_of_one_way() -> None:
    text = HEADER.replace("overhead", "latency") + BOX.replace("bandwidth", "latency") + FINAL
    (latency,) = import_any(text, file="x.txt").groups[0].latencies
    assert latency.seconds == 2500e-6


def test_of_two_tests_one_is_used() -> None:
    text = HEADER + BOX + FINAL + BOX.replace("tag match", "put") + FINAL.replace("40000", "90000")
    found = import_any(text, file="x.txt")
    assert [g.default for g in found.groups] == [True, False]
    assert any("tests differ" in n for n in found.notes)


def test_other_texts_are_not_taken() -> None:
    assert not looks_like_ucx("# OSU MPI Bandwidth Test\n# Size  Bandwidth (MB/s)\n1 2\n")


@given(st.lists(st.sampled_from((COMMANDS + HEADER + BOX + FINAL).splitlines()), max_size=20))
def test_any_lines_are_read_or_refused(lines: list[str]) -> None:
    try:
        assert parse_ucx("\n".join(lines), file="x.txt").groups is not None
    except TopocalError:
        return
