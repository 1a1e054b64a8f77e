"""A closed log's load is replayed behind the pages: once, and nobody waits for it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import replaying, session
from dashboard.session import Page

TIMEOUT = 120
Show = Callable[[Path], None]


@pytest.fixture
def unseen(storm_log: Path, tmp_path: Path, show: Show) -> Path:
    """A storm that no page has replayed."""
    log = shutil.copytree(storm_log, tmp_path / "unseen")
    show(log)
    return log


def opened() -> Page:
    page = session.open_page()
    assert page is not None
    return page


def ended() -> Future[None]:
    replay: Future[None] = Future()
    replay.set_result(None)
    return replay


@pytest.mark.usefixtures("unseen")
def test_what_a_replay_brings_is_there_from_the_next_page_on() -> None:
    first = opened()
    replay = replaying.begin(first)
    assert replay is not None
    replay.result()
    assert first.effort == "none"  # one page says one thing from its top to its end
    later = opened()
    assert later.effort == "usual"
    assert replaying.begin(later) is None
    engine = later.diagnosis()
    assert engine is not None
    assert engine.findings[0].shares


@pytest.mark.usefixtures("unseen")
def test_one_window_is_replayed_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[Page] = []
    gate: Future[None] = Future()

    def waited(page: Page) -> None:
        gate.result()
        replayed.append(page)

    monkeypatch.setattr(Page, "replay", waited)
    begun = {replaying.begin(opened()), replaying.begin(opened())}
    gate.set_result(None)
    assert len(begun) == 1
    for each in begun:
        assert each is not None
        each.result()
    assert len(replayed) == 1


def test_without_preemptions_there_is_nothing_to_replay(calm_log: Path, show: Show) -> None:
    show(calm_log)
    assert replaying.begin(opened()) is None


def followed() -> None:
    import streamlit as st

    from dashboard import replaying, session

    page = session.open_page()
    assert page is not None
    st.session_state["effort"] = page.effort
    replaying.follow(page)


@pytest.mark.usefixtures("unseen")
def test_one_that_failed_is_told_once_and_begun_anew_when_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Page) -> None:
        raise ArithmeticError("of *our* own making")

    test = AppTest.from_function(followed, default_timeout=TIMEOUT)
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(Page, "replay", broken)
        failed = replaying.begin(opened())
        assert failed is not None
        assert isinstance(failed.exception(), ArithmeticError)
        test.run()
    assert replaying.begin(opened()) is failed
    said = ":orange[▲ The load was not replayed: of \\*our\\* own making]"
    assert [each.value for each in test.markdown] == [said]
    assert not test.get("bidi_component")  # nothing asks again and again
    assert caplog.text.count("a load could not be replayed") == 1
    test.button(key="retry-replay").click().run()
    again = replaying.begin(opened())
    if again is not None:
        again.result()
    assert opened().effort == "usual"


def looks() -> None:
    import streamlit as st

    from dashboard import dialogs, replaying

    @dialogs.dialog("A dialog")
    def shown() -> None:
        st.write("in it")

    st.session_state["runs"] = st.session_state.get("runs", 0) + 1
    dialogs.begin()
    if st.session_state["opens"]:
        shown()
    if st.session_state["runs"] < 3:
        replaying.look(st.session_state["replay"])


@pytest.mark.parametrize(
    ("replay", "opens", "runs", "said"),
    [
        (Future(), False, 1, replaying.NOTE),
        (ended(), False, 3, None),
        (ended(), True, 1, "in it"),
    ],
    ids=["running", "ended", "ended-behind-a-dialog"],
)
def test_a_page_is_drawn_anew_when_its_replay_is_there_and_no_dialog_is_open(
    replay: Future[None], opens: bool, runs: int, said: str | None
) -> None:
    test = AppTest.from_function(looks, default_timeout=TIMEOUT)
    test.session_state["replay"] = replay
    test.session_state["opens"] = opens
    test.run()
    assert not test.exception
    assert test.session_state["runs"] == runs
    drawn: list[Any] = [each.value for each in test.markdown]
    assert drawn == ([] if said is None else [said])
