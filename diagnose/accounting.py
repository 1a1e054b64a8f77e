"""The account of a window: every preemption, what it cost and where the tokens went.

Two sums are checked, and neither is ever rounded into agreement:

* `counter = kv_full + priority + cache_reset + cause_unknown + unattributed`. The counter is the
  scheduler's own, counted apart from the record; `unattributed` is what it has more than there are
  rows (negative where it has less).
* `lost = recomputed + regained from the prefix cache + regained from a connector + lost again +
  never resumed + pending`.

Beside them stands where the scheduled tokens of the window went, adding up to all of them, and what
those who waited for answers felt of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagnose.finding import Affected
from diagnose.pauses import Pauses, read_pauses
from diagnose.reading import QueryLog, Scope, read_row, read_rows

MAX_VICTIMS = 20
"""Requests listed in an account; the account says how many there are in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLoss:
    """Where the computed tokens went that preemptions threw away. `None`: not recorded."""

    num_lost: int | None
    num_recomputed: int | None
    num_regained_from_prefix_cache: int | None
    num_regained_from_connector: int | None
    num_lost_again: int | None
    num_never_resumed: int | None
    num_pending: int | None

    @property
    def identity_holds(self) -> bool | None:
        """Whether the parts add up to what was lost; `None` where a part is not recorded."""
        parts = (
            self.num_recomputed,
            self.num_regained_from_prefix_cache,
            self.num_regained_from_connector,
            self.num_lost_again,
            self.num_never_resumed,
            self.num_pending,
        )
        if self.num_lost is None or any(part is None for part in parts):
            return None
        return self.num_lost == sum(part or 0 for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWork:
    """Where the scheduled tokens of a window went. `None`: not recorded."""

    num_scheduled: int | None
    num_useful_prefill: int | None
    num_useful_decode: int | None
    num_recomputed: int | None
    num_rejected_drafts: int | None
    num_padding: int | None

    @property
    def num_unattributed(self) -> int | None:
        """Scheduled tokens that are in none of the five parts; `None` where no part is recorded.

        Drafts of a step in flight stand here until it is updated.
        """
        parts = (
            self.num_useful_prefill,
            self.num_useful_decode,
            self.num_recomputed,
            self.num_rejected_drafts,
            self.num_padding,
        )
        if self.num_scheduled is None or all(part is None for part in parts):
            return None
        return self.num_scheduled - sum(part or 0 for part in parts)

    @property
    def adds_up(self) -> bool | None:
        """Whether the five parts are all of the scheduled tokens."""
        return None if self.num_unattributed is None else self.num_unattributed == 0

    @property
    def recomputed_ratio(self) -> float | None:
        """Share of the scheduled tokens that had been computed before."""
        if not self.num_scheduled or self.num_recomputed is None:
            return None
        return self.num_recomputed / self.num_scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """The account of one engine in one window."""

    scope: Scope
    counter: int | None
    """By how much the scheduler's own counter rose in the window; `None`: not recorded."""
    num_rows: int
    num_kv_full: int
    num_priority: int
    num_cache_reset: int
    num_cause_unknown: int
    loss: TokenLoss
    work: TokenWork
    num_requests: int
    """Requests that were in the engine at some time of the window."""
    num_affected: int
    num_finished: int
    max_times: int
    evicted_ns: int | None
    request_ns: int | None
    """Time that requests spent in the engine, in all."""
    num_newer_paid: int
    num_itself_paid: int
    num_older_paid: int
    pauses: Pauses
    victims: tuple[Affected, ...]
    sql: str
    is_recorded: bool = True
    """Whether there is a step record: without one only the counter is known."""

    @property
    def unattributed(self) -> int | None:
        """Preemptions that the counter has more than there are rows."""
        return None if self.counter is None else self.counter - self.num_rows

    @property
    def equals_counter(self) -> bool | None:
        """Whether there is a row for each preemption that the scheduler counted."""
        return None if self.counter is None else self.counter == self.num_rows

    @property
    def num_from_kv(self) -> int:
        """Preemptions for want of blocks, whoever was chosen as the victim."""
        return self.num_kv_full + self.num_priority


def _whole(column: str) -> str:
    """Returns SQL for the sum of a column; NULL where a single row has none: no half sums."""
    return f"(CASE WHEN count({column}) = count(*) THEN sum({column}) END)::BIGINT"


CAUSES_SQL = f"""
SELECT count(*) AS num_rows,
       count(*) FILTER (cause = 'kv_full') AS num_kv_full,
       count(*) FILTER (cause = 'priority') AS num_priority,
       count(*) FILTER (cause = 'cache_reset') AS num_cache_reset,
       count(*) FILTER (cause IS NULL) AS num_cause_unknown,
       {_whole("num_computed_tokens_lost")} AS lost,
       {_whole("num_tokens_recomputed")} AS recomputed,
       {_whole("num_tokens_regained_from_prefix_cache")} AS from_prefix_cache,
       {_whole("num_tokens_regained_from_connector")} AS from_connector,
       {_whole("num_tokens_lost_again")} AS lost_again,
       {_whole("num_tokens_never_resumed")} AS never_resumed,
       {_whole("num_tokens_pending")} AS pending,
       count(DISTINCT request) AS num_affected,
       sum(out_ns)::BIGINT AS evicted_ns,
       count(*) FILTER (request > beneficiary) AS num_newer_paid,
       count(*) FILTER (request = beneficiary) AS num_itself_paid,
       count(*) FILTER (request < beneficiary) AS num_older_paid
FROM preemptions WHERE {{where}}
"""

VICTIMS_SQL = """
SELECT request, any_value(request_id) AS request_id, count(*) AS times,
       sum(num_computed_tokens_lost)::BIGINT AS num_tokens_lost,
       sum(num_tokens_recomputed)::BIGINT AS num_tokens_recomputed,
       sum(out_ns)::BIGINT AS evicted_ns
FROM preemptions WHERE {where}
GROUP BY request ORDER BY times DESC, num_tokens_lost DESC, request
"""

WORK_SQL = """
SELECT sum(num_scheduled_tokens)::BIGINT AS num_scheduled,
       sum(num_useful_prefill_tokens)::BIGINT AS num_useful_prefill,
       sum(num_useful_decode_tokens)::BIGINT AS num_useful_decode,
       sum(num_recomputed_tokens)::BIGINT AS num_recomputed,
       sum(num_rejected_draft_tokens)::BIGINT AS num_rejected_drafts,
       sum(num_padding_tokens)::BIGINT AS num_padding
FROM token_work WHERE {where}
"""

REQUESTS_SQL = """
SELECT count(*) AS num_requests,
       count(*) FILTER (finished_ts BETWEEN {start} AND {end}) AS num_finished,
       sum(least(coalesce(finished_ts, {end}), {end}) - greatest(ts, {start}))::BIGINT AS request_ns
FROM requests
WHERE engine = {engine} AND ts <= {end} AND coalesce(finished_ts, {end}) >= {start}
"""

COUNTER_SQL = """
SELECT (SELECT max(num_preemptions_total) FROM steps
        WHERE engine = {engine} AND ts < {start})::BIGINT AS before,
       (SELECT arg_min(num_preemptions_total::BIGINT - coalesce(num_preempted, 0)::BIGINT, step)
        FROM steps
        WHERE {where} AND num_preemptions_total IS NOT NULL)::BIGINT AS at_first_row,
       greatest(
           (SELECT max(num_preemptions_total) FROM steps WHERE {where}),
           (SELECT max(num_preemptions) FROM heartbeats WHERE {where})
       )::BIGINT AS at_end
"""


def account(log: QueryLog, scope: Scope, *, saw_start: bool) -> Accounting:
    """Returns the account of one engine in one window.

    With `saw_start` the engine started in the window: its counter then began at 0, also where the
    first rows are lost.
    """
    causes = read_row(log, scope.fill(CAUSES_SQL))
    requests = read_row(log, scope.fill(REQUESTS_SQL))
    victims = read_rows(log, scope.fill(VICTIMS_SQL))
    return Accounting(
        scope=scope,
        counter=_counter_rise(log, scope, saw_start=saw_start),
        loss=_loss(causes),
        work=TokenWork(**read_row(log, scope.fill(WORK_SQL))),
        max_times=victims[0]["times"] if victims else 0,
        victims=tuple(Affected(**row) for row in victims[:MAX_VICTIMS]),
        num_requests=requests["num_requests"],
        num_finished=requests["num_finished"],
        request_ns=requests["request_ns"],
        pauses=read_pauses(log, scope),
        sql=scope.fill(CAUSES_SQL),
        **{name: causes[name] for name in causes if name.startswith("num_")},
        evicted_ns=causes["evicted_ns"],
    )


LOSS_UNKNOWN = TokenLoss(
    num_lost=None,
    num_recomputed=None,
    num_regained_from_prefix_cache=None,
    num_regained_from_connector=None,
    num_lost_again=None,
    num_never_resumed=None,
    num_pending=None,
)
PAUSES_UNKNOWN = Pauses(
    num_evicted=0,
    num_calm=0,
    evicted_p95_ns=None,
    calm_p95_ns=None,
    all_p99_ns=None,
    calm_p99_ns=None,
)
WORK_UNKNOWN = TokenWork(
    num_scheduled=None,
    num_useful_prefill=None,
    num_useful_decode=None,
    num_recomputed=None,
    num_rejected_drafts=None,
    num_padding=None,
)


def account_of_counter(
    scope: Scope, counter: int | None, num_finished: int | None, sql: str
) -> Accounting:
    """Returns the account of an engine without a step record: its counter, all unattributed."""
    return Accounting(
        scope=scope,
        counter=counter,
        num_rows=0,
        num_kv_full=0,
        num_priority=0,
        num_cache_reset=0,
        num_cause_unknown=0,
        loss=LOSS_UNKNOWN,
        work=WORK_UNKNOWN,
        num_requests=0,
        num_affected=0,
        num_finished=num_finished or 0,
        max_times=0,
        evicted_ns=None,
        request_ns=None,
        num_newer_paid=0,
        num_itself_paid=0,
        num_older_paid=0,
        pauses=PAUSES_UNKNOWN,
        victims=(),
        sql=sql,
        is_recorded=False,
    )


def _loss(causes: dict[str, Any]) -> TokenLoss:
    if not causes["num_rows"]:
        return TokenLoss(
            num_lost=0,
            num_recomputed=0,
            num_regained_from_prefix_cache=0,
            num_regained_from_connector=0,
            num_lost_again=0,
            num_never_resumed=0,
            num_pending=0,
        )
    return TokenLoss(
        num_lost=causes["lost"],
        num_recomputed=causes["recomputed"],
        num_regained_from_prefix_cache=causes["from_prefix_cache"],
        num_regained_from_connector=causes["from_connector"],
        num_lost_again=causes["lost_again"],
        num_never_resumed=causes["never_resumed"],
        num_pending=causes["pending"],
    )


def _counter_rise(log: QueryLog, scope: Scope, *, saw_start: bool) -> int | None:
    row = read_row(log, scope.fill(COUNTER_SQL))
    if row["at_end"] is None:
        return None
    base = 0 if saw_start else row["before"]
    if base is None:
        base = row["at_first_row"]
    return int(row["at_end"]) - int(base or 0)
