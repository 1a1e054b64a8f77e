"""A window of a Prometheus server: a real one, and answers of others."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import pytest

from telemetry.errors import ImportRefused
from telemetry.sources.prometheus.dump import import_dump
from telemetry.sources.prometheus.fetch import Access, read_url
from telemetry.sources.prometheus.server import PrometheusServer, Window
from telemetry.sources.prometheus.window import import_window
from telemetry.sources.telling import ImportTold
from tests.telemetry.collector.builders import wait_until
from tests.telemetry.exporters.test_scrape import PROMETHEUS, prometheus
from tests.telemetry.sources.prometheus.pages import (
    PageServer,
    engine,
    real_page,
    rows,
    serving,
    text,
)

PROMTOOL = shutil.which("promtool")
LENGTH = re.compile(r"\[(\d+)ms\]$")
COUNTER = 'vllm:num_preemptions_total{engine="0",model_name="tiny-llama"}'


def server_at(url: str, match: list[tuple[str, str]] | None = None) -> PrometheusServer:
    return PrometheusServer(read_url("SOURCE", url), Access(), match or [])


def bring_window(log: Path, server: PrometheusServer, window: Window) -> ImportTold:
    return import_window(log, server, window, lambda done, total: None)


# ------------------------------------------------------------------------------ a real server


@dataclass(frozen=True)
class Scraped:
    """What a real Prometheus has scraped, and of whom."""

    url: str
    target: str
    window: Window
    points: list[tuple[int, float]]
    """Of the counter of preemptions: ms, value."""
    ups: list[int]
    """When a scrape was tried, in ms; on a busy machine some may have failed."""
    database: Path

    def num_samples(self, after_ms: int = 0) -> int:
        """Returns how many samples of the engine there are: 400 on each page, and `up`."""
        num_pages = sum(ms > after_ms for ms, _ in self.points)
        return 400 * num_pages + sum(ms > after_ms for ms in self.ups)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A Prometheus that scraped a real page whose counter rises, and falls to 0 once."""
    if PROMETHEUS is None:
        pytest.skip("no prometheus binary: apt-get install prometheus")
    counts = itertools.chain(range(60, 66), itertools.count())
    page = re.sub(f"{re.escape(COUNTER)} .*", f"{COUNTER} COUNT", real_page())

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = page.replace("COUNT", str(next(counts)))
        text(body, Content_Type="text/plain; version=0.0.4")(request)

    start = time.time_ns() // 10**6
    directory = tmp_path_factory.mktemp("prometheus")
    with (
        serving(answer) as engines,
        serving(text("node_load1 3\n", Content_Type="text/plain; version=0.0.4")) as node,
        prometheus(directory, {"vllm": engines.address, "node": node.address}) as server,
    ):
        wait_until(lambda: len(engines.seen) >= 12, 90)
        query = f"{COUNTER.partition('{')[0]}[10m]"
        wait_until(lambda: len(server.ask(query)[0]["values"]) >= 11)
        (found,) = server.ask(query)
        points = [(round(at * 1000), float(value)) for at, value in found["values"]]
        window = Window(start_ms=start, end_ms=points[-1][0])
        (tried,) = server.ask(f'up{{instance="{engines.address}"}}[10m]')
        ups = [ms for at, _ in tried["values"] if (ms := round(at * 1000)) <= window.end_ms]
        yield Scraped(server.url, engines.address, window, points, ups, directory / "tsdb")


def test_a_window_is_what_was_scraped(scraped: Scraped, tmp_path: Path) -> None:
    told = bring_window(tmp_path, server_at(scraped.url), scraped.window)
    number = engine(scraped.target)
    found = rows(
        tmp_path,
        "SELECT engine, ts, value FROM samples WHERE metric = 'vllm:num_preemptions_total' "
        "ORDER BY ts",
    )
    assert found == [(number, ms * 10**6, value) for ms, value in scraped.points]
    assert rows(tmp_path, "SELECT DISTINCT engine FROM samples") == [(number,)]
    assert told.num_rows == scraped.num_samples()


def test_its_engine_is_described_and_its_reset_seen(scraped: Scraped, tmp_path: Path) -> None:
    bring_window(tmp_path, server_at(scraped.url), scraped.window)
    assert rows(
        tmp_path,
        "SELECT api_url, source, model, num_usable_blocks, started_ts // 1000000000 FROM engines",
    ) == [(scraped.target, "vllm", "tiny-llama", 63, 1_795_953_110)]
    found = rows(tmp_path, "SELECT num_preemptions, is_reset FROM metric_intervals ORDER BY ts")
    rises = [after - before for (_, before), (_, after) in itertools.pairwise(scraped.points)]
    assert min(rises) < 0
    assert found[1:] == [(rise, False) if rise >= 0 else (None, True) for rise in rises]


def test_windows_that_overlap_are_in_the_log_once(scraped: Scraped, tmp_path: Path) -> None:
    server, window = server_at(scraped.url), scraped.window
    middle = scraped.points[5][0]
    first = Window(start_ms=window.start_ms, end_ms=middle)
    bring_window(tmp_path, server, first)
    told = bring_window(tmp_path, server, window)
    assert told.num_rows == scraped.num_samples(after_ms=middle)
    num_there = scraped.num_samples() - told.num_rows
    assert any(note.endswith(f"twice: {num_there:,}") for note in told.notes)
    with pytest.raises(ImportRefused, match="already"):
        bring_window(tmp_path, server, window)
    assert rows(tmp_path, "SELECT count(*), count(DISTINCT (ts, metric, labels)) FROM samples") == [
        (scraped.num_samples(),) * 2
    ]


def test_small_slices_give_the_same(
    scraped: Scraped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.sources.prometheus.server.LONGEST_SLICE_MS", 700)
    monkeypatch.setattr("telemetry.sources.prometheus.server.SHORTEST_SLICE_MS", 100)
    told = bring_window(tmp_path, server_at(scraped.url), scraped.window)
    assert told.num_rows == scraped.num_samples()


def test_a_step_gives_the_last_of_each_and_nothing_for_none(
    scraped: Scraped, tmp_path: Path
) -> None:
    end = scraped.points[-1][0]
    window = Window(start_ms=end - 60_000, end_ms=end, step_ms=1_000)
    told = bring_window(tmp_path, server_at(scraped.url), window)
    found = rows(
        tmp_path,
        "SELECT ts, value FROM samples WHERE metric = 'vllm:num_preemptions_total' ORDER BY ts",
    )
    expected = {}
    for ms, value in scraped.points:
        expected[end - (end - ms) // 1000 * 1000] = value
    assert found == [(ms * 10**6, value) for ms, value in sorted(expected.items())]
    assert any("only the last sample" in note for note in told.notes)


def test_only_series_that_match(scraped: Scraped, tmp_path: Path) -> None:
    server = server_at(scraped.url, [("job", "vllm"), ("instance", scraped.target)])
    assert bring_window(tmp_path / "a", server, scraped.window).num_rows
    with pytest.raises(ImportRefused, match="has nothing of a vLLM or an SGLang in this window"):
        bring_window(tmp_path / "b", server_at(scraped.url, [("job", 'no"ne')]), scraped.window)


def test_a_window_without_samples_is_refused(scraped: Scraped, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="has nothing of a vLLM or an SGLang in this window"):
        bring_window(tmp_path, server_at(scraped.url), Window(start_ms=1_000_000, end_ms=2_000_000))
    assert not list(tmp_path.iterdir())


def test_a_question_that_the_server_refuses_is_told(scraped: Scraped) -> None:
    server = server_at(scraped.url)
    with pytest.raises(ImportRefused, match=r"cannot be read: .*parse error"):
        server.series("{", scraped.window)


def test_its_database_dumped_to_a_file_is_the_same(scraped: Scraped, tmp_path: Path) -> None:
    if PROMTOOL is None:
        pytest.skip("no promtool binary: apt-get install prometheus")
    limits = [f"--min-time={scraped.window.start_ms}", f"--max-time={scraped.window.end_ms}"]
    dump = tmp_path / "dump.txt"
    with dump.open("wb") as file:
        subprocess.run(
            [PROMTOOL, "tsdb", "dump", *limits, str(scraped.database)],
            stdout=file, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    log = tmp_path / "log"
    import_dump(log, dump, "dump", lambda done, total: None)
    told = bring_window(log, server_at(scraped.url), scraped.window)
    assert told.num_rows == 0
    assert rows(log, "SELECT DISTINCT engine FROM samples") == [(engine(scraped.target),)]
    assert rows(log, "SELECT count(*) FROM samples") == [(scraped.num_samples(),)]


def test_a_federated_page_is_one_scrape(scraped: Scraped, tmp_path: Path) -> None:
    asked = urlencode({"match[]": '{__name__=~"vllm:.*"}'})
    with urlopen(f"{scraped.url}/federate?{asked}") as answer:
        page = tmp_path / "federate.txt"
        page.write_bytes(answer.read())
    log = tmp_path / "log"
    told = import_dump(log, page, "federate", lambda done, total: None)
    assert told.num_unread == 0
    assert rows(log, "SELECT DISTINCT engine, ts // 1000000000 > 1700000000 FROM samples") == [
        (engine(scraped.target), True)
    ]


# --------------------------------------------------------------------------- answers of others


def api(answers: Callable[[str, dict[str, str]], tuple[int, Any]]) -> Callable[..., None]:
    """Answers like a Prometheus: `answers` gives status and JSON for a path and its question."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        status, content = answers(parts.path, asked)
        text(content if isinstance(content, str) else json.dumps(content), status)(request)

    return answer


def success(data: Any) -> tuple[int, Any]:
    return 200, {"status": "success", "data": data}


class Limited:
    """A server with one series, of a sample a second, that refuses slices of over `most_ms`."""

    def __init__(self, most_ms: int) -> None:
        self.most_ms = most_ms
        self.lengths: list[int] = []

    def __call__(self, path: str, asked: dict[str, str]) -> tuple[int, Any]:
        labels = {"__name__": "vllm:a", "instance": "h:8000", "engine": "0"}
        if path.endswith("/series"):
            return success([labels])
        match = LENGTH.search(asked["query"])
        assert match is not None
        length = int(match[1])
        if "vllm" not in asked["query"]:
            return success({"resultType": "matrix", "result": []})
        self.lengths.append(length)
        if length > self.most_ms:
            return 422, {"status": "error", "error": "query processing would load too many samples"}
        end = round(float(asked["time"]) * 1000)
        seconds = range((end - length) // 1000, end // 1000 + 1)  # both ends, as Prometheus 2 does
        values = [[second, str(second)] for second in seconds]
        return success({"resultType": "matrix", "result": [{"metric": labels, "values": values}]})


def test_a_slice_that_is_refused_is_halved_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    limited = Limited(30_000)
    window = Window(start_ms=1_790_000_000_000, end_ms=1_790_000_100_000)
    with serving(api(limited)) as server:
        told = bring_window(tmp_path, server_at(server.url), window)
    assert limited.lengths == [100_000, 50_000, 25_000, 25_000, 25_000, 25_000]
    assert told.num_rows == 100
    assert rows(tmp_path, "SELECT min(value), max(value) FROM samples") == [
        (1_790_000_001.0, 1_790_000_100.0)
    ]


def test_a_server_that_refuses_everything_is_told_with_a_remedy(tmp_path: Path) -> None:
    window = Window(start_ms=1_790_000_000_000, end_ms=1_790_000_100_000)
    with (
        serving(api(Limited(10))) as server,
        pytest.raises(ImportRefused, match=r"too many samples.*select fewer series with --match"),
    ):
        bring_window(tmp_path, server_at(server.url), window)
    assert not list(tmp_path.glob("*.duckdb"))


@pytest.mark.parametrize(
    ("status", "content", "told"),
    [
        (200, "<html>", "does not answer like a Prometheus"),
        (200, [], "does not answer like a Prometheus"),
        (200, {"status": "success"}, "does not answer like a Prometheus"),
        (200, {"status": "success", "data": [{"a": "b"}]}, "does not answer like a Prometheus"),
        (200, {"status": "success", "data": 5}, "does not answer like a Prometheus"),
        (200, {"status": "error", "error": "no"}, "cannot be read: no"),
        (401, "who?", "cannot be read: it answers 401 Unauthorized"),
        (400, {"status": "error", "error": "bad matcher"}, "cannot be read: bad matcher"),
    ],
)
def test_who_is_no_prometheus_is_told(tmp_path: Path, status: int, content: Any, told: str) -> None:
    window = Window(start_ms=0, end_ms=1000)
    with (
        serving(api(lambda path, asked: (status, content))) as server,
        pytest.raises(ImportRefused, match=told),
    ):
        bring_window(tmp_path, server_at(server.url), window)


@pytest.mark.parametrize(
    "result",
    [
        5,
        [5],
        [{"values": [[1, "1"]]}],
        [{"metric": {"__name__": "vllm:a"}, "values": [["x", "1"]]}],
        [{"metric": {"__name__": "vllm:a"}, "values": [[1, "x"]]}],
    ],
)
def test_a_result_that_is_none_is_told(tmp_path: Path, result: Any) -> None:
    def answers(path: str, asked: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/series"):
            return success([{"__name__": "vllm:a", "engine": "0"}])
        return success({"resultType": "matrix", "result": result})

    with (
        serving(api(answers)) as server,
        pytest.raises(ImportRefused, match="does not answer like a Prometheus"),
    ):
        bring_window(tmp_path, server_at(server.url), Window(start_ms=0, end_ms=2000))


def test_a_server_may_lie_under_a_path() -> None:
    with serving(api(lambda path, asked: success([]))) as server:
        server_at(f"{server.url}/prom/").series("{}", Window(start_ms=0, end_ms=1))
        assert server.seen[0][0].startswith("/prom/api/v1/series?")


def test_names_and_instances_are_quoted(tmp_path: Path) -> None:
    asked: list[str] = []

    def answers(path: str, question: dict[str, str]) -> tuple[int, Any]:
        asked.append(question.get("query", ""))
        if path.endswith("/series"):
            return success([{"__name__": "vllm:a", "instance": 'h"|.*\\'}])
        return success({"resultType": "matrix", "result": []})

    with serving(api(answers)) as server:
        bring_window(tmp_path, server_at(server.url), Window(start_ms=0, end_ms=1000))
    assert r'instance=~"h\"\\|\\.\\*\\\\"' in asked[1]


def test_a_server_that_hangs_ends_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.sources.prometheus.server.TIMEOUT_SECONDS", 0.2)
    server = PageServer(text(""))
    server.answer = server.hang
    try:
        with pytest.raises(ImportRefused, match=r"no whole answer in 0\.2 s"):
            bring_window(tmp_path, server_at(server.url), Window(start_ms=0, end_ms=1000))
    finally:
        server.close()
