"""Lines of pages: what is a sample, what is left out, what is not understood."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from telemetry.sources.prometheus.page import LONGEST_LINE, PageReader, whole_lines
from tests.telemetry.sources.prometheus.pages import real_page


def read(*lines: str) -> list[tuple[str, str, float, float | None]]:
    found = PageReader().read(lines)
    return [(series.metric, series.labels_json, value, at) for series, value, at in found]


@pytest.mark.parametrize(
    ("line", "metric", "labels", "value", "at"),
    [
        ("vllm:a 1", "vllm:a", "{}", 1, None),
        ("vllm:a{} 1.5e3", "vllm:a", "{}", 1500, None),
        ('vllm:a {engine="0"} 2', "vllm:a", '{"engine":"0"}', 2, None),
        ('vllm:a{b="1",a="2"} 3', "vllm:a", '{"a":"2","b":"1"}', 3, None),
        ('vllm:a{b="x } 5",} 3', "vllm:a", '{"b":"x } 5"}', 3, None),
        (r'vllm:a{b="q\"s\\ \n"} 3', "vllm:a", r'{"b":"q\"s\\ \n"}', 3, None),
        ('vllm:a{b="ä"} 3', "vllm:a", r'{"b":"\u00e4"}', 3, None),
        ("vllm:a 3 1790000000123", "vllm:a", "{}", 3, 1790000000123),
        ("vllm:a 3 1790000000.123", "vllm:a", "{}", 3, 1790000000.123),
        ('vllm:a_sum{le="1"} 3 # {trace_id="}"} 0.5 1.2', "vllm:a_sum", '{"le":"1"}', 3, None),
        ('{__name__="vllm:a", engine="0"} 3 17', "vllm:a", '{"engine":"0"}', 3, 17),
        ("vllm:a\t4\r", "vllm:a", "{}", 4, None),
    ],
)  # fmt: skip
def test_a_sample(line: str, metric: str, labels: str, value: float, at: float | None) -> None:
    assert read(line) == [(metric, labels, value, at)]


def test_infinity_and_not_a_number() -> None:
    (_, _, up, _), (_, _, none, _) = read("vllm:a +Inf", "vllm:a NaN")
    assert up == math.inf
    assert math.isnan(none)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:a", "vllm:a{", 'vllm:a{b="1"', 'vllm:a{b="1} 3', "vllm:a{b=1} 3", "vllm:a x",
        "vllm:a 1 2 3", "<html>", "=1", "{} 1", 'vllm:a{b="1",b="2"} 3', "vllm:\x00a 1",
        'vllm:a{b="' + "x" * LONGEST_LINE + '"} 1',
    ],
)  # fmt: skip
def test_a_line_that_is_none_costs_itself_alone(line: str) -> None:
    reader = PageReader()
    assert [value for _, value, _ in reader.read([line, "vllm:b 7"])] == [7]
    assert reader.num_unread == 1
    assert reader.take_unread() == [line[:200].strip()]


def test_comments_and_blank_lines_are_nothing() -> None:
    reader = PageReader()
    assert list(reader.read(["# HELP a b", "#", "", "   ", "\r"])) == []
    assert reader.num_unread == 0


def test_a_real_page_is_read_whole() -> None:
    lines, cut = whole_lines(real_page())
    reader = PageReader()
    assert (cut, len(list(reader.read(lines))), reader.num_unread) == (None, 400, 0)


def test_series_that_were_seen_cost_less_than_new_ones() -> None:
    lines, _ = whole_lines(real_page())
    reader = PageReader()
    list(reader.read(lines))
    seen = seconds_for(lambda: list(reader.read(lines)))
    assert seen < seconds_for(lambda: list(PageReader().read(lines)))


def seconds_for(work: Callable[[], object]) -> float:
    begun = time.process_time()
    for _ in range(10):
        work()
    return time.process_time() - begun


def test_what_is_left_out_is_named() -> None:
    reader = PageReader()
    list(
        reader.read(["node_load1 1", 'python_gc{generation="0"} 1', 'python_gc{generation="1"} 1'])
    )
    assert reader.left_out == {"node_load1": 1, "python_gc": 2}


def test_series_that_are_never_the_same_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.sources.prometheus.page.MOST_SERIES", 10)
    reader = PageReader()
    lines = [f'vllm:a{{b="{number}"}} {number}' for number in range(95)]
    assert [value for _, value, _ in reader.read(lines)] == list(range(95))
    assert len(reader._known) <= 10


def test_a_page_that_ends_is_whole() -> None:
    assert whole_lines("a 1\nb 2\n") == (["a 1", "b 2"], None)
    assert whole_lines("a 1\n# EOF") == (["a 1"], None)


def test_the_family_in_which_a_page_was_cut_off_is_left_out() -> None:
    text = '# TYPE a counter\na 1\n# TYPE b histogram\nb_bucket{le="1"} 2\nb_bucket{le="2"} 3\nb_su'
    lines, cut = whole_lines(text)
    assert lines == ["# TYPE a counter", "a 1", "# TYPE b histogram"]
    assert cut == "b_su"


def test_without_comments_it_is_the_metric() -> None:
    lines, cut = whole_lines('a 1\nb{x="1"} 2\nb{x="2"} 3\nb{x="3"} 4')
    assert (lines, cut) == (["a 1"], "b")


def test_a_comment_that_was_cut_off_costs_nothing_but_is_told() -> None:
    assert whole_lines("a 1\n# TYPE b cou") == (["a 1"], "b")
