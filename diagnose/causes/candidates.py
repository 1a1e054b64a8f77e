"""The candidates for a cause, each judged by itself and each with the number that decided.

All that have a size are judged alike: demand is `requests running x blocks of each at full length`;
a candidate is confirmed if it did change and if, put back alone to what it was, the demand would
have fitted the pool. Causes are changes of state and of settings: requests in flight and a falling
hit rate are told, but follow from others.
"""

from __future__ import annotations

from collections.abc import Callable

from diagnose.causes.arrival_changes import judge_burst, judge_concurrency, judge_rate
from diagnose.causes.change import Case, Change
from diagnose.causes.engine_changes import (
    judge_connector,
    judge_oversized,
    judge_pool,
    judge_reset,
    judge_settings,
)
from diagnose.causes.length_changes import judge_outputs, judge_prompts
from diagnose.causes.mix_changes import judge_adapters, judge_priorities, judge_sharing

JUDGES: tuple[Callable[[Case], Change], ...] = (
    judge_burst,
    judge_rate,
    judge_pool,
    judge_prompts,
    judge_outputs,
    judge_settings,
    judge_priorities,
    judge_connector,
    judge_reset,
    judge_oversized,
    judge_adapters,
    judge_sharing,
    judge_concurrency,
)
"""Every candidate, in the order in which they are told."""
