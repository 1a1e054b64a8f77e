"""The statements behind the seven panels of the overview; the story of a request has some of them.

Its tour: `arrivals` has those who come and go; `work` counts preemptions and tokens per bin;
`blocks`, `waiting` and `stops` draw states, each in the two forms that `states` tells of.
"""

from dashboard.queries.panels.arrivals import arrivals, arrivals_per_bin
from dashboard.queries.panels.blocks import (
    blocks_runs,
    blocks_stretches,
    facts,
    need_runs,
    need_stretches,
)
from dashboard.queries.panels.stops import stop_runs, stop_shares, stop_totals
from dashboard.queries.panels.waiting import MAX_SERIES, REST, waiting_runs, waiting_stretches
from dashboard.queries.panels.work import preempting_steps, preemptions_per_bin, token_work

__all__ = [
    "MAX_SERIES",
    "REST",
    "arrivals",
    "arrivals_per_bin",
    "blocks_runs",
    "blocks_stretches",
    "facts",
    "need_runs",
    "need_stretches",
    "preempting_steps",
    "preemptions_per_bin",
    "stop_runs",
    "stop_shares",
    "stop_totals",
    "token_work",
    "waiting_runs",
    "waiting_stretches",
]
