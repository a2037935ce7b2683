"""Tables of rates, shifts, cost profiles and link calibrations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topocal.measure.importers.deepspeed_links import parse_deepspeed_links
from topocal.measure.importers.imported import Imported
from topocal.measure.importers.rate_table import looks_like_rate_table, parse_rate_table
from topocal.measure.importers.registry import IMPORTERS, import_any, sniff, sniff_or_none
from topocal.measure.importers.shift_rates import parse_shift_rates
from topocal.measure.importers.taccl import parse_taccl
from topocal.measure.samples import Measurements
from topocal.topo.errors import FormatError, InputError, TopocalError


def rates(measured: Measurements) -> dict[str, list[float]]:
    """GB/s of each pattern, in canonical order."""
    found: dict[str, list[float]] = {}
    for s in measured.samples:
        found.setdefault(s.name, []).append(round(s.throughput_Bps / 1e9, 6))
    return found


def table(text: str) -> Imported:
    return parse_rate_table(text, file="t.csv")


HEADERS = {
    "src and dst": "src,dst,bandwidth (GB/s)\n0,1,10\n",
    "from and to, tabs": "from\tto\trate_GBps\ngpu0\tgpu1\t10\n",
    "sender and receiver, another unit": "sender,receiver,throughput_Gbps\n0,1,80\n",
    "a pair": "pair,one_way_GBs\n0-1,10\n",
    "an arrow": "pair;rate_MB/s\n0->1;10000\n",
    "flows": "flows,total_GBs\n0>1,10\n",
    "a size and a time": "src,dst,bytes,time_us\n0,1,10000,1\n",
    "comments and blanks": "# a\n\nsource,destination,peak_GBps,note\n\n0,1,10,fine\n# b\n",
}


@pytest.mark.parametrize("text", HEADERS.values(), ids=HEADERS.keys())
def test_columns_are_known_by_what_they_mean(text: str) -> None:
    assert looks_like_rate_table(text)
    assert rates(table(text).best()) == {"gpu0->gpu1": [10.0]}


def test_flows_at_once_and_pattern_notation() -> None:
    found = table(
        'flows,kind,total_GBs\n0>4;1>5,p2p_write,54\nhost>0;host>1,h2d,110\n"3<-4,5",x,20\n'
    )
    assert rates(found.best()) == {
        "gpu0->gpu4 + gpu1->gpu5": [54.0],
        "cpu0->gpu0,gpu1": [110.0],
        "gpu3<-gpu4,gpu5": [20.0],
    }
    assert found.labels == ("p2p_write", "h2d", "x")


def test_reads_are_kept_from_writes() -> None:
    found = table("flows,kind,total_GBs\n0>4;1>8,p2p_write,56\n0>4;1>8,p2p_read,81\n")
    assert rates(found.best()) == {"gpu0->gpu4 + gpu1->gpu8": [56.0]}
    assert rates(found.select(operation="read")) == {"gpu0->gpu4 + gpu1->gpu8": [81.0]}


def test_both_ways_is_the_sum_of_a_pair() -> None:
    found = table("pair,p2p,one_way_GBps,both_ways_GBps\n1-0,off,11,17\n0-1,on,27,54\n0-2,on,,50\n")
    assert rates(found.best()) == {
        "gpu0->gpu1": [27.0],
        "gpu0<->gpu1": [54.0],
        "gpu0<->gpu2": [50.0],
    }
    assert rates(found.select(p2p="off")) == {"gpu1->gpu0": [11.0], "gpu0<->gpu1": [17.0]}


def test_both_ways_of_a_named_direction_is_that_directions_rate() -> None:
    text = (
        "machine,direction,one_way_GBps,both_ways_GBps,all_gpus_both_ways_GBps\n"
        "m,H2D,25-26,12-13,5-6\n"
        "m,D2H,25,24,\n"
    )
    found = table(text)
    assert rates(found.best()) == {
        "cpu0->gpu": [25.5],
        "gpu->cpu0": [25.0],
        "cpu0<->gpu": [36.5],
    }
    both = found.best().concurrent[0]
    assert [f.size_bytes / both.seconds / 1e9 for f in both.pattern.flows] == pytest.approx(
        [12.5, 24.0]
    )
    (reading,) = [r for g in found.groups for r in g.readings]
    assert reading.value == 5.5e9
    assert any("is a range" in n for n in found.notes)
    one_side = table("direction,both_ways_GBps\nh2d,12\n")
    assert one_side.groups[0].readings[0].reason == (
        "the rate of the other direction is not in the table"
    )


def test_machines_are_not_mixed() -> None:
    found = table("box,pair,one_way_GBps\na,0-1,10\na,0-2,11\nb,0-1,99\n")
    assert rates(found.best()) == {"gpu0->gpu1": [10.0], "gpu0->gpu2": [11.0]}
    assert rates(found.select(box="b")) == {"gpu0->gpu1": [99.0]}
    assert found.notes == ("box a is used, with the most figures; not box b",)


def test_the_first_word_of_a_name_is_a_set_up_where_figures_contradict() -> None:
    rows = "old A,0>1;2>3,10\nnew A,0>1;2>3,50\nnew B,0>1,25\n"
    found = table("name,flows,total_GBs\n" + rows)
    assert rates(found.best()) == {"gpu0->gpu1": [25.0], "gpu0->gpu1 + gpu2->gpu3": [50.0]}
    alike = table("name,flows,total_GBs\n" + rows.replace(",10", ",50"))
    assert len(alike.best().samples) == 3


def test_a_text_with_commas_and_without_quotes() -> None:
    found = table(
        "name,flows,total_GBs,note\ntwo, far apart,0>4;2>6,108,\nthree,0>1,53,a, b and c\n"
    )
    assert rates(found.best()) == {"gpu0->gpu1": [53.0], "gpu0->gpu4 + gpu2->gpu6": [108.0]}


def test_collectives_are_readings() -> None:
    found = table("gpus,p2p,busbw_GBps\n0 1 2 3,off,24\n")
    (reading,) = found.groups[0].readings
    assert reading.what == "busbw_GBps of 0 1 2 3"
    with pytest.raises(InputError, match="library's choice"):
        found.best()


def test_the_projects_own_tables_are_read_strictly() -> None:
    own = table("direction,root,peers,throughput_GBps\nin,3,4 5,27\n")
    assert rates(own.best()) == {"gpu3<-gpu4,gpu5": [27.0]}
    with pytest.raises(TopocalError, match=r"t\.csv:2"):
        table("source,destination,bandwidth_GBps\n0,1,-3\n")


BAD_TABLES = {
    "no rows": ("src,dst,rate_GBps\n", "has a header but no rows"),
    "a row too short": ("src,dst,rate_GBps\n0,1\n", "has 2 cells"),
    "no rate": ("src,dst,rate_GBps\n0,1,fast\n", "is 'fast'"),
    "a negative rate": ("src,dst,rate_GBps\n0,1,-5\n", "is '-5'"),
    "an absurd rate": ("src,dst,rate_GBps\n0,1,1e30\n", "is '1e30'"),
    "to itself": ("src,dst,rate_GBps\n1,gpu1,5\n", "to itself"),
    "no pair": ("pair,rate_GBps\nhello,5\n", "is no pair"),
    "no flows": ("flows,rate_GBps\n0+1,5\n", "is not a pattern"),
    "a flow twice": ("flows,rate_GBps\n0>1;0>1,5\n", "names a flow twice"),
    "no direction": ("direction,rate_GBps\nup,5\n", "does not say from where"),
    "a column twice": ("src,dst,dst,rate_GBps\n0,1,1,5\n", "names a column twice"),
    "a size that is none": ("src,dst,size,rate_GBps\n0,1,big,5\n", "is not a size"),
    "an open quote": ('src,dst,rate_GBps\n"0,1,5\n', "is no row of a table"),
    "both ways of two flows": ("flows,both_ways_GBps\n0>1;2>3,5\n", "needs one pair"),
    "a time of zero": ("src,dst,bytes,seconds\n0,1,5,0\n", "no positive number"),
}


@pytest.mark.parametrize(("text", "what"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_bad_tables_end_in_one_line(text: str, what: str) -> None:
    with pytest.raises(TopocalError) as caught:
        table(text)
    line = str(caught.value)
    assert line.startswith("t.csv")
    assert what in line
    assert "\n" not in line
    assert caught.value.remedy


def test_means_by_shift_are_readings_with_their_pattern() -> None:
    found = parse_shift_rates(
        "+1: 50 GB/s avg (200 total)   ← neighbours\n+2: 25.5 GB/s avg (102 total)\nand so on\n",
        file="s.txt",
    )
    one, two = found.groups[0].readings
    assert one.pattern is not None
    assert one.pattern.pairs == [(f"gpu{k}", f"gpu{(k + 1) % 4}") for k in range(4)]
    assert (one.value, two.value) == (50e9, 25.5e9)
    with pytest.raises(InputError, match="mean over flows that may differ"):
        found.best()
    (note,) = parse_shift_rates("+1: 5 GB/s avg\n+7: 5 GB/s avg\n", file="s.txt").notes
    assert "8, one more than the largest shift" in note


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("+1: 50 GB/s avg (200 total)\n+2: 50 GB/s avg (400 total)\n", "4 and of 8 GPUs"),
        ("+1: 50 GB/s avg (130 total)\n", "no number of GPUs"),
        ("+4: 50 GB/s avg (200 total)\n", "no rate of a shift among 4 GPUs"),
        ("+1: 0 GB/s avg\n", "no rate of a shift among 2 GPUs"),
        ("1: 50 GB/s\n", "has no line such as"),
    ],
)
def test_shifts_that_make_no_sense(text: str, what: str) -> None:
    with pytest.raises(FormatError, match=what):
        parse_shift_rates(text, file="s.txt")


def profile(**fields: object) -> str:
    return json.dumps(
        {
            "name": "Box_1KB",
            "gpus_per_node": 8,
            "nics_per_node": 1,
            "alpha": 30,
            "node_betas_list": [2.24, 4.5],
            "node_invbws_list": [32.24, 34.5],
            "remote_alpha": 260,
            "remote_beta": 10.25,
            "remote_invbw": 270.25,
        }
        | fields
    )


def test_taccl_costs_are_converted() -> None:
    found = parse_taccl(profile(), file="p.json")
    double, single, card = found.groups[0].costs
    # 30 x 0.01 us; 2.24 x 0.01 us per KB is 22.94 us per MB.
    assert double.alpha_s == pytest.approx(0.3e-6)
    assert double.beta_s_per_byte == pytest.approx(22.94e-12, rel=1e-3)
    assert single.capacity_Bps == pytest.approx(21.7e9, rel=1e-3)
    assert card.alpha_s == pytest.approx(2.6e-6)
    large = parse_taccl(
        profile(name="Box_1MB", alpha=0.3, node_betas_list=[23, 46], node_invbws_list=[23, 46],
                remote_alpha=2.6, remote_beta=105, remote_invbw=107),
        file="p.json",
    )  # fmt: skip
    for ours, theirs in zip(large.groups[0].costs, found.groups[0].costs, strict=True):
        assert ours.alpha_s == pytest.approx(theirs.alpha_s)
        assert ours.beta_s_per_byte == pytest.approx(theirs.beta_s_per_byte, rel=3e-3)
    with pytest.raises(InputError, match="no figure that a fit can use"):
        found.best()


def test_taccl_sums_that_disagree_are_told() -> None:
    found = parse_taccl(profile(remote_invbw=400), file="p.json")
    assert any("its invbw says 400" in n for n in found.notes)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "Box"},
        {"name": "Box_2MB"},
        {"name": None},
        {"alpha": "fast"},
        {"alpha": -1},
        {"node_betas_list": []},
        {"node_betas_list": {"a": 1}},
        {"node_betas_list": [0]},
        {"remote_alpha": None},
    ],
)
def test_bad_profiles(fields: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as caught:
        parse_taccl(profile(**fields), file="p.json")
    assert str(caught.value).startswith("p.json:1: ")


def links(**fields: object) -> str:
    return json.dumps({"tool": "calibrate_links", "schema": 2, "world_size": 4} | fields)


def test_deepspeed_records_by_their_pattern() -> None:
    text = links(
        backend="xccl",
        records=[
            {"pattern": "peer", "src": 0, "dst": 1, "bytes": 1000, "seconds": [1e-6, 2e-6]},
            {"pattern": "both_ways", "ranks": [0, 2], "bytes": 1000, "time_us": 4.0},
            {"pattern": "fan_in", "root": 3, "peers": [0, 1], "nbytes": 1000,
             "root_seconds": 1e-6, "seconds": 9.0},
            {"pattern": "fan_out", "root": 3, "peers": [0, 1], "size": 1000,
             "rank_seconds": {"0": [1e-6], "1": [3e-6]}},
            {"pattern": "relay", "shift": 1, "bytes": 1000, "seconds": 1e-6},
            {"pattern": "peer", "src": 0, "dst": 1, "bytes": 1000, "seconds": 9, "warmup": True},
            {"pattern": "local", "rank": 0, "bytes": 1000, "seconds": 1e-9},
            {"pattern": "peer", "src": 0, "bytes": 1000, "seconds": 1e-6},
        ],
    )  # fmt: skip
    found = parse_deepspeed_links(text, file="raw.json")
    by_name = rates(found.best())
    assert by_name["gpu0->gpu1"] == [1.0, 0.5]
    assert by_name["gpu0<->gpu2"] == [0.5]
    assert by_name["gpu3<-gpu0,gpu1"] == [2.0]
    assert by_name["gpu3->gpu0,gpu1"] == [pytest.approx(2 / 3, rel=1e-5)]
    (ring,) = found.select("relay").samples
    assert ring.pattern.pairs[3] == ("gpu3", "gpu0")
    assert found.best().set_aside[0].set_aside == "a warm-up"
    assert any(n.startswith("1 records do not say") for n in found.notes)
    assert found.groups[0].conditions["backend"] == "xccl"


def test_deepspeed_lists_by_pattern_and_nodes() -> None:
    text = links(
        schema_version=2,
        local_world_size=2,
        samples={"peer": [{"src": 0, "dst": 3, "bytes": 100, "seconds": 1e-6}]},
    )
    assert list(rates(parse_deepspeed_links(text, file="r").best())) == ["node0/gpu0->node1/gpu1"]


@pytest.mark.parametrize(
    ("schema", "what"),
    [(1, "without guessing"), (3, "newer than 2"), ("two", "names no schema"), (None, "no schema")],
)
def test_deepspeed_other_schemas_are_refused(schema: object, what: str) -> None:
    with pytest.raises(FormatError, match=what) as caught:
        parse_deepspeed_links(links(schema=schema), file="raw.json")
    assert str(caught.value).startswith("raw.json:1: ")


def test_every_importer_has_a_name_of_its_own() -> None:
    assert len({i.name for i in IMPORTERS}) == len(IMPORTERS)


def test_a_text_of_no_kind_is_refused_with_the_kinds() -> None:
    assert sniff_or_none("hello\n") is None
    with pytest.raises(FormatError, match=r"x\.txt: is no measurement of a known kind .*p2p, nvb"):
        sniff("hello\n", file="x.txt")
    with pytest.raises(InputError, match="unknown kind"):
        import_any("hello", file="x.txt", kind="tea")
    assert import_any("src,dst,rate_GBps\n0,1,1\n", file="x", kind="rate-table").labels == (
        "table",
    )
