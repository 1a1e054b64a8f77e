"""guard-idle-broadcast-noise: an engine of several ranks that has nothing to do.

What it measures
----------------
Whether, with more than one rank, nobody ran and nobody waited at any scrape.

Why it matters
--------------
Ranks that share memory warn that no broadcast came ("No available shared memory broadcast block")
when nobody asks for anything. It reads like a hang and is none.

When it stays quiet
-------------------
With a single rank there is nothing to broadcast. With a request in the engine the warning may be
true: `worker-hang`.

What to do
----------
Nothing: no request is in the engine. Look again if the warning comes while requests run.

Source
------
Report that first filed the warning as a hang across nodes. No threshold.
"""

from __future__ import annotations

from diagnose.finding import Suppressed
from diagnose.log_evidence import log_evidence
from diagnose.rule import Context, Earlier, Rule
from diagnose.scrapes.metric_finding import facts_of
from diagnose.words import plural

ID = "guard-idle-broadcast-noise"


def decide_metrics(context: Context, earlier: Earlier) -> Suppressed | None:
    """Returns that the engine is idle; `None` where it is not, or has one rank."""
    facts = facts_of(context)
    if not facts.has_enough or facts.in_flight.max != 0:
        return None
    warned = log_evidence(context, "broadcast_stall")
    if warned is None and not _has_ranks(context):
        return None
    number = f"nobody ran or waited in {plural(facts.num_scrapes, facts.noun)}"
    if warned is not None:
        number += f"; {plural(warned.num, 'warning')} of a missing broadcast"
    return Suppressed(rule="worker-hang", by=ID, number=number)


def _has_ranks(context: Context) -> bool:
    names = (
        ("tensor_parallel_size", "tp", "tp_size"),
        ("pipeline_parallel_size", "pp", "pp_size"),
        ("data_parallel_size", "dp", "dp_size"),
    )
    sizes = (context.settings.setting(*each) for each in names)
    return any(isinstance(size, int) and size > 1 for size in sizes)


RULE = Rule(id=ID, version=1, prefix="gib", page=__doc__ or "", decide_metrics=decide_metrics)
