"""Whatever stands on a page, reading it ends, and each line is a sample, left out or counted."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from telemetry.sources.prometheus.engines import Engines
from telemetry.sources.prometheus.page import PageReader, whole_lines
from tests.telemetry.sources.prometheus.pages import real_page

PIECES = st.sampled_from(
    ["vllm:a", "up", "{", "}", "=", ",", '"', "\\", "\\n", " ", "\t", "#", "1", "e5", "NaN", "le",
     "engine", '="0"', "__name__", "ray_vllm_a", "-", "+Inf", "\x1b", "ä", "\r"]
)  # fmt: skip
LINES = st.lists(PIECES, max_size=14).map("".join)


def check(lines: list[str]) -> None:
    reader, engines = PageReader(), Engines("t")
    for series, value, _ in reader.read(lines):
        engines.learn(series, value)
        assert engines.numbers(series)
        assert isinstance(value, float)
    engines.rows(0)
    nothing = sum(line.startswith("#") or not line.strip() for line in lines)
    assert reader.num_unread + nothing <= len(lines)


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=5))
@example(["vllm:a{,} 1"])
@example(['vllm:a{"} 1'])
@example(["vllm:a{=} 1", 'vllm:a{="0"} 1', 'vllm:a{,,b="0"} 1', 'vllm:a{"x"="y"} 1'])
@example(['{__name__="vllm:a",__name__="vllm:b"} 1', 'vllm:a{__name__="b"} 1'])
def test_lines_of_pieces(lines: list[str]) -> None:
    check(lines)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=5))
def test_lines_of_anything(lines: list[str]) -> None:
    check(lines)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_real_page_cut_anywhere_has_no_number_that_was_not_there(data: st.DataObject) -> None:
    page = real_page()
    whole = set(page.split("\n"))
    cut = page[: data.draw(st.integers(0, len(page)))]
    lines, _ = whole_lines(cut)
    assert set(lines) <= whole
    check(lines)
