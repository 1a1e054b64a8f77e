"""A diagnosis as text for people: the answer first, then the number, then the reason.

At most 100 columns, worst first. What is printed is the same in a pipe and on a terminal.
"""

from __future__ import annotations

from diagnose.diagnosis import Diagnosis, EngineDiagnosis
from diagnose.finding import NO_FAULT, Finding
from diagnose.life.said import NOTHING_SAID, Said, SaidOf
from diagnose.text.finding_text import write_finding, write_silenced
from diagnose.text.lines import WIDTH, Report
from diagnose.text.metric_report import calm_numbers, size_of, write_unmeasured
from diagnose.words import (
    NOT_MEASURED,
    count,
    duration,
    engine_hex,
    harmless,
    percent,
    plural,
    stretch,
)

TOLD = (
    "request-exceeds-kv-capacity",
    "remote-kv-wait-stuck",
    "grammar-wait-stall",
    "kv-block-leak",
    "admission-deadlock",
    "worker-hang",
    "kv-load-failure",
    "kv-preemption-thrash",
    "kv-head-of-line",
    "seq-slot-limit",
    "lora-slot-contention",
    "prefill-head-of-line",
    "spec-decode-unprofitable",
    "prefix-cache-thrash",
    "frontend-cpu-bound",
)
"""Rules whose healthy number stands in the text; the others are counted there, and in the JSON."""

_FOOT = 16
"""Columns of a label under the findings."""


def write_report(diagnosis: Diagnosis, said: SaidOf | None = None) -> Report:
    """Returns the report of a diagnosis, with what people said of its findings."""
    report, known = Report(), said or {}
    if not diagnosis.engines:
        report.add((f"{NOT_MEASURED} NOT MEASURED  ", "muted"), diagnosis.verdict.rule)
        report.wrapped(diagnosis.verdict.sentence, 2, "strong")
        report.wrapped("See what is attached: stepscope doctor", 2, "muted")
        return report
    for number, engine in enumerate(diagnosis.engines):
        if number:
            report.add()
        _engine(report, engine, known, is_one_of_many=len(diagnosis.engines) > 1)
    _footer(report, diagnosis, known)
    return report


def _engine(report: Report, engine: EngineDiagnosis, said: SaidOf, *, is_one_of_many: bool) -> None:
    _header(report, engine, is_one_of_many)
    for caveat in engine.data_quality:
        if engine.metrics is None:
            report.wrapped(caveat, 2, "high", "▲ ")
        else:
            report.wrapped(caveat, 2, "muted", f"{NOT_MEASURED} ")
    report.add()
    for finding in sorted(engine.findings, key=lambda each: _of(said, each).is_silenced):
        own = _of(said, finding)
        if own.is_silenced:
            write_silenced(report, finding, engine.scope.end_ts, own.lines)
        else:
            write_finding(report, finding, engine.accounting, own.lines)
        report.add()
    if any(said.rule == NO_FAULT for said in engine.healthy):
        _no_fault(report, engine)
    elif not engine.findings:
        report.add((f"{NOT_MEASURED} NOT MEASURED  ", "muted"), engine.verdict.rule)
        report.wrapped(engine.verdict.sentence, 2, "strong")
    else:
        _healthy(report, engine)
    _tokens(report, engine)
    _unused(report, engine)
    _unmeasured(report, engine)


def _of(said: SaidOf, finding: Finding) -> Said:
    return said.get(finding.id, NOTHING_SAID)


def _header(report: Report, engine: EngineDiagnosis, is_one_of_many: bool) -> None:
    rank, number = engine.settings.dp_rank, engine_hex(engine.scope.engine)
    name = f"engine {number}" if is_one_of_many or rank is None else f"engine {rank}"
    name += f" {harmless(engine.settings.model, 24)}" if engine.settings.model else ""
    when = stretch(engine.scope.start_ts, engine.scope.end_ts)
    facts = _size(engine)
    if len(name) + len(when) + len(facts) + 4 <= WIDTH:
        report.add((name, "strong"), f"  {when}  {facts}")
        return
    report.add((name, "strong"))
    report.add(f"  {when}  {facts}")


def _size(engine: EngineDiagnosis) -> str:
    if engine.metrics is not None:
        return size_of(engine.metrics)
    return (
        f"{plural(engine.steps.num_steps, 'step')}, {count(engine.steps.num_steps_missing)} dropped"
        f"  {plural(engine.accounting.num_requests, 'request')}"
    )


# ------------------------------------------------------------------------------ under the findings


def _no_fault(report: Report, engine: EngineDiagnosis) -> None:
    report.add(("✓ HEALTHY", "healthy"), ("  no-scheduler-fault", "strong"))
    report.wrapped(engine.verdict.sentence, 2, "strong")
    report.add()
    if engine.metrics is None:
        _calm_steps(report, engine)
        return
    numbers = calm_numbers(engine.metrics, engine.settings)
    for left, right in zip(numbers[::2], [*numbers[1::2], ("", "")], strict=False):
        _pair(report, left, right)
    _silenced(report, engine)


def _calm_steps(report: Report, engine: EngineDiagnosis) -> None:
    steps, settings, account = engine.steps, engine.settings, engine.accounting
    waiting = f"{count(steps.num_steps_waiting)} in {plural(steps.num_steps, 'step')}"
    if steps.num_steps_waiting:
        waiting = f"in {waiting.replace(' in ', ' of ')}, up to {count(steps.max_waiting)}"
    free = f"never under {count(steps.min_free_blocks)} of {count(settings.num_usable_blocks)}"
    running = f"at most {count(steps.max_running)} of {count(settings.slots)} slots"
    _pair(report, ("waiting requests", waiting), ("free KV blocks", free))
    _pair(report, ("preemptions", count(account.num_rows)), ("running", running))
    if steps.step_max_ns is not None:
        times = f"p50 {duration(steps.step_p50_ns)}, p99 {duration(steps.step_p99_ns)}, "
        times += f"longest {duration(steps.step_max_ns)} (n = {steps.num_rows:,})"
        report.add(f"  {'step time'.ljust(24)}{times}")
    if steps.schedule_ns is not None and steps.busy_ns:
        share = percent(steps.schedule_ns / steps.busy_ns)
        report.add(f"  {'time in schedule()'.ljust(24)}{share} of engine time")


def _pair(report: Report, left: tuple[str, str], right: tuple[str, str]) -> None:
    report.add(
        f"  {left[0].ljust(24)}{left[1].ljust(24)}{'  ' if len(left[1]) >= 23 else ''}"
        f"{right[0].ljust(17)}{right[1]}"
    )


def _healthy(report: Report, engine: EngineDiagnosis) -> None:
    steps, settings, account = engine.steps, engine.settings, engine.accounting
    said = [each for each in engine.healthy if each.is_used]
    items = [f"{each.name}: {each.number}" for each in said if each.rule in TOLD]
    if steps.last_free_blocks is not None and settings.num_usable_blocks is not None:
        free = f"{steps.last_free_blocks:,} of {settings.num_usable_blocks:,}"
        items.append(f"free blocks at the end: {free}")
    if account.is_recorded:
        items.append(f"priority: {account.num_priority:,}")
        items.append(f"cache reset: {account.num_cache_reset:,}")
    more = sum(each.rule not in TOLD for each in said)
    if more:
        items.append(f"and {plural(more, 'more check')}: --json")
    if items:
        report.flow(items, _FOOT, "✓ healthy", "healthy")
    _silenced(report, engine)


def _silenced(report: Report, engine: EngineDiagnosis) -> None:
    """Tells what guards noted, then what a finding explains; its number is the finding's own."""
    explained: dict[str, list[str]] = {}
    for silenced in engine.suppressed:
        if silenced.rule is None or silenced.by not in {f.rule for f in engine.findings}:
            who = silenced.by if silenced.rule is None else f"{silenced.rule}, by {silenced.by}"
            report.wrapped(f"{who}: {silenced.number}", _FOOT, "muted", "● note")
        else:
            explained.setdefault(silenced.by, []).append(silenced.rule)
    for by, rules in explained.items():
        report.wrapped(f"{', '.join(rules)}: explained by {by}", _FOOT, "muted", "● silenced")


def _tokens(report: Report, engine: EngineDiagnosis) -> None:
    """Tells what the scheduled tokens were good for, in parts that are all of them."""
    work = engine.accounting.work
    if not work.num_scheduled or work.num_unattributed is None:
        return
    parts = [
        ("useful prefill", work.num_useful_prefill),
        ("useful decode", work.num_useful_decode),
        ("recomputed", work.num_recomputed),
        ("rejected drafts", work.num_rejected_drafts),
        ("padding", work.num_padding),
    ]
    if work.num_unattributed:
        parts.append(("unattributed", work.num_unattributed))
    told = " + ".join(
        f"{count(number)} {name}" + _part(number, work.num_scheduled) for name, number in parts
    )
    report.wrapped(f"{count(work.num_scheduled)} scheduled = {told}", _FOOT, "muted", "  tokens")


def _part(number: int | None, total: int) -> str:
    return f" ({percent(number / total)})" if number else ""


def _unused(report: Report, engine: EngineDiagnosis) -> None:
    unused = parts_not_in_use(engine)
    if unused:
        report.wrapped(", ".join(unused), _FOOT, "muted", f"{NOT_MEASURED} not in use")


def parts_not_in_use(engine: EngineDiagnosis) -> list[str]:
    """Returns the parts of an engine that it does not use, as far as that is recorded."""
    settings = engine.settings
    if engine.metrics is not None:
        return []  # a setting that no page tells may well be in use
    unused = [
        name
        for name, value in (
            ("KV connector", settings.kv_connector),
            ("LoRA", settings.max_loras),
            ("speculation", settings.num_speculative_tokens),
        )
        if value is None
    ]
    if settings.source == "stepscope":
        unused += [] if engine.quality.has_grammars else ["grammar"]
        unused += [] if engine.quality.has_encoder_items else ["encoder"]
    return unused


def _unmeasured(report: Report, engine: EngineDiagnosis) -> None:
    if engine.metrics is not None:
        said = [each for each in engine.not_measured if each.rule != engine.verdict.rule]
        write_unmeasured(report, said, _FOOT)
        return
    missing = [
        f"{said.rule} ({', '.join(said.missing)}: {said.why})"
        for said in engine.not_measured
        if said.rule != engine.verdict.rule
    ]
    if engine.steps.num_rows and not engine.steps.token_budget_recorded:
        missing.append("token budget")
    if engine.accounting.num_requests and not engine.quality.has_received_times:
        missing.append("time before the engine (tokenizer, HTTP)")
    if missing:
        report.wrapped("; ".join(missing), _FOOT, "muted", f"{NOT_MEASURED} not measured")


def _footer(report: Report, diagnosis: Diagnosis, said: SaidOf) -> None:
    findings = diagnosis.findings
    if not findings:
        return
    report.add()
    told = [finding for finding in findings if not _of(said, finding).is_silenced]
    num = plural(len(findings), "finding")
    if len(told) < len(findings):
        num += f", {len(findings) - len(told):,} silenced"
    worst = (told or findings)[0].id
    why = f"{num}. why: stepscope dashboard --finding {worst}"
    report.flow([why, f"SQL: stepscope diagnose --sql {worst}"], 0, "", "muted")
