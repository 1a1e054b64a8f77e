"""connector-ack-stuck: the other side never says that it has the KV.

What it measures
----------------
Time from the end of a request whose KV is being sent to its acknowledgement, or to the lease that
gave its blocks up. The rule fires where one took 120 seconds or longer; it says who, since when,
and which blocks are held.

Why it matters
--------------
The blocks of an answered request are kept until the other side has read them. If it never says so,
the pool shrinks by every such request.

When it stays quiet
-------------------
An acknowledgement that comes late holds blocks for a while and no longer. Where saves do not end,
nothing can be acknowledged: `connector-save-stuck`. Expired leases are `pd-producer-lease-expiry`.

What to do
----------
Look at the side that reads: has it died, was its request aborted, does it speak the same version?
Set an acknowledgement time-out and a lease.

Source
------
The scheduler's own document, chapter on production. 120 s: the playbook's starting value for loads.
"""

from __future__ import annotations

from diagnose.finding import RuleVerdict
from diagnose.rule import Context, Earlier, Rule
from diagnose.transfers import Stage, judge_stage

STAGE = Stage(
    noun="acknowledgement",
    began="ack_wait_started",
    ended=("ack_received", "lease_expired"),
    omission="say that it has the KV",
    remedy="look at the side that reads the KV; set a time-out and a lease for what it never "
    "acknowledges",
)


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where an acknowledgement does not end."""
    return judge_stage(context, RULE, STAGE)


RULE = Rule(
    id="connector-ack-stuck",
    version=2,
    prefix="cas",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("connector-save-stuck",),
)
