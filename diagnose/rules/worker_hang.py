"""worker-hang: requests run, and no token comes any more.

What it measures
----------------
A step that takes a minute or longer while requests run: by the engine's own heartbeat, which says
in which phase it is and since when, or by the step's begin and end once it is over. An engine that
is idle, or dead, hangs in nothing.

Why it matters
--------------
The scheduler waits for the device, or for other ranks that wait for each other. `/health` says 200
and the device may show full utilisation at almost idle power. Nothing will come until a restart.

When it stays quiet
-------------------
An engine that never gave a token may be compiling; steps that give nobody anything end quickly and
are not this. A warning about shared-memory broadcast on an idle engine is noise. Where nobody runs
it is `admission-deadlock`.

What to do
----------
Look for NCCL or RPC time-outs in the log and restart. Then try a newer NCCL,
`--disable-custom-all-reduce` or `--enforce-eager`, one at a time, and probe token progress instead
of `/health`.

Source
------
Reports of tensor-parallel engines that hung in the replay of a graph and in a collective. 60 s: the
playbook's starting value; that tokens flowed before is ours, against first compiles.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.causes.chain import links
from diagnose.finding import Finding, Impact, Link, RuleVerdict, Severity, Span
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, ruled_out, undetermined
from diagnose.words import count, duration, plural

ID = "worker-hang"

MIN_STILL_NS = 60 * NS
"""How long one step may take. Source: playbook."""

BEATS_SQL = """
SELECT step::BIGINT AS step, phase_name(phase) AS phase, phase_age_ns AS lasted_ns,
       ts - phase_age_ns AS opened_ts, ts AS until_ts,
       (SELECT arg_max(num_running, s.ts) FROM steps AS s WHERE s.engine = {engine}
        AND s.ts <= {end}) AS num_running
FROM heartbeats
WHERE {where} AND phase_name(phase) <> 'idle' ORDER BY phase_age_ns DESC LIMIT 1
"""
STEPS_SQL = """
SELECT step::BIGINT AS step, NULL AS phase, updated_ts - ts AS lasted_ns, ts AS opened_ts,
       updated_ts AS until_ts, num_running
FROM steps WHERE {where} AND num_repeats = 1 AND num_running > 0
ORDER BY updated_ts - ts DESC LIMIT 1
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a step does not end."""
    beats, steps = context.rows(BEATS_SQL), context.rows(STEPS_SQL)
    seen = [row for row in (*beats, *steps) if row["lasted_ns"] is not None]
    if not seen:
        missing = ("heartbeats.phase_age_ns", "steps.updated_ts")
        return not_measured(ID, missing, "no step ended and no heartbeat came")
    worst = max(seen, key=lambda row: row["lasted_ns"])
    if worst["lasted_ns"] < MIN_STILL_NS:
        return healthy(ID, "progress", f"longest step {duration(worst['lasted_ns'])}")
    return _finding(context, worst, BEATS_SQL if worst["phase"] else STEPS_SQL)


def _finding(context: Context, hang: dict[str, Any], template: str) -> Finding:
    sql, lasted = context.scope.fill(template), duration(hang["lasted_ns"])
    is_open = hang["phase"] is not None and context.quality.stopped_ts is None
    where = f"in {hang['phase']} " if hang["phase"] else ""
    running = count(hang["num_running"])
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=Span(opened_ts=hang["opened_ts"], cleared_ts=None if is_open else hang["until_ts"]),
        sentence=f"Step {hang['step']:,} has been {where}for {lasted} with {running} requests "
        "running"
        if is_open
        else f"Step {hang['step']:,} took {lasted} with {running} requests running",
        symptom=f"one step of {lasted}",
        cause=undetermined("what the device or a collective did meanwhile is not recorded"),
        confidence=("high", "the engine's own heartbeat" if is_open else "begin and end of it"),
        rejected=ruled_out(
            ("empty steps", "this step has not ended" if is_open else "this step did work"),
            ("preemption", f"{context.accounting.num_from_kv:,} for want of blocks"),
        ),
        evidence=(measured("time of one step", hang["lasted_ns"], "ns", sql,
                           threshold=MIN_STILL_NS),),
        impact=Impact(
            cost=(f"{plural(hang['num_running'] or 0, 'request')} got no token for {lasted}",),
            numbers=(("still_ns", hang["lasted_ns"]), ("num_running", hang["num_running"])),
        ),
        num_affected=hang["num_running"],
        chain=_chain(hang, running),
        actions=(
            advise(
                "look for collective or RPC time-outs in the log, restart, and probe progress "
                "instead of /health; then try without graphs",
                trade_off="requests in the engine are lost",
            ),
        ),
        missing=("what the device did meanwhile",),
    )  # fmt: skip


def _chain(hang: dict[str, Any], running: str) -> tuple[Link, ...]:
    cause = undetermined("not recorded")
    began = f"step {hang['step']:,} began with {running} requests running"
    still = f"it had not ended {duration(hang['lasted_ns'])} later: nobody got a token"
    if hang["phase"] is None:
        still = f"it ended {duration(hang['lasted_ns'])} later: until then nobody got a token"
    return links(cause, None, began, hang["opened_ts"], still, hang["until_ts"])


RULE = Rule(
    id=ID,
    version=2,
    prefix="whg",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("kv-preemption-thrash",),
)
