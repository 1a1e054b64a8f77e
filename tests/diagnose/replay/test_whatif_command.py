"""`stepscope whatif` over a log, from its words to its exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from diagnose.replay.asked import parse_changes
from diagnose.replay.command import add_whatif
from diagnose.replay.settable import SETTINGS
from stepscope import build_parser
from telemetry import store
from tests.diagnose.logs import log_of
from tests.diagnose.replay.loads import recording, settings, storm
from tests.telemetry.log_builder import LogBuilder

PAGE = Path(__file__).parents[3] / "docs" / "whatif.md"


@pytest.fixture(scope="module")
def rows() -> LogBuilder:
    return recording(settings(), storm(Random(7), seconds=12.0)).rows()


class ClosedLog:
    """A log in memory, as `open_log` would give one of a folder."""

    is_live = False

    def __init__(self, builder: LogBuilder) -> None:
        self._log = log_of(builder)

    def query(self, sql: str, params: Any = None) -> Any:
        return self._log.query(sql, params)


@pytest.fixture
def whatif(rows: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command on the log, with few replays."""

    @contextlib.contextmanager
    def opened(path: Path) -> Iterator[ClosedLog]:
        yield ClosedLog(rows)

    monkeypatch.setattr(store, "open_log", opened)

    def run(*words: str) -> int:
        log = argparse.ArgumentParser(add_help=False)
        log.add_argument("--log", type=Path, default=Path("nowhere"))
        parser = argparse.ArgumentParser()
        add_whatif(parser.add_subparsers(required=True), [log])
        args = parser.parse_args(["whatif", "--replays", "1", *words])
        code: int = args.run(args)
        return code

    return run


def test_a_change_is_told_as_a_table_and_a_sentence(
    whatif: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif("--set", "max_num_seqs=6") == 0
    out = capsys.readouterr().out
    assert out.startswith("max_num_seqs 32 -> 6  ")
    assert re.search(r"^  preemptions +\d+ +\d+ +[+-]?\d+ %", out, re.MULTILINE)
    assert "max_num_seqs 32 -> 6 would avoid" in out
    assert "→" not in out
    assert "to do it   --max-num-seqs 6" in out


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "max_num_seqs=6,watermark=0.05"),
        ("--set", "max_num_seqs=6", "--set", "watermark=0.05"),
    ],
)
def test_settings_are_changed_together(
    whatif: Any, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert whatif(*words, "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)["predictions"]
    assert [(each["name"], each["after"]) for each in told["changes"]] == [
        ("max_num_seqs", 6),
        ("watermark", 0.05),
    ]


def test_a_comma_within_a_number_is_none_between_settings() -> None:
    assert parse_changes(["max_num_batched_tokens=8,192,max_num_seqs=6"]) == {
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 6,
    }


def test_ascii_is_ascii(whatif: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert whatif("--set", "max_num_seqs=6", "--ascii", "--all") == 0
    assert capsys.readouterr().out.isascii()


def test_a_scan_has_a_row_a_value_and_the_smallest_changes(
    whatif: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif("--scan", "max_num_seqs=8,5,3") == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\d+) ", out, re.MULTILINE) == ["32", "8", "5", "3"]
    assert "smallest change, of those tried, that removes" in out
    assert "x KV memory" in out


def test_json_is_json(whatif: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert whatif("--set", "max_num_seqs=6", "--clients", "closed:4", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["clients"]["kind"], told["clients"]["num_in_flight"]) == ("closed", 4)
    assert told["predictions"][0]["changes"][0]["after"] == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing is changed: give --set NAME=VALUE"),
        (("--set", "swap_space=4"), "cannot be changed: choose max_num_seqs"),
        (("--set", "max_num_seqs=6,max-num-seqs=8"), "max_num_seqs is given twice"),
        (("--set", "watermark=2"), "it is a share of the pool, from 0 to below 1"),
        (("--set", "max_num_seqs=6", "--clients", "shy"), "it takes open, closed or closed:N"),
        (("--set", "max_num_seqs=6", "--replays", "0"), "it must be 1 or more"),
        (("--set", "max_num_seqs=6", "--engine", "f" * 16), "no engine ffffffffffffffff"),
        (("--scan", "max_num_active_seqs"), "name the values"),
    ],
)
def test_a_wrong_word_is_a_usage_error(
    whatif: Any, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert whatif(*words) == 2
    assert message in capsys.readouterr().err


def test_a_log_that_cannot_be_replayed_is_three(
    whatif: Any, rows: LogBuilder, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setitem(rows.rows, "steps", rows.rows["steps"][:40] + rows.rows["steps"][50:])
    assert whatif("--set", "max_num_seqs=6") == 3
    assert "10 steps are missing" in capsys.readouterr().err


def test_every_setting_stands_on_the_page() -> None:
    assert [name for name in SETTINGS if f"`{name}`" not in PAGE.read_text()] == []


def test_every_command_of_the_page_can_be_typed() -> None:
    lines = re.findall(r"^stepscope whatif .*$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) > 5
    for line in lines:
        words = line.partition("#")[0].replace("HEX", "0" * 16).split()[1:]
        assert build_parser().parse_args(words).command == "whatif"
