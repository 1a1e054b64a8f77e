"""What a log answers: a live one is asked anew, but for what one drawing asks for twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.runtime.caching import cache_utils

from dashboard import answers
from dashboard.answers import Answers
from dashboard.session import whole_window
from telemetry.store import open_log


def test_a_live_window_is_diagnosed_once_for_a_drawing(
    storm_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    clock = [0.0]

    def counted(log: Any, scope: Any, effort: Any) -> Any:
        asked.append(scope)
        return len(asked)

    monkeypatch.setattr(answers, "_diagnose", counted)
    monkeypatch.setattr(cache_utils, "TTLCACHE_TIMER", lambda: clock[0])
    st.cache_data.clear()
    with open_log(storm_log) as log:
        live = Answers(log, storm_log, is_live=True)
        scope = whole_window(live.engines()[0], live=True)
        grown = replace(scope, end_ts=scope.end_ts + 1)
        told = [live.diagnosis(each, "none") for each in (scope, scope, grown)]
        clock[0] += answers.LIVE_SECONDS + 1
        told.append(live.diagnosis(scope, "none"))
    st.cache_data.clear()
    assert asked == [scope, grown, scope]
    assert told == [1, 1, 2, 3]
