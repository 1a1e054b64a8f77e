"""Replays of closed logs, worked out behind the pages.

A replay of the load says what made the preemptions and what would avoid them, and takes seconds. So
a page is drawn with what is known, the replay runs in a thread that no visitor waits for, and the
page looks for its end. A window is replayed once, whoever looks at it.

Trap: a script that replays and then draws itself anew loses the button that was pressed meanwhile.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

import streamlit as st

from dashboard import clock, dialogs
from dashboard.answers import ClosedWindow
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from telemetry.errors import StepscopeError

THREAD = "stepscope-replay"
LOOK_SECONDS = 0.5
"""How often a page looks whether its replay has ended."""
NOTE = ":gray[⋯ Replaying the load: shares and what would avoid it follow]"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Replays:
    """Those that run or wait, by what they replay; one runs at a time."""

    pool: ThreadPoolExecutor
    known: dict[ClosedWindow, Future[None]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


def follow(page: Page) -> None:
    """Begins what a page has been drawn without, says so, and draws it anew when that is there.

    A dialog that is open stays: when its reader closes it the page is drawn with what is there.
    """
    replay = begin(page)
    if replay is None:
        return
    error = replay.exception() if replay.done() else None
    if error is not None:
        _say_failed(page, error)
    else:
        clock.repeated(look, "replay", LOOK_SECONDS)(replay)


def begin(page: Page) -> Future[None] | None:
    """Returns the replay of a page's window, begun if need be; None where nothing is to come.

    One that failed stays as it is: its page says so, and how to try again.
    """
    if page.is_live or page.effort != "none" or not _has_storm(page):
        return None
    window, replays = page.closed_window, _replays()
    with replays.lock:
        own = replays.known.get(window)
        if own is None or (own.done() and own.exception() is None):
            own = replays.known[window] = replays.pool.submit(page.replay)
            own.add_done_callback(lambda done: _ended(window, done))
    return own


def _has_storm(page: Page) -> bool:
    return any(engine.accounting.num_from_kv for engine in page.whole_diagnosis().engines)


def _ended(window: ClosedWindow, replay: Future[None]) -> None:
    error, known = replay.exception(), _replays().known
    if error is None:
        if known.get(window) is replay:
            known.pop(window, None)
    elif not isinstance(error, StepscopeError):
        logger.error("a load could not be replayed", exc_info=error)


def look(replay: Future[None]) -> None:
    """Draws how a replay stands; where it has ended, asks for the page anew."""
    if not replay.done():
        st.markdown(NOTE)
    elif not dialogs.is_open():
        st.rerun(scope="app")


def _say_failed(page: Page, error: BaseException) -> None:
    st.markdown(f":orange[▲ The load was not replayed: {in_markdown(str(error), 400)}]")
    if st.button("Retry", key="retry-replay", type="tertiary"):
        _replays().known.pop(page.closed_window, None)
        st.rerun(scope="app")


@st.cache_resource(show_spinner=False)
def _replays() -> _Replays:
    return _Replays(ThreadPoolExecutor(max_workers=1, thread_name_prefix=THREAD))
