"""guard-prefix-hit-inflated: a hit rate that counts evicted requests which find their own blocks.

What it measures
----------------
Prefix cache hits in intervals in which preemptions were counted: an evicted request that comes back
looks its own tokens up again and finds them.

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
from diagnose.metric_finding import facts_of
from diagnose.rule import Context, Earlier, Rule
from diagnose.words import percent

ID = "guard-prefix-hit-inflated"

MIN_SHARE = 0.1
"""Share of the hits that came with preemptions, from which the rate says little. Starting value."""


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


RULE = Rule(id=ID, version=1, prefix="gph", page=__doc__ or "", decide_metrics=decide_metrics)
