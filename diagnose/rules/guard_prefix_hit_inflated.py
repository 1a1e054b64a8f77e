"""guard-prefix-hit-inflated: a hit rate that counts evicted requests which find their own blocks.

What it measures
----------------
Prefix cache hits in intervals in which preemptions were counted: an evicted request that comes back
looks its own tokens up again and finds them. A step record says whose hits they are.

Why it matters
--------------
Random prompts can show 32 % of hits so. Whoever reads that as reuse, or its fall as a broken cache,
looks in the wrong place.

When it stays quiet
-------------------
Without preemptions, or without hits, it says nothing.

What to do
----------
Judge the hit rate in intervals without preemptions, or from a step record, which tells whose hits
they are.

Source
------
Report of random data with 32.2 % of hits, 0.2 % without resumed requests. A tenth of the intervals:
starting value.
"""

from __future__ import annotations

import numpy as np

from diagnose.finding import Suppressed
from diagnose.rule import Context, Earlier, Rule
from diagnose.scrapes.metric_finding import facts_of
from diagnose.words import percent

ID = "guard-prefix-hit-inflated"

MIN_SHARE = 0.1
"""Share of the hits that came with preemptions, from which the rate says little. Starting value."""


HITS_SQL = """
SELECT sum(num_hit_tokens)::BIGINT AS num_hits,
       sum(num_hit_tokens) FILTER (kind = event_kind('resumed'))::BIGINT AS num_own
FROM request_events
WHERE {where} AND kind IN (event_kind('admitted'), event_kind('resumed'))
"""


def decide(context: Context, earlier: Earlier) -> Suppressed | None:
    """Returns what share of a step record's hits were evicted requests' own; `None`: small."""
    seen = context.row(HITS_SQL)
    hits, own = seen["num_hits"] or 0, seen["num_own"] or 0
    if not hits or own < MIN_SHARE * hits:
        return None
    return Suppressed(
        rule=None,
        by=ID,
        number=f"{percent(own / hits)} of {hits:,} tokens that hit were evicted requests' own",
    )


def decide_metrics(context: Context, earlier: Earlier) -> Suppressed | None:
    """Returns what share of the hits came with preemptions; `None` where it is small."""
    facts = facts_of(context)
    hits, queries = facts["num_prefix_hits"].sum, facts["num_prefix_queries"].sum
    if not hits or not queries:
        return None
    preempted = np.nan_to_num(facts["num_preemptions"].values) > 0
    among = facts["num_prefix_hits"].within(preempted).sum or 0
    if among < MIN_SHARE * hits:
        return None
    return Suppressed(
        rule=None,
        by=ID,
        number=f"{percent(among / hits)} of the hits came while preemptions were counted: the hit "
        f"rate of {percent(hits / queries)} contains evicted requests' own blocks",
    )


RULE = Rule(
    id=ID,
    version=2,
    prefix="gph",
    page=__doc__ or "",
    decide=decide,
    decide_metrics=decide_metrics,
)
