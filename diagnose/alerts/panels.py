"""The dashboard: what was found, what users feel, what the scheduler does, what recording costs."""

from __future__ import annotations

from diagnose.alerts.engine_panels import CONNECTOR, LATENCY, LOAD, TOKENS
from diagnose.alerts.grafana import Panel, Row, Target, Variable, dashboard_json
from diagnose.alerts.panel_queries import RATE, recorded

TITLE, UID = "Stepscope: engines", "stepscope"

VARIABLES = (
    Variable(
        name="model",
        label="Model",
        query="label_values(vllm:num_requests_running, model_name)",
    ),
    Variable(
        name="instance",
        label="Target",
        query='label_values(vllm:num_requests_running{model_name=~"$model"}, instance)',
    ),
    Variable(
        name="engine",
        label="Engine",
        query='label_values(vllm:num_requests_running{model_name=~"$model"}, engine)',
    ),
    Variable(
        name="start",
        label="Recorded engine start",
        query="label_values(stepscope_engine_up, engine)",
    ),
)

FOUND = Row(
    title="What was found",
    panels=(
        Panel(
            title="Open findings",
            kind="table",
            width=12,
            targets=(
                Target(
                    expr=f"sum by (engine, rule, severity) ({recorded('finding_active')} == 1)",
                    legend="",
                ),
            ),
            note="By the analyst, with their causes in `stepscope findings`. Nothing here and the "
            "analyst's age below a minute: all is well.",
        ),
        Panel(
            title="Alerts that fire",
            kind="table",
            width=12,
            targets=(
                Target(
                    expr='sum by (alertname, severity, instance) (ALERTS{alertname=~"Stepscope.+",'
                    'alertstate="firing"})',
                    legend="",
                ),
            ),
            note="From metrics alone; each has a runbook.",
        ),
    ),
)

RECORDER = Row(
    title="The recorder itself, and what it costs",
    panels=(
        Panel(
            title="Behind the engine",
            unit="s",
            thresholds=(5, 30),
            targets=(
                Target(expr=recorded("drain_lag_seconds"), legend="log {{engine}}"),
                Target(expr=recorded("engine_heartbeat_age_seconds"), legend="beat {{engine}}"),
                Target(expr="stepscope_analyst_age_seconds", legend="analyst {{instance}}"),
            ),
        ),
        Panel(
            title="Lost or unexplained",
            targets=(
                Target(
                    expr=f"sum by (engine) (increase({recorded('records_dropped_total')}[{RATE}]))",
                    legend="rows dropped {{engine}}",
                ),
                Target(
                    expr=f"increase({recorded('recorder_errors_total')}[{RATE}])",
                    legend="errors {{engine}}",
                ),
                Target(expr=recorded("preemption_unattributed"), legend="unattributed {{engine}}"),
                Target(expr=recorded("recorder_blind"), legend="blind {{engine}}"),
            ),
            note="All of it should be 0.",
        ),
        Panel(
            title="Engines",
            kind="stat",
            targets=(Target(expr=f"sum({recorded('engine_up')})", legend="alive"),),
        ),
        Panel(
            title="The collector's share of a core",
            unit="percentunit",
            targets=(
                Target(
                    expr=f"rate(stepscope_collector_cpu_seconds_total[{RATE}])",
                    legend="{{instance}}",
                ),
            ),
            note="What recording costs beside the engines. Inside an engine it is microseconds a "
            "step, which `benchmarks/` measures.",
        ),
        Panel(
            title="Steps recorded",
            unit="ops",
            targets=(
                Target(
                    expr=f"sum by (engine) (rate({recorded('steps_total')}[{RATE}]))",
                    legend="{{engine}}",
                ),
            ),
        ),
        Panel(
            title="OTLP",
            targets=(
                Target(
                    expr=f"rate(stepscope_otlp_spans_exported_total[{RATE}])",
                    legend="spans a second",
                ),
                Target(
                    expr=f"increase(stepscope_otlp_export_failures_total[{RATE}])",
                    legend="failed {{signal}}",
                ),
                Target(
                    expr=f"increase(stepscope_otlp_requests_passed_over_total[{RATE}])",
                    legend="passed over",
                ),
            ),
        ),
    ),
)

ROWS = (FOUND, LATENCY, LOAD, TOKENS, CONNECTOR, RECORDER)


def dashboard_text() -> str:
    """Returns the dashboard's JSON."""
    return dashboard_json(TITLE, UID, VARIABLES, ROWS)
