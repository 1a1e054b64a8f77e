"""prefill-head-of-line: one long prompt takes the tokens of step after step.

What it measures
----------------
Steps that gave out their whole token budget, nine tenths of it or more to one request, while others
waited or ran and got nothing, and KV blocks were free. The rule fires at ten such steps or more
that are at least three tenths of the steps in which anybody was held up.

Why it matters
--------------
Everybody behind waits until the prompt has been computed: the first token of a short prompt takes
as long as what is left of the long one.

When it stays quiet
-------------------
With a full KV pool it is blocks that are short. Several prompts that share a step are a burst, not
one owner. A short prompt that fills one step harms nobody.

What to do
----------
Cap what one request gets in a step (`--long-prefill-token-threshold`, about half the budget), or
send long prompts elsewhere.

Source
------
Public measurement: the first token of a short prompt behind a long one came after 1.09 s instead of
18.0 s once the long one was capped. 90 %: playbook; the others are starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.episodes import Episode, worst_episode
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, ruled_out
from diagnose.words import count, duration, percent, plural

ID = "prefill-head-of-line"

MIN_TOP_SHARE = 0.9
"""Share of a step's tokens that one request gets. Source: playbook."""
MIN_BUDGET_SHARE = 0.95
"""Share of the token budget that the step gives out. Starting value."""
MIN_FREE = 0.15
"""Part of the KV pool that has to be free. Source: playbook (used below 0.85)."""
MIN_STEPS = 10
"""Such steps. Starting value."""
MIN_SHARE = 0.3
"""Their share of the steps in which anybody was held up. Starting value."""

OWNED = f"""
    top_request_tokens >= {MIN_TOP_SHARE} * num_scheduled_tokens
    AND num_scheduled_tokens >= {MIN_BUDGET_SHARE} * token_budget
    AND (num_waiting > 0 OR num_zero_requests > 0)
    AND num_blocks_free_unhashed + num_blocks_free_cached >= {MIN_FREE} * (
        SELECT max(num_usable_blocks) FROM engines AS e WHERE e.engine = steps.engine
    )
"""
"""Whether one request has the budget of a step in which others get nothing."""

MOMENTS_SQL = f"SELECT ts FROM steps WHERE engine = {{engine}} AND ts <= {{end}} AND {OWNED}"
SQL = f"""
SELECT count(*) FILTER ({OWNED}) AS num_owned, count(*) AS num_steps,
       mode(top_request) FILTER ({OWNED}) AS owner,
       sum(top_request_tokens) FILTER ({OWNED})::BIGINT AS num_tokens,
       sum(updated_ts - ts) FILTER ({OWNED})::BIGINT AS owned_ns,
       max(num_waiting + coalesce(num_zero_requests, 0)) FILTER ({OWNED}) AS most_held_up,
       max(token_budget) AS budget,
       count(DISTINCT top_request) FILTER ({OWNED}) AS num_owners
FROM steps WHERE {{where}} AND (num_waiting > 0 OR num_zero_requests > 0)
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where one request's prompt takes the budget from others."""
    columns = ("top_request_tokens", "token_budget", "num_scheduled_tokens", "num_waiting")
    lacks = lacking(context, ID, "steps", *columns)
    if lacks is not None:
        return lacks
    episode = worst_episode(context, MOMENTS_SQL)
    if episode is None:
        return healthy(ID, "token budget", "no prompt held up others")
    seen = read_row(context.log, episode.stretch.fill(SQL))
    share = seen["num_owned"] / max(seen["num_steps"], 1)
    if seen["num_owned"] < MIN_STEPS or share < MIN_SHARE:
        number = f"one prompt held up others in {plural(seen['num_owned'], 'step')}"
        return healthy(ID, "token budget", number)
    return _finding(context, episode, seen, share)


def _finding(context: Context, episode: Episode, seen: dict[str, Any], share: float) -> Finding:
    sql, lasted = episode.stretch.fill(SQL), duration(seen["owned_ns"])
    owners = plural(seen["num_owners"], "prompt")
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=episode.span,
        sentence=f"{owners} (most often request {count(seen['owner'])}) took nine tenths or more "
        f"of {seen['num_owned']:,} steps' tokens, {lasted} in all, while up to "
        f"{seen['most_held_up']:,} others got nothing; KV blocks were free",
        symptom=f"{percent(share)} of the {seen['num_steps']:,} steps in which somebody was held "
        "up went to one prompt",
        cause=Cause(
            kind="longer_prompts",
            sentence=f"long prompts: {seen['num_tokens'] or 0:,} tokens in steps of "
            f"{count(seen['budget'])}, one after the other",
        ),
        confidence=("high", "who got the tokens of each step is recorded"),
        rejected=ruled_out(
            ("KV shortage", f"at least {percent(MIN_FREE)} of the pool free in those steps"),
        ),
        evidence=(
            measured(
                "steps with somebody held up that went to one prompt", share, "ratio", sql,
                threshold=MIN_SHARE, n=seen["num_steps"],
            ),
            measured("such steps", seen["num_owned"], "steps", sql, threshold=MIN_STEPS),
            measured("time that they took", seen["owned_ns"], "ns", sql, n=seen["num_owned"]),
        ),
        impact=Impact(
            cost=(f"up to {plural(seen['most_held_up'], 'request')} held up for {lasted}",),
            numbers=(("owned_ns", seen["owned_ns"]), ("max_held_up", seen["most_held_up"])),
        ),
        num_affected=seen["most_held_up"],
        actions=_actions(context, seen["budget"]),
    )  # fmt: skip


def _actions(context: Context, budget: int | None) -> tuple[Action, ...]:
    elsewhere = advise(
        "send long prompts to an engine of their own", applies="client", trade_off="another engine"
    )
    now = context.settings.scheduler_setting("long_prefill_token_threshold")
    if now is None or budget is None or 0 < now <= budget // 2:
        return (elsewhere,)
    cap = advise(
        "leave half of each step to others",
        flag="--long-prefill-token-threshold",
        old=now,
        new=budget // 2,
        trade_off="long prompts take about twice as many steps while others wait",
    )
    return cap, elsewhere


RULE = Rule(
    id=ID,
    version=1,
    prefix="phl",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("kv-preemption-thrash", "kv-preemption-pressure"),
)
