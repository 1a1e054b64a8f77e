"""Stages of a KV connector that do not end: a save, or the acknowledgement of a finished request.

Loads have a view of their own (`connector_loads`); nothing waits for these two but KV blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.reading import NS
from diagnose.rule import Context, Rule
from diagnose.saying import finding, healthy, measured, ruled_out, unused, waited
from diagnose.words import connector_name, count, duration, harmless, plural

MIN_STUCK_NS = 120 * NS
"""How long a stage may take. Source: playbook, as for loads."""

STAGE_SQL = """
WITH marks AS (
    SELECT request, ts, seq, num_blocks, peer, kind = event_kind('{began}') AS is_begin
    FROM request_events
    WHERE engine = {{engine}} AND ts <= {{end}} AND request IS NOT NULL
      AND kind IN (event_kind('{began}'), {ended})
), stages AS (
    SELECT *, lead(ts) OVER (PARTITION BY request ORDER BY seq) AS end_ts FROM marks
)
SELECT s.request, r.request_id, s.ts AS start_ts, s.end_ts, s.num_blocks::BIGINT AS num_blocks,
       s.peer, (coalesce(s.end_ts, {{end}}) - s.ts)::BIGINT AS lasted_ns
FROM stages AS s LEFT JOIN request_arrivals AS r ON r.engine = {{engine}} AND r.request = s.request
WHERE s.is_begin AND coalesce(s.end_ts, {{end}}) >= {{start}}
ORDER BY s.end_ts IS NOT NULL, lasted_ns DESC, s.request
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One stage of one request. `end_ts` is `None` while it has not ended."""

    request: int
    request_id: str | None
    start_ts: int
    end_ts: int | None
    num_blocks: int | None
    peer: str | None
    lasted_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage as the record and people call it.

    `began` and `ended` are kinds of events; `omission` is what the other side does not do.
    """

    noun: str
    began: str
    ended: tuple[str, ...]
    omission: str
    remedy: str

    @property
    def sql(self) -> str:
        """The statement that lists it, a template for the window."""
        kinds = ", ".join(f"event_kind('{kind}')" for kind in self.ended)
        return STAGE_SQL.format(began=self.began, ended=kinds)


def judge_stage(context: Context, rule: Rule, stage: Stage) -> RuleVerdict:
    """Returns a finding where a stage took too long, or has not ended."""
    if context.settings.kv_connector is None:
        return unused(rule.id, f"{stage.noun}s", "no connector")
    transfers = [Transfer(**row) for row in context.rows(stage.sql)]
    stuck = [each for each in transfers if each.lasted_ns >= MIN_STUCK_NS]
    if not stuck:
        longest = max((each.lasted_ns for each in transfers), default=None)
        number = f"{len(transfers):,} seen, longest {duration(longest)}"
        return healthy(rule.id, f"{stage.noun}s", number)
    return _finding(context, rule, stage, stuck, len(transfers))


def _finding(
    context: Context, rule: Rule, stage: Stage, stuck: list[Transfer], num_transfers: int
) -> Finding:
    sql, still = context.scope.fill(stage.sql), [each for each in stuck if each.end_ts is None]
    longest = max(each.lasted_ns for each in stuck)
    held = sum(each.num_blocks or 0 for each in still)
    blocks = held if all(each.num_blocks is not None for each in still) else None
    connector = connector_name(context.settings.kv_connector)
    open_now = ""
    if still:
        open_now = f"; {len(still):,} have not ended and hold {count(blocks)} KV blocks"
    return finding(
        context,
        rule,
        severity=Severity.critical if still else Severity.high,
        span=_span(context, stuck),
        sentence=f"{plural(len(stuck), stage.noun)} through {connector} took longer than "
        f"{duration(MIN_STUCK_NS)}, up to {duration(longest)}{open_now}",
        symptom=f"longest {stage.noun}: {duration(longest)}",
        cause=Cause(
            kind="peer", sentence=f"peer: {_peers(stuck)} does not {stage.omission} ({connector})"
        ),
        confidence=("high", "begin and end of each stage are recorded"),
        rejected=ruled_out(("loads", "they are a stage of their own: remote-kv-wait-stuck")),
        evidence=(
            measured(
                f"longest {stage.noun}", longest, "ns", sql, threshold=MIN_STUCK_NS,
                n=num_transfers,
            ),
            measured("not ended", len(still), "requests", sql, n=num_transfers),
            measured("KV blocks that they hold", blocks, "blocks", sql, n=len(still)),
        ),
        impact=Impact(
            cost=(f"{count(blocks)} KV blocks held by {plural(len(still), 'request')}",),
            numbers=(("num_stuck", len(stuck)), ("num_open", len(still)), ("num_blocks", blocks)),
        ),
        affected=tuple(
            waited(each.request, each.request_id, each.lasted_ns) for each in stuck[:10]
        ),
        num_affected=len(stuck),
        actions=(
            advise(
                stage.remedy,
                trade_off="a lease that is too short gives blocks away that are still read",
            ),
        ),
    )  # fmt: skip


def _span(context: Context, stuck: list[Transfer]) -> Span:
    ends = [each.end_ts for each in stuck]
    is_open = None in ends and context.quality.stopped_ts is None
    last = max(context.newest_ts if end is None else end for end in ends)
    return Span(
        opened_ts=min(each.start_ts for each in stuck), cleared_ts=None if is_open else last
    )


def _peers(stuck: list[Transfer]) -> str:
    names = sorted({harmless(each.peer) for each in stuck if each.peer is not None})
    return ", ".join(names[:3]) or "the other side"
