"""guard-counter-reset: a counter that fell is a restart, not a number.

What it measures
----------------
Intervals between two scrapes in which a counter fell, or in which another process answered
(`process_start_time_seconds`).

Why it matters
--------------
A raw counter read over a restart says "minus 410 preemptions", or hides all those before it. A sum
of increases that leaves the interval out says what is known, and no more.

When it stays quiet
-------------------
Without a reset it says nothing. It never says that a restart was a fault: somebody may have wanted
it.

What to do
----------
Nothing about the number. If nobody restarted the engine, look at why it did.

Source
------
Report of a dashboard that read 0 after a pod restarted. No threshold.
"""

from __future__ import annotations

from diagnose.finding import Suppressed
from diagnose.rule import Context, Earlier, Rule
from diagnose.scrapes.metric_finding import facts_of
from diagnose.words import plural

ID = "guard-counter-reset"


def decide_metrics(context: Context, earlier: Earlier) -> Suppressed | None:
    """Returns how many intervals were left out of all sums; `None` without a reset."""
    facts = facts_of(context)
    if not facts.num_resets:
        return None
    number = f"{facts.num_resets:,} of {plural(facts.num_scrapes - 1, 'interval')} left out"
    return Suppressed(rule=None, by=ID, number=f"{number}: a counter fell or a process was new")


RULE = Rule(id=ID, version=1, prefix="gcr", page=__doc__ or "", decide_metrics=decide_metrics)
