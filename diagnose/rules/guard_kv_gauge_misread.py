"""guard-kv-gauge-misread: the KV gauge counts blocks, and short requests leave them half empty.

What it measures
----------------
The part of the blocks in use that holds nothing, from the block size and the mean length of the
requests that ended: half a block of each request is empty on average.

Why it matters
--------------
A gauge at 67 % with 37 % of the places filled looks like a pool that is nearly full, and is not a
reason to buy memory: smaller blocks would do.

When it stays quiet
-------------------
Below 50 % usage nobody reads the gauge as full. With long requests the two agree. Without the block
size, or without requests that ended, it is not known. With preemptions the blocks were short,
whatever they held.

What to do
----------
Read the gauge as blocks. Where it matters, a smaller `block_size` wastes less.

Source
------
Report of prompts of 17 tokens in blocks of 16; prompts of 400 agree within 1.2 points. 10 % and
50 %: starting values.
"""

from __future__ import annotations

from diagnose.finding import Suppressed
from diagnose.rule import Context, Earlier, Rule
from diagnose.scrapes.metric_capacity import measure_metric_capacity
from diagnose.scrapes.metric_finding import facts_of
from diagnose.words import percent

ID = "guard-kv-gauge-misread"

MIN_USAGE = 0.5
"""KV gauge from which somebody may read it as nearly full. Starting value."""
MIN_EMPTY = 0.1
"""Part of the used blocks that is empty, from which it is worth a word. Starting value."""


def decide_metrics(context: Context, earlier: Earlier) -> Suppressed | None:
    """Returns how much of the used blocks is empty; `None` where it is little or not known."""
    facts, block_size = facts_of(context), context.settings.block_size
    usage = facts["kv_cache_usage_ratio"].max
    mean = measure_metric_capacity(facts, context.settings).mean_tokens
    if not facts.has_enough or usage is None or usage < MIN_USAGE or not mean or not block_size:
        return None
    if facts["num_preemptions"].sum != 0:
        return None  # then the blocks were short, whatever they held
    while_running = mean / 2  # half of its tokens, on average over its life
    empty = (block_size / 2) / (while_running + block_size / 2)
    if empty < MIN_EMPTY:
        return None
    return Suppressed(
        rule=None,
        by=ID,
        number=f"the gauge's {percent(usage)} counts blocks of {block_size} tokens; at a mean "
        f"length of {mean:,.0f} about {percent(empty)} of them is empty",
    )


RULE = Rule(id=ID, version=1, prefix="gkm", page=__doc__ or "", decide_metrics=decide_metrics)
