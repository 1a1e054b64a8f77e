"""kv-load-failure: loads of KV blocks from elsewhere fail.

What it measures
----------------
Loads that failed as a whole or half-way, or were given up after their time-out; the blocks that
were missing, the tokens that had to be computed here after all, and the requests that ended with an
error for it.

Why it matters
--------------
What was loaded has to be computed here after all, or the request fails, as the connector's policy
says; some versions strand it, or take the engine down. A decode engine that starts to prefill slows
down everybody on it.

When it stays quiet
-------------------
A load that is late and comes is none that failed. An expired lease is not a failed load:
`pd-producer-lease-expiry`. Without a connector nothing is loaded.

What to do
----------
Look for a roll-out, a different version or layout on one side, or an event on the link at that
moment. Make both sides equal; let the policy fail and the router retry, or recompute where there
is nobody to retry.

Source
------
Reports of a producer that died in the handshake, and of a mismatch of hashes between versions. One
is enough: no threshold.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.episodes import Episode, worst_episode
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, ruled_out, undetermined, unused
from diagnose.words import connector_name, harmless, plural

ID = "kv-load-failure"

MOMENTS_SQL = """
SELECT ts FROM request_events
WHERE engine = {engine} AND ts <= {end}
  AND kind IN (event_kind('load_failed'), event_kind('load_timed_out'))
  AND connector IS DISTINCT FROM 'encoder'
"""

SQL = """
WITH marks AS (
    SELECT request, seq, ts, kind, num_tokens, num_invalid_blocks, policy, text,
           CASE WHEN kind = event_kind('load_started') OR num_external_tokens > 0
                THEN num_hit_tokens END AS num_local,
           CASE WHEN kind = event_kind('load_started') THEN num_tokens
                ELSE nullif(num_external_tokens, 0) END AS num_asked
    FROM request_events
    WHERE engine = {engine} AND ts <= {end} AND connector IS DISTINCT FROM 'encoder'
      AND kind IN (event_kind('load_started'), event_kind('admitted'), event_kind('resumed'),
                   event_kind('load_failed'), event_kind('load_timed_out'))
), loads AS (
    SELECT * EXCLUDE (num_local, num_asked),
           last_value(num_local IGNORE NULLS) OVER life AS num_local,
           last_value(num_asked IGNORE NULLS) OVER life AS num_asked
    FROM marks
    WINDOW life AS (PARTITION BY request ORDER BY seq ROWS UNBOUNDED PRECEDING)
), failures AS (
    SELECT *, kind = event_kind('load_failed') AS is_failed,
           CASE WHEN kind = event_kind('load_failed')
                THEN greatest(num_tokens::BIGINT - num_local, 0) ELSE 0 END AS num_came
    FROM loads
    WHERE ts >= {start}
      AND kind IN (event_kind('load_failed'), event_kind('load_timed_out'))
)
SELECT count(*) FILTER (is_failed) AS num_failed,
       count(*) FILTER (NOT is_failed) AS num_timed_out,
       count(DISTINCT e.request) AS num_requests,
       coalesce(sum(greatest(num_asked::BIGINT - num_came, 0)), 0)::BIGINT AS num_tokens,
       sum(num_invalid_blocks)::BIGINT AS num_invalid_blocks,
       mode(e.text) FILTER (is_failed) AS why,
       count(DISTINCT e.request) FILTER (f.reason = finish_reason('error')) AS num_errors
FROM failures AS e
LEFT JOIN request_finishes AS f ON f.engine = {engine} AND f.request = e.request
"""
CAME_SQL = """
SELECT count(*) AS num_finished FROM connector_loads
WHERE {where} AND outcome = 'finished' AND item_key IS NULL
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a load failed or was given up."""
    if context.settings.kv_connector is None:
        return unused(ID, "failed KV loads", "no connector")
    episode = worst_episode(context, MOMENTS_SQL)
    if episode is None:
        came = context.row(CAME_SQL)["num_finished"]
        return healthy(ID, "failed KV loads", f"0, {plural(came, 'load')} came")
    return _finding(context, episode, read_row(context.log, episode.inside.fill(SQL)))


def _finding(context: Context, episode: Episode, seen: dict[str, Any]) -> Finding:
    sql = episode.inside.fill(SQL)
    num_lost = seen["num_failed"] + seen["num_timed_out"]
    lost = plural(num_lost, "KV load")
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=episode.span,
        sentence=f"{lost} of {plural(seen['num_requests'], 'request')} did not come through "
        f"{connector_name(context.settings.kv_connector)}: {seen['num_failed']:,} failed, "
        f"{seen['num_timed_out']:,} timed out; {plural(seen['num_tokens'], 'token')} were "
        f"missing, {_became(seen)}",
        symptom=f"{lost} failed or timed out",
        cause=_cause(seen),
        confidence=("high", "each load and its end are recorded"),
        rejected=ruled_out(("expired leases", "they have an event of their own")),
        evidence=(
            measured("failed loads", seen["num_failed"], "loads", sql, threshold=0),
            measured("loads given up after their time-out", seen["num_timed_out"], "loads", sql),
            measured("tokens that did not come", seen["num_tokens"], "tokens", sql,
                     provenance="derived"),
            measured("blocks that failed to load", seen["num_invalid_blocks"], "blocks", sql),
            measured("requests that ended with an error", seen["num_errors"], "requests", sql,
                     n=seen["num_requests"]),
        ),
        impact=Impact(
            cost=(f"{plural(seen['num_tokens'], 'token')} missing, {_became(seen)}",),
            numbers=(
                ("num_failed", seen["num_failed"]), ("num_timed_out", seen["num_timed_out"]),
                ("num_tokens", seen["num_tokens"]), ("num_errors", seen["num_errors"]),
            ),
        ),
        num_affected=seen["num_requests"],
        actions=(
            advise(
                "make versions, block size and layout equal on both sides, and look at link and "
                "store; where a router retries, let failed loads fail",
                trade_off="clients see errors instead of slow answers",
            ),
        ),
    )  # fmt: skip


def _became(seen: dict[str, Any]) -> str:
    """Returns what became of the tokens: computed here, or requests that failed for them."""
    if not seen["num_errors"]:
        return "and were computed here"
    return f"and {plural(seen['num_errors'], 'request')} ended with an error"


def _cause(seen: dict[str, Any]) -> Cause:
    if not seen["num_failed"]:
        return Cause(kind="stuck_loads", sentence="stuck loads: none failed, all were given up")
    if seen["why"] is not None:
        return undetermined(f"the connector says most often: {harmless(seen['why'], 160)}")
    return undetermined("a link, a store, a version or a producer; the record has no more")


RULE = Rule(id=ID, version=2, prefix="klf", page=__doc__ or "", decide=decide)
