"""Rows of `findings` as they are posted."""

from __future__ import annotations

import json
import time
from typing import Any

FINDING = "kvp-7c1e0a42"
ENGINE = 0xA1


def change(**columns: Any) -> dict[str, Any]:
    """Returns a row that says that a finding has opened now, but for `columns`."""
    now = time.time_ns()
    return {
        "engine": ENGINE,
        "finding": FINDING,
        "ts": now,
        "event": "opened",
        "status": "open",
        "rule": "kv-preemption-pressure",
        "rule_version": 1,
        "severity": "high",
        "opened_ts": now,
        "cleared_ts": None,
        "num_openings": 1,
        "reason": None,
        "body": json.dumps({"sentence": "The pool is full."}),
    } | columns


def saying(event: str, **columns: Any) -> dict[str, Any]:
    """Returns a row of something that a person says now."""
    return {"event": event, "ts": time.time_ns(), "author": "dana", "note": "known"} | columns
