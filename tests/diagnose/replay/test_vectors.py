"""Recorded runs, replayed from their rows in DuckDB, decide as they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.replay import inputs as inputs_module
from diagnose.replay.rows import RunRows
from tests import replay
from tests.conformance import find_vectors

DATA = Path(__file__).parents[2] / "data" / "vectors"
SHARED = Path(__file__).parents[4] / "shared" / "vectors"


def test_every_copied_vector_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([str(DATA)]) == 0, capsys.readouterr().out


def test_every_other_vector_is_replayed() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED.name}: the whole set of vectors is not here")
    copied = {name for name, _ in find_vectors([DATA])}
    others = [(name, v) for name, v in find_vectors([SHARED]) if name not in copied]
    assert {name: found for name, found in replay.check_all(others) if found is not None} == {}


def no_shared_prefix(rows: RunRows) -> None:
    for row in rows.arrivals:
        row["prefix_request"] = None


def no_end_token(rows: RunRows) -> None:
    rows.finishes.clear()


def no_adapter(rows: RunRows) -> None:
    for row in rows.arrivals:
        row["adapter"] = None


def no_events(rows: RunRows) -> None:
    del rows.events[len(rows.arrivals) :]


@pytest.mark.parametrize(
    ("category", "spoil"),
    [
        ("prefix_cache", no_shared_prefix),
        ("basic", no_end_token),
        ("lora", no_adapter),
        ("kv_connector", no_events),
    ],
)
def test_a_record_that_lacks_something_is_noticed(
    category: str,
    spoil: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read_run = inputs_module.read_run

    def spoilt(*arguments: Any) -> RunRows:
        rows = read_run(*arguments)
        spoil(rows)
        return rows

    monkeypatch.setattr(inputs_module, "read_run", spoilt)
    assert replay.main([str(DATA / category)]) == 1
    num_equal, num_all = capsys.readouterr().out.split()[-1].split("/")
    assert int(num_equal) < int(num_all)


def test_nothing_to_replay_is_no_success(tmp_path: Path) -> None:
    assert list(find_vectors([tmp_path])) == []
    assert replay.main([str(tmp_path)]) == 1
