"""`stepscope collect --kv-events...`, real publishers, `doctor` and `query`: as a user has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepscope import build_parser, main
from telemetry.sources.commands import from_flags
from tests.telemetry.collector.builders import wait_until
from tests.telemetry.sources.collecting import answers, collecting, source_lines, stepscope
from tests.telemetry.sources.kv_events.builders import payload, publisher, removed, stored


def test_events_reach_the_log_and_doctor_tells_of_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with publisher() as bound:
        flags = ("--kv-events", bound.address, "--kv-events-bind", "tcp://127.0.0.1:0")
        with collecting(log, *flags):
            (line,) = source_lines(log)
            (_, free) = re.findall(r"tcp://[\d.]+:\d+", line)
            with publisher(free, binds=False) as connecting:
                for number, told in enumerate((bound, connecting)):
                    told.wait_for_listener()
                    told.send(0, payload(stored(b"a", b"b"), removed(b"a"), rank=number))
                counted = "SELECT kind, sum(num_blocks)::BIGINT AS n FROM kv_events GROUP BY kind"
                both = [{"kind": "removed", "n": 2}, {"kind": "stored", "n": 4}]
                wait_until(lambda: answers(log, f"{counted} ORDER BY kind") == both)
                doctor = stepscope("doctor", "--log", str(log)).stdout
                asked = stepscope("query", "kv-blocks-stored-again", "--log", str(log))
                assert asked.returncode == 0, asked.stderr
    assert re.search(rf"✓ source +KV events at {bound.address} \(1 connected\): 1 messages", doctor)
    ranks = answers(log, "SELECT dp_rank, block_size FROM engines ORDER BY dp_rank")
    assert ranks == [{"dp_rank": rank, "block_size": 16} for rank in (0, 1)]
    hashes = "SELECT count(DISTINCT block_hashes) AS n FROM kv_events WHERE kind = 'removed'"
    assert answers(log, hashes) == [{"n": 1}]


def test_without_a_flag_nothing_is_listened_to() -> None:
    assert from_flags(build_parser().parse_args(["collect"])) == []


def test_flags_name_many_addresses() -> None:
    words = ["collect", "--kv-events", "tcp://a:1", "tcp://b:2-3", "--kv-events-bind", "tcp://*:4"]
    (source,) = from_flags(build_parser().parse_args(words))
    endpoints = source.endpoints  # type: ignore[attr-defined]
    assert [(each.address, each.binds) for each in endpoints] == [
        ("tcp://a:1", False),
        ("tcp://b:2", False),
        ("tcp://b:3", False),
        ("tcp://*:4", True),
    ]


def test_an_address_that_is_none_stops_collect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", "--kv-events", "localhost:5557", "--log", str(tmp_path)]) == 2
    assert "--kv-events is 'localhost:5557': write tcp://HOST:PORT" in capsys.readouterr().err
