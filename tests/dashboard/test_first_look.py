"""The first look at a closed log is worked out before anybody comes, and keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboard import answers, drawing, first_look, replaying, session

Show = Callable[[Path], None]


@pytest.fixture
def no_more_asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, whoever asks the log fails."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("the log was asked again")

    def begin() -> None:
        monkeypatch.setattr(answers, "diagnose", refused)
        monkeypatch.setattr(answers, "_ask", refused)
        monkeypatch.setattr(drawing, "build", refused)

    return begin


def test_verdict_panels_and_replay_are_there_before_the_first_visit(
    storm_log: Path, show: Show, no_more_asking: Callable[[], None]
) -> None:
    show(storm_log)
    first_look.prepare()
    no_more_asking()
    page = session.open_page()
    assert page is not None
    assert page.effort == "usual"
    engine = page.diagnosis()
    assert engine is not None
    assert engine.findings[0].shares
    for theme in ("light", "dark"):
        assert len(drawing.timeline_of(replace(page, theme=theme), engine).statements) > 7
    assert replaying.begin(page) is None


def test_a_log_without_preemptions_is_not_replayed(
    calm_log: Path, show: Show, no_more_asking: Callable[[], None]
) -> None:
    show(calm_log)
    first_look.prepare()
    no_more_asking()
    page = session.open_page()
    assert page is not None
    assert page.effort == "none"
    engine = page.diagnosis()
    assert engine is not None
    assert engine.steps.num_rows > 0
    assert len(drawing.timeline_of(page, engine).statements) > 7


def test_a_log_that_cannot_be_read_is_left_to_the_page(
    tmp_path: Path, show: Show, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "2026-11-29.duckdb").write_bytes(b"no database" * 1000)
    show(tmp_path)
    with caplog.at_level(logging.INFO, logger=first_look.__name__):
        first_look.prepare()
    assert "the first look was not prepared" in caplog.text


def test_without_a_log_there_is_nothing_to_prepare(tmp_path: Path, show: Show) -> None:
    show(tmp_path / "nothing")
    first_look.prepare()
