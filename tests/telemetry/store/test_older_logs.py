"""Logs that older versions wrote open in this one, and answer what they answered then.

`python -m tests.telemetry.store.test_older_logs` packs a newly recorded log as that of this
version; do so once a version, when its tables are final, and never change one that is there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.records import SCHEMA_VERSION
from telemetry.sql import VIEWS
from telemetry.sql.packed_log import opened, pack, unpack
from telemetry.sql.schema import BASE_TABLES
from telemetry.store import Log
from telemetry.store.files import day_of
from telemetry.store.writer import LogWriter
from tests.telemetry.recorded_findings import record_findings
from tests.telemetry.recorded_run import FIRST, SECOND, START, record

LOGS = Path(__file__).parents[2] / "data" / "step_logs"
VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in LOGS.glob("v*.tar.xz"))
EXPECTED = {
    "v1": {"steps": 648, "requests": 48, "preemptions": 24},
    "v2": {"steps": 648, "requests": 48, "preemptions": 24},
    "v3": {"steps": 648, "requests": 48, "preemptions": 24},
    "v4": {"steps": 648, "requests": 48, "preemptions": 24},
    "v5": {"steps": 648, "requests": 48, "preemptions": 24, "finding_states": 5},
}
"""What each log is known to hold."""


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def log(version: str) -> Iterator[Log]:
    with opened(LOGS / f"{version}.tar.xz") as older:
        yield older


def test_there_is_a_log_of_this_version() -> None:
    assert f"v{SCHEMA_VERSION}" in VERSIONS
    assert sum(path.stat().st_size for path in LOGS.iterdir()) < 1 << 20


def test_it_says_which_version_wrote_it(log: Log, version: str) -> None:
    versions = log.query("SELECT version FROM schema_info")["version"].to_pylist()
    assert set(versions) == {int(version.removeprefix("v")), SCHEMA_VERSION}


def test_every_table_and_view_answers(log: Log) -> None:
    for name in (*BASE_TABLES, *VIEWS):
        assert log.query(f"SELECT count(*) AS n FROM {name}").num_rows == 1


def test_it_holds_what_it_held(log: Log, version: str) -> None:
    for name, expected in EXPECTED[version].items():
        assert log.query(f"SELECT count(*) AS n FROM {name}").to_pylist() == [{"n": expected}]
    ends = log.query("SELECT engine, end_kind FROM log_ends ORDER BY first_ts").to_pylist()
    assert ends == [
        {"engine": FIRST, "end_kind": "engine_died"},
        {"engine": SECOND, "end_kind": "engine_stopped"},
    ]


def test_its_books_still_balance(log: Log) -> None:
    (row,) = log.query(
        "SELECT sum(num_computed_tokens_lost) AS lost, sum(num_tokens_recomputed "
        "+ num_tokens_regained_from_prefix_cache + num_tokens_regained_from_connector "
        "+ num_tokens_lost_again + num_tokens_never_resumed + num_tokens_pending) AS found "
        "FROM preemptions"
    ).to_pylist()
    assert row["lost"] == row["found"] > 0


def test_it_can_be_written_on(version: str, tmp_path: Path) -> None:
    unpack(LOGS / f"{version}.tar.xz", tmp_path)
    writer = LogWriter(tmp_path, ["2025-11-29"], dense=True)
    writer.close()
    with opened(tmp_path) as brought_up:
        count = brought_up.query("SELECT count(*) AS n FROM steps").to_pylist()
    assert count == [{"n": EXPECTED[version]["steps"]}]


def main() -> None:
    """Packs a log of this version."""
    with tempfile.TemporaryDirectory() as directory:
        log = record(Path(directory) / "log")
        record_findings(log, day_of(START))
        pack(log, LOGS / f"v{SCHEMA_VERSION}.tar.xz")


if __name__ == "__main__":
    main()
