"""Process, level, time and place of a line are told apart from what it says."""

from __future__ import annotations

import pytest

from telemetry.sources.vllm_log.heads import Bare, Head, dp_rank, parse
from telemetry.sources.vllm_log.moments import Moment


def headed(text: str) -> Head:
    head = parse(text)
    assert isinstance(head, Head)
    return head


def test_a_line_of_today_has_all_parts() -> None:
    assert parse("(EngineCore_DP1 pid=79) WARNING 11-29 12:07:43 [core.py:133] Hello, you") == Head(
        "EngineCore_DP1",
        79,
        "WARNING",
        Moment(None, 11, 29, 12, 7, 43),
        "core.py:133",
        "Hello, you",
    )


def test_v0_has_no_brackets_and_no_process() -> None:
    head = headed("INFO 11-29 12:07:43 metrics.py:455] Avg")
    assert (head.process, head.place, head.message) == (None, "metrics.py:455", "Avg")


def test_a_place_with_folders_is_a_file() -> None:
    head = headed("DEBUG 11-29 12:07:43 [v1/engine/core.py:9] x")
    assert (head.place, head.file) == ("v1/engine/core.py:9", "core.py")


@pytest.mark.parametrize(
    ("text", "process", "pid"),
    [
        ("(VllmWorkerProcess pid=7)", "VllmWorkerProcess", 7),
        ("(RayWorkerWrapper pid=263, ip=10.0.16.95)", "RayWorkerWrapper", 263),
        ("(task, pid=33)", "task", 33),
        ("(pid=776, ip=7.2.9.6)", None, 776),
        ("(Serve pid=1) (EngineCore pid=2)", "EngineCore", 2),
        ("[rank3]:", "rank3", None),
    ],
)
def test_the_innermost_process_counts(text: str, process: str | None, pid: int | None) -> None:
    head = headed(f"{text} INFO 11-29 12:07:43 [core.py:9] x")
    assert (head.process, head.pid) == (process, pid)


@pytest.mark.parametrize(
    ("process", "rank"),
    [
        ("EngineCore_DP1", 1),
        ("EngineCore_0", 0),
        ("EngineCore", None),
        ("Worker_DP12_TP1_EP1", 12),
        ("Worker_TP3", None),
        ("ApiServer_1", None),
        ("EngineCore_DP123456", None),
        (None, None),
    ],
)
def test_the_rank_is_in_the_name_of_a_process(process: str | None, rank: int | None) -> None:
    assert dp_rank(process) == rank


@pytest.mark.parametrize(
    "text", ["", "INFO:     Shutting down", "INFO 11-29 12:07 [core.py:9] x", "(a pid=x) y", "{}"]
)
def test_other_lines_are_bare(text: str) -> None:
    assert isinstance(parse(text), Bare)


def test_a_head_inside_of_a_line_is_none() -> None:
    assert isinstance(parse("he said INFO 11-29 12:07:43 [core.py:9] x"), Bare)
