"""How long ago the analyst of a log last judged it."""

from __future__ import annotations

import json
from pathlib import Path

from telemetry.store.analyst_status import STATUS_NAME, AnalystStatus, has_analyst


def analyst_age_seconds(log: Path, now_ns: int, *, since_ns: int) -> float | None:
    """Returns the time since the last evaluation that succeeded, or since the analyst started.

    One that has died goes on ageing where it was started after `since_ns`, the collector's own
    start; `None` where the collector never had one.
    """
    try:
        status = AnalystStatus(**json.loads((log / STATUS_NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if status.started_ts < since_ns and not has_analyst(log):
        return None
    return max(now_ns - (status.evaluated_ts or status.started_ts), 0) / 1e9
