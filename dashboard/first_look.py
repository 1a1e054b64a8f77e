"""The first look at a closed log, worked out while the dashboard starts.

Nearly every visit begins at the overview of the newest engine start. Its verdict and its panels ask
the whole log, which takes seconds where it holds a day; so they are asked and drawn before anybody
comes, and lie in the pages' own cache. So does what a replay of the load says, which a first
visitor would otherwise wait for. A live log is not looked at: its answers do not keep.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING

from streamlit import runtime

from telemetry.errors import StepscopeError

if TYPE_CHECKING:
    from dashboard.colours import Theme

THEMES: tuple[Theme, ...] = ("light", "dark")
"""Nobody knows yet which one a visitor's system prefers."""
THREADS = "stepscope-"
"""How the names of threads begin that work for no visitor in particular."""
THREAD = f"{THREADS}first-look"
POLL_SECONDS = 0.01
_HOST_LOGGER = "streamlit.runtime.scriptrunner_utils.script_run_context"
"""Says at each call that no visitor stands behind a thread. None does behind ours."""

logger = logging.getLogger(__name__)


def start() -> None:
    """Begins in a thread of its own; a visitor who is quicker waits for the same answers."""
    logging.getLogger(_HOST_LOGGER).addFilter(_is_of_a_visit)
    threading.Thread(target=_prepare_when_served, name=THREAD, daemon=True).start()


def _is_of_a_visit(record: logging.LogRecord) -> bool:
    return not str(record.threadName).startswith(THREADS)


def _prepare_when_served() -> None:
    """Waits for Streamlit's runtime: a page that is imported before it says so in the output."""
    while not runtime.exists():
        time.sleep(POLL_SECONDS)
    prepare()


def prepare() -> None:
    """Imports the pages, then draws the overview of a closed log, and replays its load."""
    importlib.import_module("dashboard.app")
    from dashboard import drawing, replaying, session

    try:
        page = session.open_page()
        if page is None or page.is_live:
            return
        engine = page.diagnosis()
        if engine is not None and engine.steps.num_rows:
            for theme in THEMES:
                drawing.timeline_of(replace(page, theme=theme), engine)
            replay = replaying.begin(page)
            if replay is not None:
                wait([replay])
    except StepscopeError as error:
        logger.info("the first look was not prepared: %s", error)  # the page says what is wrong
