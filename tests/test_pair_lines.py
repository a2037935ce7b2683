"""What counts as a line of a pair, and what of prose and predictions does not."""

from __future__ import annotations

import pytest

from topocal.measure.importers.pair_lines import looks_like_pair_lines, parse_pair_lines


@pytest.mark.parametrize(
    "text",
    [
        # A prediction is no measurement, and a fan is no pair.
        "gpu2<-gpu3,gpu5,gpu7, 256 MiB per flow: 24 ms, 33.5 GB/s in all",
        "gpu0->gpu1, 256 MiB per flow: 9.5 ms, 28.2 GB/s in all",
        "gpu0->gpu1,gpu2: 28.2 GB/s",
        "GPU 0 -> GPU 1 + GPU 2 -> GPU 3: 56 GB/s",
        "gpu1<-gpu0, gpu2: 28.2 GB/s",
        "gpu1<-gpu0,2,3: 28.2 GB/s",
        "<!DOCTYPE html>\n<p>gpu0->gpu1: 28.2 GB/s</p>",
    ],
)
def test_what_is_no_line_of_a_pair(text: str) -> None:
    assert not looks_like_pair_lines(text)


@pytest.mark.parametrize(
    "text",
    ["GPU 0 -> GPU 1: 24.5 GB/s", "gpu0 -> gpu1, 24.5 GB/s", "from GPU0 to GPU1 I get 24.5GB/s"],
)
def test_what_is(text: str) -> None:
    assert looks_like_pair_lines(text)
    (group,) = parse_pair_lines(text, file="f").groups
    (sample,) = group.measurements.samples
    assert sample.name == "gpu0->gpu1"
    assert sample.pattern.total_bytes / sample.seconds == pytest.approx(24.5e9)


def test_the_lines_are_named_where_most_is_something_else() -> None:
    text = "some words\n" * 6 + "GPU 0 -> GPU 1: 24.5 GB/s\n" + "more words\n" * 3
    (note,) = parse_pair_lines(text, file="f").notes
    assert note.startswith("line 7 names two devices and a rate and is read as measured")
    assert "other 9" in note
    assert not parse_pair_lines("GPU 0 -> GPU 1: 24.5 GB/s\n", file="f").notes
