"""connector-save-stuck: KV that is being stored elsewhere never arrives.

What it measures
----------------
Time from the begin of a save through a KV connector to its end or failure. The rule fires where one
took 120 seconds or longer; it says who, since when, and which blocks are held.

Why it matters
--------------
A save reads its request's blocks. Until it ends they cannot be given to anybody else, even if the
request has long been answered.

When it stays quiet
-------------------
A slow save that ends holds its blocks for a while and no longer. Loads are
`remote-kv-wait-stuck`, acknowledgements `connector-ack-stuck`.

What to do
----------
Look at the tier or the other side that takes the KV: disk, link, process. Give blocks of a dead
transfer a lease.

Source
------
The scheduler's own document, chapter on production. 120 s: the playbook's starting value for loads.
"""

from __future__ import annotations

from diagnose.finding import RuleVerdict
from diagnose.rule import Context, Earlier, Rule
from diagnose.transfers import Stage, judge_stage

STAGE = Stage(
    noun="save",
    began="save_started",
    ended=("save_finished", "save_failed"),
    omission="take the KV",
    remedy="look at what takes the KV (disk, link, process); give dead transfers a lease",
)


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a save does not end."""
    return judge_stage(context, RULE, STAGE)


RULE = Rule(id="connector-save-stuck", version=1, prefix="css", page=__doc__ or "", decide=decide)
