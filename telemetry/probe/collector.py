"""Whether a collector gets on: what lies in the rings has to reach the log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from telemetry.errors import CollectorError, StepscopeError
from telemetry.probe.sign import Sign
from telemetry.store import open_log
from telemetry.store.guard import Limits
from telemetry.store.presence import find_collector

PATIENCE_SECONDS = 5.0
"""How long a collector has to commit something; it drains four times a second."""
_LOOK_SECONDS = 0.25

Drained: TypeAlias = dict[int, int]
"""Commits of each engine, by engine."""

_LIMITS = Limits(timeout_seconds=PATIENCE_SECONDS, max_rows=100_000)
_SQL = "SELECT engine, max(num_commits) AS num_commits FROM drains GROUP BY engine"


def drained_commits(log: Path) -> Drained:
    """Returns the commits of each engine that are in the log.

    Raises:
        CollectorError: no collector runs that answers queries.
        StepscopeError: it does not answer this one.
    """
    if find_collector(log) is None:
        raise CollectorError(f"none runs for {log}")
    answers: SimpleQueue[Drained | StepscopeError] = SimpleQueue()
    threading.Thread(target=_ask, args=(log, answers), daemon=True).start()
    try:
        answer = answers.get(timeout=PATIENCE_SECONDS)
    except Empty:
        raise CollectorError(f"silent for {PATIENCE_SECONDS:g} s") from None
    if isinstance(answer, StepscopeError):
        raise answer
    return answer


def _ask(log: Path, answers: SimpleQueue[Drained | StepscopeError]) -> None:
    """Asks in a thread of its own: a process that is stopped would be waited for too long."""
    try:
        with open_log(log, limits=_LIMITS) as opened:
            rows = opened.query(_SQL).to_pylist()
        answers.put({row["engine"]: row["num_commits"] for row in rows})
    except StepscopeError as error:
        answers.put(error)


def collector_sign(
    published: Drained,
    drained: Callable[[], Drained],
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> Sign:
    """Judges a collector by whether what lies in the rings reaches the log.

    Args:
        published: commits in each ring.
        drained: asks the collector for those in the log; a StepscopeError is no answer.
        patience_seconds: how long it may take.
        sleep, clock: wait some seconds, and tell how many have passed.
    """
    first, answer = None, ""
    deadline = clock() + patience_seconds
    while not answer or clock() < deadline:
        try:
            found = drained()
        except StepscopeError as error:
            answer = f"the collector does not answer: {error}"
        else:
            first = found if first is None else first
            behind = {e: n - found.get(e, 0) for e, n in published.items() if n > found.get(e, 0)}
            moved = sum(found.get(engine, 0) - first.get(engine, 0) for engine in published)
            if not behind:
                return Sign(True, f"the collector has drained all of {len(published)} ring(s)")
            if moved:
                return Sign(True, f"the collector drains: {moved:,} commits while it was watched")
            answer = f"the collector drains nothing: {sum(behind.values()):,} commits wait"
        sleep(_LOOK_SECONDS)
    return Sign(False, f"{answer}; watched for {patience_seconds:g} s")
