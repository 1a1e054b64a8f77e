"""A collector process that exports: over kills and restarts, past receivers that are down."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from telemetry.doctor import examine
from telemetry.exporters.status import ExportStatus, read_status
from telemetry.ring import RingRecorder
from telemetry.store.presence import find_collector
from tests.telemetry.collector.builders import (
    RINGS,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.exporters.receiver import Receiver, grpc_receiver


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with grpc_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield receiver


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    path = tmp_path / "log"
    path.mkdir()
    return path


@pytest.fixture
def ring(log: Path) -> Iterator[RingRecorder]:
    ring = ring_for(log)
    yield ring
    ring.close()


def requests(receiver: Receiver) -> list[int]:
    return [s.attributes["stepscope.request"] for s in receiver.spans if s.name == "llm_request"]


def wait_for(receiver: Receiver, num: int) -> None:
    receiver.wait_for(lambda: set(requests(receiver)) == set(range(num)))


def status_of(log: Path) -> ExportStatus:
    def read() -> ExportStatus | None:
        notice = find_collector(log)
        return notice and read_status(log, notice.pid)

    status: ExportStatus = wait_until(read)
    return status


def test_a_restart_exports_each_span_once(
    log: Path, ring: RingRecorder, receiver: Receiver
) -> None:
    for begin in (0, 20):
        record(ring, begin, begin + 20)
        with collector_process(log):
            wait_for(receiver, begin + 20)
    assert Counter(requests(receiver)) == Counter(range(40))
    told = {(s.name, *s.identity) for s in receiver.spans}
    rows_of_sql = rows(
        log, "SELECT name, trace_id, span_id, coalesce(parent_span_id, ''), start_ns, end_ns "
        "FROM request_spans",
    )  # fmt: skip
    assert told == set(rows_of_sql)


def test_a_killed_collector_loses_no_span_and_repeats_only_equal_ones(
    log: Path, ring: RingRecorder, receiver: Receiver
) -> None:
    for begin in (0, 20):
        record(ring, begin, begin + 20)
        with collector_process(log) as process:
            wait_for(receiver, begin + 20)
            process.send_signal(signal.SIGKILL)
            process.wait()
    told = Counter((s.name, *s.identity) for s in receiver.spans)
    assert len({span_id for _, _, span_id, *_ in told}) == len(told)
    assert set(requests(receiver)) == set(range(40))


def test_what_is_left_is_sent_at_the_end(
    log: Path, ring: RingRecorder, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    record(ring, 0, 5)
    with collector_process(log):
        wait_for_collector(log)
    assert sorted(requests(receiver)) == list(range(5))


def test_a_receiver_that_never_answers_does_not_hold_up_the_drain(
    log: Path, ring: RingRecorder, receiver: Receiver
) -> None:
    receiver.answers.clear()
    with collector_process(log) as process:
        wait_for_collector(log)
        record(ring, 0, 100)
        wait_until(lambda: rows(log, "SELECT count(*) FROM request_finishes") == [(100,)])
        record(ring, 100, 200)
        wait_until(lambda: rows(log, "SELECT count(*) FROM request_finishes") == [(200,)])
        assert rows(log, "SELECT count(*) FROM exports") == [(0,)]
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=15)
    assert process.returncode == 0


def test_a_receiver_that_refuses_is_counted_and_told_by_doctor(
    log: Path, ring: RingRecorder, receiver: Receiver
) -> None:
    receiver.is_refusing = True
    record(ring, 0, 5)
    with collector_process(log) as process:
        wait_until(lambda: status_of(log).signals[0].error)
        (check,) = [check for check in examine(log).checks if check.name == "traces"]
        assert (check.level, "not now" in check.text) == ("bad", True)
        assert f"0 spans to {receiver.endpoint} (grpc)" in check.text
        receiver.is_refusing = False
        wait_for(receiver, 5)
        wait_until(lambda: status_of(log).signals[0].error is None)
        (check,) = [check for check in examine(log).checks if check.name == "traces"]
        assert (check.level, "15 spans" in check.text) == ("good", True)
        process.terminate()
        _, told = process.communicate(timeout=30)
    assert told.count("are not taken by their receiver") == 1


def test_a_receiver_that_is_not_there_costs_the_record_nothing(
    log: Path, ring: RingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    record(ring, 0, 5)
    with collector_process(log):
        wait_until(lambda: status_of(log).signals[0].num_failures)
        assert rows(log, "SELECT count(*) FROM request_finishes") == [(5,)]


def test_settings_that_cannot_be_followed_are_told_and_the_record_goes_on(
    log: Path, ring: RingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("STEPSCOPE_METRICS_PORT", str(port))
        monkeypatch.setenv("STEPSCOPE_OTEL_STEPS", "all")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
        record(ring, 0, 5)
        with collector_process(log):
            problems = status_of(log).problems
            told = [check.text for check in examine(log).checks if check.name == "not exported"]
            wait_until(lambda: rows(log, "SELECT count(*) FROM request_finishes") == [(5,)])
    assert list(problems) == told
    assert [text.split(":")[0] for text in told] == [
        "STEPSCOPE_OTEL_STEPS is 'all'",
        "OTEL_TRACES_EXPORTER is 'carrier-pigeon'",
        f"the metrics page at port {port}",
    ]


def test_nothing_is_exported_or_told_without_being_asked_for(
    log: Path, ring: RingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(ring, 0, 5)
    with collector_process(log):
        wait_for_collector(log)
        wait_until(lambda: rows(log, "SELECT count(*) FROM request_finishes") == [(5,)])
        assert not (log / "exports.json").exists()


def test_collect_serves_the_page_that_its_flag_asks_for(log: Path, ring: RingRecorder) -> None:
    record(ring, 0, 5)
    command = (sys.executable, "-m", "stepscope", "collect", "--log", str(log))
    process = subprocess.Popen([*command, "--metrics-port", "0"], stderr=subprocess.DEVNULL)
    try:
        url = wait_until(lambda: status_of(log).metrics_url)
        engine = f'engine="{ring.engine:016x}"'
        wait_until(lambda: f"stepscope_engine_up{{{engine}}} 1.0" in page_at(url))
        (check,) = [check for check in examine(log).checks if check.name == "metrics page"]
        assert (check.level, check.text) == ("good", url)
        assert url.startswith("http://127.0.0.1:")
    finally:
        process.terminate()
        process.wait(timeout=30)
    assert not (log / "exports.json").exists()


def page_at(url: str) -> str:
    with urlopen(url) as answer:
        return str(answer.read().decode())
