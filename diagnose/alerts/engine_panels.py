"""What an engine does and what its users feel: load, latency, tokens, connector."""

from __future__ import annotations

from diagnose.alerts.grafana import Panel, Row, Target
from diagnose.alerts.panel_queries import (
    ENGINES,
    HERE,
    MODELS,
    RATE,
    gauge,
    percentiles,
    rate,
    ratio,
    recorded,
)
from diagnose.rules.from_metrics.recomputation import FULL_KV
from diagnose.rules.seq_slot_limit import MAX_KV_USED

LATENCY = Row(
    title="Latency",
    panels=(
        percentiles("Time to the first token", "time_to_first_token_seconds"),
        percentiles("Time between tokens", "inter_token_latency_seconds"),
        percentiles(
            "Queue time",
            "request_queue_time_seconds",
            note="Up to the first admission alone, and only of requests that have ended: one that "
            "is stuck is in none of these.",
        ),
        percentiles("Prefill", "request_prefill_time_seconds"),
        percentiles("Decode", "request_decode_time_seconds"),
        percentiles("Whole request", "e2e_request_latency_seconds"),
    ),
)

LOAD = Row(
    title="Load and KV cache",
    panels=(
        Panel(
            title="Running and waiting",
            targets=(
                Target(expr=gauge("num_requests_running"), legend=f"running {HERE}"),
                Target(expr=gauge("num_requests_waiting"), legend=f"waiting {HERE}"),
            ),
        ),
        Panel(
            title="Waiting, by reason",
            stacked=True,
            targets=(
                Target(
                    expr=f"sum by (reason) ({gauge('num_requests_waiting_by_reason')})",
                    legend="{{reason}}",
                ),
            ),
            note="capacity: for blocks, slots or budget. deferred: for something of their own.",
        ),
        Panel(
            title="KV cache in use",
            unit="percentunit",
            most=1.0,
            thresholds=(MAX_KV_USED, FULL_KV),
            targets=(Target(expr=gauge("kv_cache_usage_perc"), legend=HERE),),
            note="Full and without preemptions is well: that is what it was bought for.",
        ),
        Panel(
            title="Preemptions",
            targets=(
                Target(
                    expr=f"increase(vllm:num_preemptions_total{{{ENGINES}}}[{RATE}])", legend=HERE
                ),
            ),
            note="As the engine counts them: with the victim's next output, so late.",
        ),
        Panel(
            title="Preemptions, by cause (recorded)",
            stacked=True,
            targets=(
                Target(
                    expr=f"sum by (cause) (increase({recorded('preemptions_total')}[{RATE}]))",
                    legend="{{cause}}",
                ),
            ),
        ),
        Panel(
            title="KV blocks, by who holds them (recorded)",
            stacked=True,
            targets=(Target(expr=f"sum by (state) ({recorded('kv_blocks')})", legend="{{state}}"),),
        ),
        Panel(
            title="Why admission stopped (recorded)",
            stacked=True,
            unit="ops",
            targets=(
                Target(
                    expr=f"sum by (stop_reason) (rate({recorded('steps_total')}[{RATE}]))",
                    legend="{{stop_reason}}",
                ),
            ),
            note="Steps a second, by what ended their admission.",
        ),
        Panel(
            title="Requests that ended",
            stacked=True,
            unit="reqps",
            targets=(
                Target(
                    expr=f"sum by (finished_reason) ({rate('request_success')})",
                    legend="{{finished_reason}}",
                ),
            ),
        ),
        Panel(
            title="Refused",
            unit="reqps",
            targets=(
                Target(
                    expr="sum by (reason) (rate("
                    f"vllm:admission_rejections_total{{{MODELS}}}[{RATE}]))",
                    legend="{{reason}}",
                ),
            ),
        ),
    ),
)

TOKENS = Row(
    title="Tokens",
    panels=(
        Panel(
            title="Tokens a second",
            targets=(
                Target(expr=rate("prompt_tokens"), legend=f"prompt {HERE}"),
                Target(expr=rate("generation_tokens"), legend=f"output {HERE}"),
            ),
        ),
        Panel(
            title="Prefix cache hits",
            unit="percentunit",
            most=1.0,
            targets=(
                Target(
                    expr=ratio("prefix_cache_hits", "prefix_cache_queries"),
                    legend=f"own {HERE}",
                ),
                Target(
                    expr=ratio("external_prefix_cache_hits", "external_prefix_cache_queries"),
                    legend=f"connector {HERE}",
                ),
            ),
            note="Of the tokens that were looked up. Resumes after a preemption count as hits.",
        ),
        percentiles("Tokens in a step", "iteration_tokens_total", unit="short"),
        Panel(
            title="Tokens computed for nothing (recorded)",
            targets=(
                Target(
                    expr=f"sum(rate({recorded('tokens_recomputed_total')}[{RATE}]))",
                    legend="computed again",
                ),
                Target(
                    expr=f"sum by (cause) (rate({recorded('tokens_lost_total')}[{RATE}]))",
                    legend="lost to {{cause}}",
                ),
            ),
        ),
        Panel(
            title="Share of tokens computed again (recorded)",
            unit="percentunit",
            targets=(
                Target(
                    expr=f"sum by (engine) (rate({recorded('tokens_recomputed_total')}[{RATE}]))"
                    f" / (sum by (engine) (rate({recorded('tokens_scheduled_total')}[{RATE}]))"
                    " > 0)",
                    legend="{{engine}}",
                ),
            ),
        ),
        Panel(
            title="Drafts that were right",
            unit="percentunit",
            most=1.0,
            targets=(
                Target(
                    expr=ratio("spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens"),
                    legend=HERE,
                ),
            ),
        ),
    ),
)

CONNECTOR = Row(
    title="KV connector",
    panels=(
        Panel(
            title="Loads, by stage",
            stacked=True,
            targets=(
                Target(
                    expr=f"sum by (stage) ({gauge('num_requests_kv_fetch_by_stage')})",
                    legend="{{stage}}",
                ),
            ),
            note="completed_waiting: loaded, and not running yet. They hold blocks.",
        ),
        Panel(
            title="Set aside",
            targets=(
                Target(
                    expr=gauge("num_requests_waiting_by_reason", ',reason="deferred"'),
                    legend=HERE,
                ),
            ),
            note="Loads, grammars, adapters and encoders share this number.",
        ),
        Panel(
            title="Failed transfers and expired leases",
            targets=(
                Target(
                    expr=f"increase(vllm:nixl_num_failed_transfers_total{{{ENGINES}}}[{RATE}])",
                    legend=f"failed {HERE}",
                ),
                Target(
                    expr=f"increase(vllm:nixl_num_kv_expired_reqs_total{{{ENGINES}}}[{RATE}])",
                    legend=f"expired {HERE}",
                ),
            ),
        ),
    ),
)
