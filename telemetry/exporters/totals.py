"""Counts of one engine out of its log, kept up to date by reading only what is new.

The first reading adds up all that the log holds of the engine, so a collector that starts again
goes on from the same counts. They fall only where days that an engine ran in were removed: for
Prometheus that is a reset of the counter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from telemetry.vocabulary import PreemptionCause

if TYPE_CHECKING:
    import pyarrow as pa

NOT_MEASURED = "not_measured"
"""The word for a cause or reason that the source cannot know."""
REGIONS = ("steps", "events", "step_requests", "blob")
BLOCK_STATES = (
    "free_unhashed", "free_cached", "running", "waiting", "finished", "deferred_free", "given_up",
)  # fmt: skip
"""States of KV blocks: columns `num_blocks_<state>` of `steps`."""

_COLLECTORS_OWN = "9223372036854775808::UBIGINT"
"""Events that the collector adds are numbered from here."""

_EVENTS = """
SELECT preemption_cause_name(cause) AS cause, region,
  count(*) FILTER (kind = event_kind('preempted')) AS num_preempted,
  (sum(num_computed_tokens_lost) FILTER (kind = event_kind('preempted')))::BIGINT AS num_lost,
  (sum(last_lost - first_lost + 1) FILTER (kind = event_kind('records_dropped')))::BIGINT
    AS num_dropped,
  max(seq) AS newest
FROM request_events
WHERE engine = {engine}::UBIGINT AND seq >= {seq} AND seq < """ + _COLLECTORS_OWN + """
GROUP BY ALL
"""  # fmt: skip
_LOSSES = """
SELECT region, sum(last_lost - first_lost + 1)::BIGINT AS num_dropped
FROM request_events
WHERE engine = {engine}::UBIGINT AND seq >= """ + _COLLECTORS_OWN + """
  AND kind = event_kind('records_dropped')
GROUP BY region
"""  # fmt: skip
_STEPS = """
SELECT stop_reason_name(stop_reason) AS stop_reason,
  sum(num_repeats)::BIGINT AS num_steps,
  sum(num_scheduled_tokens)::BIGINT AS num_scheduled,
  sum(num_recomputed_tokens)::BIGINT AS num_recomputed,
  max(num_preemptions_total)::BIGINT AS num_own,
  max(step) AS newest, {blocks}
FROM steps
WHERE engine = {engine}::UBIGINT AND step >= {step}
GROUP BY ALL
ORDER BY newest
"""


class LogReader(Protocol):
    """What answers a reading statement: `telemetry.store.Log` does."""

    def query(self, sql: str) -> pa.Table: ...


class EngineTotals:
    """What the log has counted of one engine. `None`: nothing of it was ever measured."""

    def __init__(self, engine: int) -> None:
        self.engine = engine
        self.is_complete = False
        """The engine has ended and nothing of it can be new any more."""
        self.preemptions: Counter[str] = Counter({cause.name: 0 for cause in PreemptionCause})
        self.tokens_lost: Counter[str] = Counter(self.preemptions)
        self.num_unattributed: int | None = None
        self.num_tokens_scheduled: int | None = None
        self.num_tokens_recomputed: int | None = None
        self.steps: Counter[str] = Counter()
        self.blocks: dict[str, int] = {}
        self._dropped_events = 0
        self._dropped: dict[str, int] = {}
        self._next_seq = 0
        self._next_step = 0
        self._num_own: int | None = None

    @property
    def dropped(self) -> dict[str, int]:
        """Rows lost, by region of the ring."""
        known = dict.fromkeys(REGIONS, 0) | self._dropped
        return known | {"events": known["events"] + self._dropped_events}

    def read(self, log: LogReader, *, has_ended: bool = False) -> None:
        """Adds what is new in the log; `has_ended` says that all of the engine is there.

        Steps come first: whatever their counter of preemptions has seen is then in the events.

        Raises:
            StepscopeError: The log cannot be read now; the next call reads on from here.
        """
        if self.is_complete:
            return
        self._read_steps(log)
        self._read_events(log)
        losses = log.query(_LOSSES.format(engine=self.engine)).to_pylist()
        self._dropped = {row["region"]: row["num_dropped"] for row in losses if row["region"]}
        self.is_complete = has_ended

    def _read_steps(self, log: LogReader) -> None:
        blocks = ", ".join(
            f"arg_max(num_blocks_{state}, step)::BIGINT AS {state}" for state in BLOCK_STATES
        )
        sql = _STEPS.format(engine=self.engine, step=self._next_step, blocks=blocks)
        for row in log.query(sql).to_pylist():
            self.steps[row["stop_reason"] or NOT_MEASURED] += row["num_steps"]
            self.num_tokens_scheduled = _added(self.num_tokens_scheduled, row["num_scheduled"])
            self.num_tokens_recomputed = _added(self.num_tokens_recomputed, row["num_recomputed"])
            self.blocks = {state: row[state] for state in BLOCK_STATES if row[state] is not None}
            if row["num_own"] is not None:
                self._num_own = max(self._num_own or 0, row["num_own"])
            self._next_step = row["newest"] + 1

    def _read_events(self, log: LogReader) -> None:
        sql = _EVENTS.format(engine=self.engine, seq=self._next_seq)
        for row in log.query(sql).to_pylist():
            cause = row["cause"] or NOT_MEASURED
            if row["num_preempted"]:
                self.preemptions[cause] += row["num_preempted"]
            if row["num_lost"] is not None:
                self.tokens_lost[cause] += row["num_lost"]
            elif row["num_preempted"]:  # preempted, and the source cannot know what was lost
                self.tokens_lost.pop(cause, None)
            self._dropped_events += row["num_dropped"] or 0
            self._next_seq = max(self._next_seq, row["newest"] + 1)
        if self._num_own is not None:
            self.num_unattributed = max(self._num_own - self.preemptions.total(), 0)


def _added(sum_so_far: int | None, more: int | None) -> int | None:
    """Returns a sum that stays `None` until something of it has been measured."""
    return sum_so_far if more is None else (sum_so_far or 0) + more
