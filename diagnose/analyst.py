"""The analyst: a process beside the collector that evaluates the rules and posts what changed.

`python -m diagnose.analyst --log DIR`. The collector starts it, starts it again when it dies, and
ends it; one whose collector was killed waits for the next one. It reads the log as everybody does
and writes nothing itself: findings are posted to the collector, which stores and exports them.

It takes what is left of the processor (nice), and at most a part of the time: where an evaluation
takes long, the next one comes later, and `stepscope doctor` says so. Where nothing is open and no
engine works, a look costs one query. An evaluation judges by rules alone; what replays tell of a
finding's cause is worked out between two of them (`diagnose.life.sharing`).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from diagnose.diagnosis import diagnose
from diagnose.life.ends import OVER, read_ends
from diagnose.life.look import look_at
from diagnose.life.machine import Change, Life, observe
from diagnose.life.rows import read_lives, row_of
from diagnose.life.sharing import Explanations
from diagnose.reading import NS
from diagnose.rule import Rule
from diagnose.user_rules.loading import WatchedRules
from diagnose.window import choose_window, engines_in
from telemetry.errors import StepscopeError
from telemetry.store import Log, open_log
from telemetry.store.analyst_status import AnalystStatus, take_analyst_lock
from telemetry.store.guard import Limits
from telemetry.store.niceness import be_expendable
from telemetry.store.posting import MAX_ROWS, post_findings
from telemetry.store.presence import is_collected

PERIOD_SECONDS = 10.0
MAX_SHARE = 0.25
"""Most of the time that evaluations may take: one of 5 s comes every 20 s."""
LATE_NS = 15 * NS
"""How much later than the newest row of the log another engine's rows may still come."""
ORPHAN_SECONDS = 30.0
"""How long it waits for another collector when its own has ended without ending it."""
NICENESS = 10
QUERY_SECONDS = 60.0

_NEWS = " OR ".join(
    f"EXISTS (FROM {table} WHERE ts > {{since}}{condition})"
    for table, condition in (
        ("steps", ""),
        ("request_events", ""),
        ("request_arrivals", ""),
        ("samples", ""),
        ("log_lines", ""),
        ("engine_spans", ""),
        ("heartbeats", " AND phase <> phase('idle')"),
    )
)
"""Whether anything but the beat of engines without work is newer."""

_log = logging.getLogger("stepscope.analyst")


class Analyst:
    """Evaluates the rules of one log until its collector is gone."""

    def __init__(self, log: Path, *, period_seconds: float = PERIOD_SECONDS) -> None:
        self.log = log
        self._lives: dict[str, Life] | None = None
        self._seen_ts = -1
        self._last_error = ""
        self._own = WatchedRules(log)
        self._explanations = Explanations()
        self._wait = threading.Event()
        self.status = AnalystStatus(
            pid=os.getpid(),
            period_seconds=period_seconds,
            every_seconds=period_seconds,
            started_ts=time.time_ns(),
        )

    def run(self) -> None:
        """Evaluates, waits, and evaluates again."""
        last_collected = time.monotonic()
        while True:
            began = time.monotonic()
            if is_collected(self.log):
                self.evaluate()
                last_collected = time.monotonic()
                due = began + self.status.every_seconds
                self.explain(due - last_collected)
                self._wait.wait(max(due - time.monotonic(), 0))
            elif not self.log.is_dir() or began - last_collected > ORPHAN_SECONDS:
                return
            else:
                self._wait.wait(min(1.0, self.status.period_seconds))

    def evaluate(self) -> None:
        """Looks once, posts what changed, and says how it went; never raises for the log's sake."""
        began = time.monotonic()
        try:
            newest_ts = self._look()
        except (StepscopeError, OSError) as error:
            self._lives = None  # what was stored is read again
            self._tell(str(error))
            self.status = replace(self.status, error=str(error))
        else:
            self._last_error = ""
            self.status = replace(
                self.status,
                num_evaluations=self.status.num_evaluations + 1,
                evaluated_ts=time.time_ns(),
                newest_ts=newest_ts,
                num_open=_num_open(self._lives or {}),
                error=None,
            )
        self._take_time(time.monotonic() - began)
        self.status.publish(self.log)

    def explain(self, seconds: float) -> bool:
        """Replays what made one finding, where the time until the next evaluation is enough.

        Returns whether it told anything; never raises for the log's sake.
        """
        lives = self._lives or {}
        life = lives.get(self._explanations.next(seconds) or "")
        if life is None:
            return False
        try:
            with open_log(self.log, limits=Limits(QUERY_SECONDS), background=True) as log:
                window = choose_window(log, is_live=True)
                told = self._explanations.explain(log, window, life.told, self._own.read())
            if told is not None:
                self._post([told])
        except (StepscopeError, OSError) as error:
            _log.warning("what made %s is not worked out: %s", life.told.sighting.id, error)
            return False
        return told is not None

    def _look(self) -> int:
        """Evaluates and posts, where there is anything new; returns the newest moment seen."""
        with open_log(self.log, limits=Limits(QUERY_SECONDS), background=True) as log:
            if self._lives is None:
                self._lives = read_lives(log)
                self._explanations.remember(self._lives.values())
            lives = self._lives
            if _num_open(lives) or self._has_news(log):
                self._seen_ts = self._follow(log, lives)
        return self._seen_ts

    def _has_news(self, log: Log) -> bool:
        """Returns whether an engine has worked since the last look, or hangs in its work."""
        since = self._seen_ts - LATE_NS
        sql = f"SELECT {_NEWS.format(since=since)} AS has_news"
        return bool(log.query(sql)["has_news"][0].as_py())

    def _follow(self, log: Log, lives: dict[str, Life]) -> int:
        window = choose_window(log, is_live=True)
        engines = {life.told.sighting.engine for life in lives.values() if _is_open(life)}
        ends = read_ends(
            log, engines | set(engines_in(log, window))
        )  # before what they say is read
        found = diagnose(log, window, rules=self._rules(), effort="none")
        look = look_at(found, time.time_ns(), ends)
        lives, changes = observe(lives, look)
        self._post([self._explanations.carried(change) for change in changes])
        self._explanations.ask(changes)
        self._lives = lives
        return window.end_ts

    def _post(self, changes: Sequence[Change]) -> None:
        rows = [row_of(change) for change in changes]
        for first in range(0, len(rows), MAX_ROWS):
            post_findings(self.log, rows[first : first + MAX_ROWS])

    def _rules(self) -> tuple[Rule, ...]:
        """Returns all rules; ours alone while a file of somebody's own is none, which is told."""
        before = self._own.problem
        rules = self._own.read()
        if self._own.problem not in (None, before):
            _log.warning("rules of one's own are left out: %s", self._own.problem)
        return rules

    def _take_time(self, took_seconds: float) -> None:
        """Stretches the period where an evaluation takes too much of it."""
        period = self.status.period_seconds
        was_stretched = self.status.is_stretched
        every = max(period, took_seconds / MAX_SHARE)
        self.status = replace(self.status, took_seconds=took_seconds, every_seconds=every)
        if self.status.is_stretched and not was_stretched:
            _log.warning(
                "an evaluation took %.1f s: the next one comes after %.0f s instead of %.0f s",
                took_seconds, every, period,
            )  # fmt: skip

    def _tell(self, error: str) -> None:
        if error != self._last_error:
            _log.warning("an evaluation failed and is done again: %s", error)
        self._last_error = error


def _num_open(lives: dict[str, Life]) -> int:
    return sum(_is_open(life) for life in lives.values())


def _is_open(life: Life) -> bool:
    return life.told.status not in OVER


def main() -> int:
    """Parses the command line and evaluates; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m diagnose.analyst")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--period", type=float, default=PERIOD_SECONDS, metavar="SECONDS")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    be_expendable()
    os.nice(NICENESS)
    lock = take_analyst_lock(args.log)
    if lock is None:
        _log.info("the log %s has an analyst already", args.log)
        return 0
    Analyst(args.log.absolute(), period_seconds=args.period).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
