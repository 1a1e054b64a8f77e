"""PromQL that panels are built from, with the choices at the top of the dashboard in place.

The engines' own numbers (vLLM's names) answer for an engine that is only scraped; those of the
collector (`stepscope_*`) know causes. Their `engine` labels differ: vLLM's is an index in its
process, the collector's an engine start.
"""

from __future__ import annotations

from diagnose.alerts.grafana import Panel, Target

ENGINES = 'model_name=~"$model",instance=~"$instance",engine=~"$engine"'
MODELS = 'model_name=~"$model",instance=~"$instance"'
STARTS = 'engine=~"$start"'
RATE = "$__rate_interval"
HERE = "{{instance}} {{engine}}"


def gauge(name: str, more: str = "") -> str:
    """Returns a gauge of the chosen engines."""
    return f"vllm:{name}{{{ENGINES}{more}}}"


def rate(name: str, more: str = "") -> str:
    """Returns the rate of a counter of the chosen engines."""
    return f"rate(vllm:{name}_total{{{ENGINES}{more}}}[{RATE}])"


def recorded(name: str) -> str:
    """Returns a number of the collector about the chosen engine starts."""
    return f"stepscope_{name}{{{STARTS}}}"


def percentiles(title: str, family: str, unit: str = "s", note: str = "") -> Panel:
    """Returns a panel of three percentiles over the chosen engines."""
    buckets = f"sum by (le) (rate(vllm:{family}_bucket{{{ENGINES}}}[{RATE}]))"
    targets = tuple(
        Target(expr=f"histogram_quantile({quantile}, {buckets})", legend=f"p{quantile * 100:g}")
        for quantile in (0.5, 0.95, 0.99)
    )
    return Panel(title=title, targets=targets, unit=unit, note=note)


def ratio(hits: str, queries: str) -> str:
    """Returns hits for each look-up; nothing where nothing was looked up."""
    return f"{rate(hits)} / ({rate(queries)} > 0)"
