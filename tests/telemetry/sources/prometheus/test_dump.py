"""One file of lines with times: OpenMetrics text, a dump, a federated page."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from telemetry.errors import ImportRefused
from telemetry.sources.prometheus.dump import import_dump, ns_of
from telemetry.sources.telling import ImportTold
from tests.telemetry.sources.prometheus.pages import START, engine, real_page, rows

NS = 10**9


def bring_file(log: Path, path: Path) -> ImportTold:
    return import_dump(log, path, path.name, lambda done, total: None)


def put(directory: Path, text: str, name: str = "dump.om") -> Path:
    path = directory / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


OPENMETRICS = f"""\
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{{engine="0",instance="h1:8000",job="vllm"}} 3 {START}
vllm:num_preemptions_total{{engine="0",instance="h1:8000",job="vllm"}} 5 {START + 15}.25
vllm:num_preemptions_total{{engine="0",instance="h2:8000",job="vllm"}} 1 {START}
process_start_time_seconds{{instance="h1:8000",job="vllm"}} 1789000000 {START}
process_start_time_seconds{{instance="node:9100",job="node"}} 5 {START}
up{{instance="h1:8000",job="vllm"}} 0 {START + 30}
node_load1{{instance="node:9100",job="node"}} 5 {START}
# EOF
"""


@pytest.mark.parametrize("name", ["dump.om", "dump.om.gz"])
def test_samples_are_of_their_instance_and_moment(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log"
    told = bring_file(log, put(tmp_path, OPENMETRICS, name))
    assert rows(
        log, "SELECT engine, ts, metric, value FROM samples ORDER BY metric, engine, ts"
    ) == sorted(
        [
            (engine("h1:8000"), START * NS, "vllm:num_preemptions_total", 3.0),
            (engine("h1:8000"), (START + 15) * NS + 250_000_000, "vllm:num_preemptions_total", 5.0),
            (engine("h2:8000"), START * NS, "vllm:num_preemptions_total", 1.0),
            (engine("h1:8000"), START * NS, "process_start_time_seconds", 1789000000.0),
            (engine("h1:8000"), (START + 30) * NS, "up", 0.0),
        ],
        key=lambda row: (row[2], row[0], row[1]),
    )
    assert told.num_read == 5
    started = dict(rows(log, "SELECT engine, started_ts FROM engines"))
    assert started[engine("h1:8000")] == 1789000000 * NS
    assert "node_load1" in " ".join(told.notes)


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        (1790000000.0, 1790000000 * NS),
        (1790000000.1234, 1790000000123 * 10**6),
        (1790000000123.0, 1790000000123 * 10**6),
        (None, None),
        (-5.0, None),
        (1e300, None),
        (float("nan"), None),
    ],
)
def test_times_are_seconds_or_milliseconds(time: float | None, ns: int | None) -> None:
    assert ns_of(time) == ns


def test_a_dump_is_in_a_log_once_and_what_is_new_in_it_is_added(tmp_path: Path) -> None:
    log = tmp_path / "log"
    path = put(tmp_path, OPENMETRICS)
    bring_file(log, path)
    with pytest.raises(ImportRefused, match="already"):
        bring_file(log, path)
    more = OPENMETRICS.replace(
        "# EOF", f'vllm:num_preemptions_total{{engine="0",instance="h1:8000"}} 9 {START + 60}'
    )
    assert bring_file(log, put(tmp_path, more)).num_rows == 1
    assert rows(log, "SELECT count(*), count(DISTINCT (engine, ts, metric)) FROM samples") == [
        (6, 6)
    ]


def test_lines_without_a_time_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    told = bring_file(log, put(tmp_path, f"vllm:a 1 {START}\nvllm:b 2\n"))
    assert (told.num_read, told.num_unread) == (1, 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (real_page(), "397 samples of an engine and no times: name it"),
        ("", "is empty"),
        ("node_load1 5 1790000000\n", "it has node_load1"),
        ("INFO 11-29 starting\n", "it begins with 'INFO 11-29 starting'"),
        ("{\n", "it begins with '{'"),
    ],
)
def test_a_file_without_an_engine_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ImportRefused, match=told):
        bring_file(tmp_path / "log", put(tmp_path, text))


def test_a_damaged_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = put(tmp_path, OPENMETRICS * 50, "dump.om.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ImportRefused, match="damaged or cut off"):
        bring_file(tmp_path / "log", path)
    assert not (tmp_path / "log").exists()


def test_an_endless_line_is_not_held(tmp_path: Path) -> None:
    log = tmp_path / "log"
    path = put(tmp_path, f"vllm:a 1 {START}\n" + "x" * 5_000_000 + f"\nvllm:a 2 {START + 1}\n")
    assert bring_file(log, path).num_rows == 2


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = put(tmp_path, OPENMETRICS)
    import_dump(tmp_path / "log", path, "d", lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2 * path.stat().st_size, 2 * path.stat().st_size)
