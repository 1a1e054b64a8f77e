"""What an alert is, and the little PromQL that several are built from.

A condition is recorded as a series of its own (`stepscope:worker_hang`), so that one rule can be
silenced by another (`unless`) without saying its condition again. All binary operators match on all
labels but those taken away with `without`: whatever a target is labelled with stays on the alert. A
series that is not there makes a condition empty, and an empty condition is no alert.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from diagnose.finding import Severity
from diagnose.reading import NS

Source = Literal["engine", "collector"]

ENGINE = "{{ $labels.instance }}, engine {{ $labels.engine }} ({{ $labels.model_name }})"
"""Where it is, by the labels of an engine's page."""
SETTING_MAX_NUM_SEQS = "stepscope:max_num_seqs"
"""No page tells this setting: whoever deploys says it, as a recording rule."""

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USAGE = "vllm:kv_cache_usage_perc"
PREEMPTIONS = "vllm:num_preemptions_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
OUTPUT_TOKENS = "vllm:generation_tokens_total"
DEFERRED = 'sum without (reason) (vllm:num_requests_waiting_by_reason{reason="deferred"})'
FOR_CAPACITY = (
    'sum without (reason) (vllm:num_requests_waiting_by_reason{reason="capacity"})\n'
    "  or vllm:num_requests_waiting"
)
"""Who waits and is not set aside; all who wait where that is not told apart."""
IS_AWAKE = 'vllm:engine_sleep_state{sleep_state="awake"}'

_NAME = re.compile(r"\b(?:vllm|stepscope):[a-z0-9_]+|\bstepscope_[a-z0-9_]+|\bup(?=\{)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What Prometheus watches for one rule.

    `expr` gives a series for each engine while it is so, with the number that `description` shows
    as `$value`. It has to stay so for `hold`. A guard has no `summary`: it is recorded, silences
    others and alerts nobody. `unless` are guards in PromQL that belong to this alert alone.
    """

    rule: str
    expr: str
    severity: Severity = Severity.info
    hold: str = "0s"
    summary: str | None = None
    description: str = ""
    queries: tuple[str, ...] = ("scraped-load",)
    """Saved queries of `stepscope query` that show it."""
    source: Source = "engine"

    @property
    def record(self) -> str:
        """The series that the condition is recorded as."""
        return f"stepscope:{self.rule.replace('-', '_')}"

    @property
    def name(self) -> str:
        """The alert's name."""
        words = self.rule.removeprefix("stepscope-").split("-")
        return "Stepscope" + "".join(word.capitalize() for word in words)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The series that it needs."""
        return metrics_in(self.expr)


def metrics_in(expr: str) -> tuple[str, ...]:
    """Returns the names of all series in an expression, sorted."""
    return tuple(sorted(set(_NAME.findall(expr))))


def seconds(ns: int) -> str:
    """Returns a threshold of the rules as PromQL writes it: whole seconds."""
    return f"{ns // NS}s"


def no_tokens(window: str) -> str:
    """Returns that neither prompt nor output tokens were counted; both have to be measured."""
    return f"increase({PROMPT_TOKENS}[{window}]) + increase({OUTPUT_TOKENS}[{window}]) == 0"


def finished(window: str) -> str:
    """Returns how many requests ended, for whatever reason."""
    return f"sum without (finished_reason) (increase(vllm:request_success_total[{window}]))"


def p99(histogram: str, window: str, offset: str = "") -> str:
    """Returns the 99th percentile of a histogram's observations."""
    return f"histogram_quantile(0.99, rate({histogram}_bucket[{window}]{offset}))"


def mean(histogram: str, window: str) -> str:
    """Returns the mean of a histogram's observations; nothing where there were none."""
    return f"rate({histogram}_sum[{window}]) / (rate({histogram}_count[{window}]) > 0)"
