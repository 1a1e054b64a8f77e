"""pd-producer-lease-expiry: a prefill engine let KV go before anybody fetched it.

What it measures
----------------
Requests that have ended and whose KV blocks were given up by a lease before the other side said
that it had them.

Why it matters
--------------
Until a lease ends its blocks are pinned, so a prefill engine runs out of them. After it ended, a
late read gets whatever lies there now, and the answer may be wrong without any error.

When it stays quiet
-------------------
A failed transfer is `kv-load-failure`, an acknowledgement that is only late `connector-ack-stuck`.

What to do
----------
Make the lease longer than the 99th percentile of queueing and transfer, renew it, and let the
router wait longer than a prefill takes before it gives up.

Source
------
Reports of aborts that raced with finished prefills, and of reads after a lease of 30 s. One is
enough: no threshold.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.episodes import Episode, worst_episode
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, ruled_out, unused
from diagnose.words import connector_name, count, plural

ID = "pd-producer-lease-expiry"

MOMENTS_SQL = """
SELECT ts FROM request_events
WHERE engine = {engine} AND ts <= {end} AND kind = event_kind('lease_expired')
"""
SQL = """
SELECT count(*) AS num_expired, count(DISTINCT e.request) AS num_requests,
       sum(e.num_blocks)::BIGINT AS num_blocks,
       count(*) FILTER (finish_reason_name(f.reason) LIKE 'abort%') AS num_aborted
FROM request_events AS e LEFT JOIN request_finishes AS f USING (engine, request)
WHERE e.engine = {engine} AND e.ts BETWEEN {start} AND {end}
  AND e.kind = event_kind('lease_expired')
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a lease expired."""
    if context.settings.kv_connector is None:
        return unused(ID, "expired leases", "no connector")
    episode = worst_episode(context, MOMENTS_SQL)
    if episode is None:
        return healthy(ID, "expired leases", "0")
    return _finding(context, episode, read_row(context.log, episode.inside.fill(SQL)))


def _finding(context: Context, episode: Episode, seen: dict[str, Any]) -> Finding:
    expired = plural(seen["num_expired"], "lease")
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=episode.span,
        sentence=f"{expired} of KV blocks expired before the other side said that it had them "
        f"({connector_name(context.settings.kv_connector)}, {count(seen['num_blocks'])} blocks); "
        f"{seen['num_aborted']:,} of these requests had been aborted",
        symptom=f"{expired} expired",
        cause=Cause(
            kind="peer",
            sentence=f"peer: it did not fetch or did not say so; {seen['num_aborted']:,} of "
            f"{seen['num_expired']:,} were aborted before",
        ),
        confidence=("high", "each expired lease is recorded"),
        rejected=ruled_out(("failed transfers", "they have an event of their own")),
        evidence=(
            measured("expired leases", seen["num_expired"], "leases", episode.inside.fill(SQL),
                     threshold=0),
        ),
        impact=Impact(
            cost=(f"{plural(seen['num_requests'], 'prefill')} thrown away, or read too late",),
            numbers=(("num_expired", seen["num_expired"]), ("num_blocks", seen["num_blocks"])),
        ),
        num_affected=seen["num_requests"],
        actions=(
            advise(
                "make the lease longer than queueing and transfer at p99, and the router's "
                "time-out longer than a prefill",
                trade_off="blocks of lost requests stay pinned for longer",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=2,
    prefix="ple",
    page=__doc__ or "",
    decide=decide,
)
