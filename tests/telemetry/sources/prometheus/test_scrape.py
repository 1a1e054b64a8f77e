"""Live scrapes: samples where a page came, a gap that can be seen where none did."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import StepscopeError
from telemetry.sources.prometheus import command
from telemetry.sources.prometheus.fetch import Access, read_url
from telemetry.sources.prometheus.scrape import Scrape
from telemetry.sources.rows import SourceRows
from tests.telemetry.collector.builders import collecting, rows, wait_until
from tests.telemetry.sources.prometheus.pages import (
    PageServer,
    engine,
    real_page,
    text,
    vllm_page,
)

PAGE = vllm_page(num_requests_running=3, num_preemptions_total=5)


@pytest.fixture
def server() -> Iterator[PageServer]:
    server = PageServer(text(PAGE))
    yield server
    server.close()


def scrape_of(url: str, *, interval: float = 20.0, timeout: float = 20.0) -> Scrape:
    return Scrape(
        read_url("--scrape", url), Access(), interval_seconds=interval, timeout_seconds=timeout
    )


class Watched:
    """A source without its thread: each `once` is one scrape, and gives its rows."""

    def __init__(self, url: str, **settings: float) -> None:
        self.scrape = scrape_of(url, **settings)
        self.scrape._rows = self._rows = SourceRows()

    def once(self) -> list[dict[str, Any]]:
        self.scrape.scrape_once()
        return [
            dict(row) for tables in self._rows.take().values() for row in tables.get("samples", [])
        ]


def values(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {row["metric"]: row["value"] for row in rows}


def test_a_page_is_samples_of_one_moment_with_up(server: PageServer) -> None:
    before = time.time_ns()
    found = Watched(server.url).once()
    assert values(found) == {
        "vllm:num_requests_running": 3, "vllm:num_preemptions_total": 5, "up": 1,
    }  # fmt: skip
    (ts,) = {row["ts"] for row in found}
    assert before <= ts <= time.time_ns()
    assert {row["engine"] for row in found} == {engine(server.address)}
    assert server.seen[0][0] == "/metrics"


def test_a_real_page_is_taken_whole(server: PageServer) -> None:
    server.answer = text(real_page())
    assert len(Watched(server.url).once()) == 401


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (text("oops", status=500), "it answers 500 Internal Server Error"),
        (text("<html>"), "its page has no metric of vLLM or SGLang"),
        (text("node_load1 1\n"), "no metric of vLLM or SGLang: there are node_load1"),
        (text("process_start_time_seconds 1\n"), "no metric of vLLM"),
        (text(b"\xff\x00\xfe"), "no metric of vLLM"),
        (text(""), "no metric of vLLM"),
    ],
)
def test_no_page_is_no_sample_but_a_gap_with_its_reason(
    server: PageServer, answer: Any, reason: str
) -> None:
    watched = Watched(server.url)
    watched.once()
    assert watched.scrape.is_well
    server.answer = answer
    found = watched.once()
    assert not watched.scrape.is_well
    assert values(found) == {"up": 0}
    assert found[0]["engine"] == engine(server.address)
    assert reason in watched.scrape.status()
    server.answer = text(PAGE)
    assert values(watched.once())["up"] == 1
    assert watched.scrape.status().endswith(", 1 failed")


def test_one_that_hangs_is_a_gap_and_comes_back(server: PageServer) -> None:
    watched = Watched(server.url, timeout=0.3)
    server.answer = server.hang
    assert values(watched.once()) == {"up": 0}
    assert "no whole answer in 0.3 s" in watched.scrape.status()
    server.answer = text(PAGE)
    watched.scrape._client._timeout = 20.0
    assert values(watched.once())["up"] == 1


def test_one_that_dies_in_the_middle_is_a_gap(server: PageServer) -> None:
    def half(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(PAGE)))
        request.end_headers()
        request.wfile.write(PAGE[:40].encode())

    server.answer = half
    watched = Watched(server.url)
    assert values(watched.once()) == {"up": 0}


def test_each_rank_has_its_gap(server: PageServer) -> None:
    server.answer = text('vllm:a{engine="0"} 1\nvllm:a{engine="1"} 2\n')
    watched = Watched(server.url)
    watched.once()
    server.answer = text("", status=503)
    assert {row["engine"] for row in watched.once()} == {
        engine(server.address, "0"),
        engine(server.address, "1"),
    }


def test_a_restart_is_stored_as_it_is(server: PageServer) -> None:
    watched = Watched(server.url)
    watched.once()
    server.answer = text(vllm_page(num_preemptions_total=0))
    assert values(watched.once())["vllm:num_preemptions_total"] == 0


def test_a_failure_is_told_once_in_the_log(
    server: PageServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = text("", status=500)
    watched = Watched(server.url)
    with caplog.at_level("INFO", logger="stepscope.collector"):
        watched.once()
        watched.once()
        server.answer = text(PAGE)
        watched.once()
    assert [record.getMessage() for record in caplog.records] == [
        f"{server.address} could not be scraped: it answers 500 Internal Server Error",
        f"{server.address} answers again",
    ]


def test_a_page_of_ten_megabytes_is_survived_and_a_larger_one_is_a_gap(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "\x1b[31m\\\"'" + "y" * 2000
    lines = (f'vllm:a{{engine="0",x="{number}{hostile}"}} 1\n' for number in range(5_000))
    server.answer = text("".join(lines))
    assert len(Watched(server.url).once()) == 5_001
    monkeypatch.setattr("telemetry.sources.prometheus.scrape.MOST_PAGE_BYTES", 1 << 20)
    watched = Watched(server.url)
    assert values(watched.once()) == {"up": 0}
    assert "more than 1 MiB" in watched.scrape.status()


def test_it_goes_on_at_its_interval_until_it_is_closed(server: PageServer) -> None:
    scrape = scrape_of(server.url, interval=0.2)
    scrape.start(SourceRows())
    wait_until(lambda: scrape.num_pages >= 3)
    scrape.close()
    assert not scrape._thread.is_alive()


def test_closing_does_not_wait_for_one_that_hangs(server: PageServer) -> None:
    asked = threading.Event()

    def hang(request: BaseHTTPRequestHandler) -> None:
        asked.set()
        server.hang(request)

    server.answer = hang
    scrape = scrape_of(server.url)
    scrape.start(SourceRows())
    assert asked.wait(20)
    scrape.close()
    assert not scrape._thread.is_alive()
    assert scrape.num_failed == 0


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://h:8000", "h:8000"),
        ("http://h:8000/metrics", "h:8000"),
        ("http://h/", "h:80"),
        ("https://h", "h:443"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://h:8000/a/metrics", "h:8000/a/metrics"),
    ],
)
def test_a_target_is_called_what_prometheus_calls_it(url: str, target: str) -> None:
    assert scrape_of(url).target == target


def flags(*arguments: str) -> list[Any]:
    parser = argparse.ArgumentParser()
    command.add_flags(parser.add_argument_group("live"))
    return command.from_flags(parser.parse_args(arguments))


def test_each_address_is_a_source_and_they_do_not_ask_at_once() -> None:
    scrapes = flags("--scrape", "http://a:1", "--scrape", "http://b:1")
    assert [scrape.target for scrape in scrapes] == ["a:1", "b:1"]
    assert [scrape._offset for scrape in scrapes] == [0.0, 2.5]
    assert flags() == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--scrape", "a:8000"), "--scrape is 'a:8000': write an address"),
        (("--scrape", "http://a:1", "--scrape", "http://a:1/metrics"), "names .* twice"),
        (("--scrape", "http://a:1", "--scrape-interval", "0.01"), "between 0.2 and 3600"),
        (("--scrape", "http://a:1", "--scrape-interval", "nan"), "between 0.2 and 3600"),
        (("--scrape", "http://a:1", "--scrape-timeout", "0"), "between 0.1 and 120"),
    ],
)
def test_flags_that_make_no_sense_are_refused(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(StepscopeError, match=told):
        flags(*arguments)


def test_a_collector_writes_what_is_scraped(server: PageServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    scrape = scrape_of(server.url, interval=0.2)
    with collecting(log, sources=[scrape]) as collector:
        running = threading.Thread(target=collector.run)
        running.start()
        wait_until(lambda: scrape.num_pages >= 2)
        collector.stop()
        running.join()
    assert rows(log, "SELECT DISTINCT metric, value FROM samples ORDER BY metric") == [
        ("up", 1.0), ("vllm:num_preemptions_total", 5.0), ("vllm:num_requests_running", 3.0),
    ]  # fmt: skip
    assert rows(log, "SELECT api_url, model FROM engines") == [(server.address, "tiny-llama")]
