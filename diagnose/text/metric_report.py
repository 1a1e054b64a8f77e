"""What the report says of an engine that was judged by scrapes or log lines alone."""

from __future__ import annotations

from diagnose.accounting import Accounting
from diagnose.facts import EngineSettings
from diagnose.finding import NotMeasured
from diagnose.rules.from_metrics.undecidable import UNDECIDABLE
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.text.lines import Report
from diagnose.words import NOT_MEASURED, count, duration, percent, plural

MANY = 6
"""More rules that lack the same are not listed one by one."""


def size_of(facts: MetricFacts) -> str:
    """Returns how much there was to judge by: `24 scrapes, 1.00 s apart`."""
    if facts.source is None:
        return "no scrape"
    usual = facts.usual_interval_ns
    apart = f", {duration(usual)} apart" if usual else ""
    return f"{plural(facts.num_scrapes, facts.noun)}{apart}"


def account_line(account: Accounting) -> str:
    """Returns what is known of preemptions: the counter, and that nothing is attributed."""
    if account.counter is None:
        return f"{NOT_MEASURED} preemptions are not counted in what was read"
    if not account.counter:
        return "0 preemptions counted"
    return f"{plural(account.counter, 'preemption')} counted, none attributed: no step record"


def calm_numbers(facts: MetricFacts, settings: EngineSettings) -> list[tuple[str, str]]:
    """Returns names and numbers of what was looked at, for an engine without a fault."""
    waited = int((facts["num_waiting"].values > 0).sum())
    waiting = f"at {waited:,} of {count(facts.num_scrapes)} {facts.noun}s"
    if waited:
        waiting += f", up to {facts['num_waiting'].max or 0:,.0f}"
    running, slots = facts["num_running"].max, settings.slots
    of = "" if slots is None else f" of {slots:,} slots"
    preempted = facts["num_preemptions"].sum
    told = [
        ("waiting requests", waiting),
        ("KV pool in use", f"at most {percent(facts['kv_cache_usage_ratio'].max)}"),
        ("preemptions", "not counted" if preempted is None else f"{preempted:,} counted"),
        ("running", NOT_MEASURED if running is None else f"at most {running:,.0f}{of}"),
    ]
    return [*told, *_rates(facts)]


def _rates(facts: MetricFacts) -> list[tuple[str, str]]:
    outputs, finished = facts["num_generation_tokens"].sum, facts["num_finished"].sum
    told = [] if outputs is None else [("output tokens", count(outputs))]
    return told + ([] if finished is None else [("requests ended", count(finished))])


def _grouped(not_measured: list[NotMeasured]) -> list[str]:
    """Returns rules that lack the same together; many of them as their number."""
    rules: dict[tuple[str, ...], list[str]] = {}
    for said in not_measured:
        rules.setdefault(said.missing, []).append(said.rule)
    return [
        f"{', '.join(names) if len(names) <= MANY else f'{len(names)} rules'} "
        f"({', '.join(missing)})"
        for missing, names in rules.items()
    ]


def write_unmeasured(report: Report, not_measured: list[NotMeasured], indent: int) -> None:
    """Adds what could not be judged: by what is missing here, then what no scrape can tell."""
    here = [said for said in not_measured if said.rule not in UNDECIDABLE]
    never = [said.rule for said in not_measured if said.rule in UNDECIDABLE]
    if here:
        told = "; ".join(_grouped(here))
        report.wrapped(told, indent, "muted", f"{NOT_MEASURED} not measured")
    if never:
        report.wrapped(", ".join(never), indent, "muted", f"{NOT_MEASURED} by steps only")
