"""The whole of it as one call: a log and a window in, a verdict for each engine out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from diagnose.accounting import Accounting, account, account_of_counter
from diagnose.causes.attribution import Effort
from diagnose.facts import (
    EngineSettings,
    RecordQuality,
    StepFacts,
    read_quality,
    read_settings,
    read_step_facts,
)
from diagnose.finding import (
    NO_FAULT,
    NOT_ENOUGH_DATA,
    Finding,
    Healthy,
    NotMeasured,
    RuleVerdict,
    Severity,
    Suppressed,
    Verdict,
)
from diagnose.flags import applicable
from diagnose.reading import QueryLog, Scope, hold_views
from diagnose.rule import Context, Rule
from diagnose.rules import RULES
from diagnose.rules.from_metrics.undecidable import undecidable
from diagnose.scrapes.metric_facts import MetricFacts, is_recorded, read_metric_facts
from diagnose.window import Window, choose_window, engines_in, newest_ts_of
from diagnose.words import with_unit

NOTHING_RECORDED = "Nothing recorded yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDiagnosis:
    """What was found of one engine. `findings` come worst first."""

    scope: Scope
    settings: EngineSettings
    steps: StepFacts
    quality: RecordQuality
    accounting: Accounting
    verdict: Verdict
    findings: tuple[Finding, ...]
    healthy: tuple[Healthy, ...]
    suppressed: tuple[Suppressed, ...]
    not_measured: tuple[NotMeasured, ...]
    data_quality: tuple[str, ...]
    metrics: MetricFacts | None = None
    """What it was judged by where its steps are not recorded; `None` where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What was found in a window. `engines` come worst first."""

    window: Window
    verdict: Verdict
    engines: tuple[EngineDiagnosis, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of all engines, worst first."""
        found = [finding for engine in self.engines for finding in engine.findings]
        return tuple(sorted(found, key=lambda finding: -finding.severity))

    @property
    def worst(self) -> Severity | None:
        """Severity of the worst finding; `None` without one."""
        return max((finding.severity for finding in self.findings), default=None)

    @property
    def has_enough_data(self) -> bool:
        """Whether anything could be judged."""
        return self.verdict.rule != NOT_ENOUGH_DATA


def diagnose(
    log: QueryLog,
    window: Window | None = None,
    engines: Sequence[int] | None = None,
    *,
    rules: Sequence[Rule] = tuple(RULES.values()),
    effort: Effort = "usual",
) -> Diagnosis:
    """Returns what the rules say of a log.

    Args:
        log: the log.
        window: what to look at; all of it if None.
        engines: look at these only; at all that left a row in the window if None.
        rules: what it is judged by, in order of evaluation.
        effort: how much may be replayed to share preemptions out among their causes.
    """
    window = choose_window(log) if window is None else window
    present = engines_in(log, window)
    chosen = [engine for engine in present if engines is None or engine in engines]
    diagnosed = (_diagnose_engine(log, window, engine, rules, effort) for engine in chosen)
    found = sorted(diagnosed, key=_badness)
    if not found:
        verdict = Verdict(rule=NOT_ENOUGH_DATA, sentence=NOTHING_RECORDED)
        return Diagnosis(window=window, verdict=verdict, engines=())
    return Diagnosis(window=window, verdict=found[0].verdict, engines=tuple(found))


def _badness(engine: EngineDiagnosis) -> tuple[int, bool]:
    """Sort key: the worst severity first, then engines that could be judged at all."""
    worst = max((finding.severity for finding in engine.findings), default=0)
    return -worst, engine.verdict.rule == NOT_ENOUGH_DATA


def _diagnose_engine(
    log: QueryLog, window: Window, engine: int, rules: Sequence[Rule], effort: Effort
) -> EngineDiagnosis:
    context = read_context(log, window, engine, effort)
    verdicts = evaluate(context, rules)
    findings: list[Finding] = []
    healthy: list[Healthy] = []
    suppressed: list[Suppressed] = []
    not_measured: list[NotMeasured] = []
    for verdict in verdicts.values():
        match verdict:
            case Finding():
                findings.append(verdict)
            case Healthy():
                healthy.append(verdict)
            case Suppressed():
                suppressed.append(verdict)
            case NotMeasured():
                not_measured.append(verdict)
            case _:
                assert_never(verdict)
    findings.sort(key=lambda finding: -finding.severity)
    if context.metrics is not None:
        not_measured += undecidable()
    return EngineDiagnosis(
        scope=context.scope,
        settings=context.settings,
        steps=context.steps,
        quality=context.quality,
        accounting=context.accounting,
        verdict=_verdict(context, findings, healthy, not_measured),
        findings=tuple(findings),
        healthy=tuple(healthy),
        suppressed=tuple(suppressed),
        not_measured=tuple(not_measured),
        data_quality=context.data_quality,
        metrics=context.metrics,
    )


def read_context(log: QueryLog, window: Window, engine: int, effort: Effort = "usual") -> Context:
    """Returns what the rules are given of one engine."""
    hold_views(log)
    settings = read_settings(log, engine)
    scope = Scope(engine, window.start_ts, window.end_ts)
    saw_start = settings.started_ts is not None and settings.started_ts >= window.start_ts
    metrics = None
    if not is_recorded(log, scope):
        metrics = read_metric_facts(log, scope, settings.source)
    return Context(
        log=log,
        scope=scope,
        settings=settings,
        steps=read_step_facts(log, scope, saw_start=saw_start),
        quality=read_quality(log, scope),
        accounting=account(log, scope, saw_start=saw_start)
        if metrics is None
        else _counted(scope, metrics),
        newest_ts=newest_ts_of(log, engine, window.end_ts) or window.end_ts,
        metrics=metrics,
        effort=effort,
    )


def _counted(scope: Scope, metrics: MetricFacts) -> Accounting:
    """Returns the account of an engine of which only scrapes are known."""
    preemptions, finished = metrics["num_preemptions"].sum, metrics["num_finished"].sum
    sql = metrics.sql("sum(num_preemptions)::BIGINT")
    return account_of_counter(scope, preemptions, finished, sql)


def evaluate(context: Context, rules: Sequence[Rule]) -> dict[str, RuleVerdict]:
    """Returns what each rule says, in order; a finding that another explains is suppressed."""
    verdicts: dict[str, RuleVerdict] = {}
    for rule in rules:
        verdict = rule.judge(context, verdicts)
        if verdict is not None:
            verdicts[rule.id] = verdict
    return {
        rule_id: _advised(context, _silenced(rule_id, verdict, rules, verdicts))
        for rule_id, verdict in verdicts.items()
    }


def _advised(context: Context, verdict: RuleVerdict) -> RuleVerdict:
    """Returns a verdict without advice that this engine cannot follow."""
    if not isinstance(verdict, Finding):
        return verdict
    return replace(verdict, actions=applicable(context.settings, verdict.actions))


def _silenced(
    rule_id: str, verdict: RuleVerdict, rules: Sequence[Rule], verdicts: dict[str, RuleVerdict]
) -> RuleVerdict:
    rule = next(rule for rule in rules if rule.id == rule_id)
    if not isinstance(verdict, Finding):
        return verdict
    for other_id in rule.silenced_by:
        other = verdicts.get(other_id)
        if isinstance(other, Finding):
            number = "; ".join(_told(other)) or other.symptom
            return Suppressed(rule=rule_id, by=other_id, number=number)
    return verdict


def _told(finding: Finding) -> list[str]:
    return [
        f"{item.name} {with_unit(item.value, item.unit)}"
        for item in finding.evidence
        if item.value is not None
    ]


def _verdict(
    context: Context,
    findings: list[Finding],
    healthy: list[Healthy],
    not_measured: list[NotMeasured],
) -> Verdict:
    real = [finding for finding in findings if finding.severity > Severity.info]
    if real:
        worst = real[0]
        sentence = _with_quality(context, worst.sentence)
        return Verdict(rule=worst.rule, sentence=sentence, severity=worst.severity)
    for said in healthy:
        if said.rule == NO_FAULT:
            told = findings[0].sentence if findings else said.sentence
            return Verdict(rule=NO_FAULT, sentence=_with_quality(context, told))
    why = next((said.why for said in not_measured if said.rule == NOT_ENOUGH_DATA), "nothing known")
    return Verdict(rule=NOT_ENOUGH_DATA, sentence=f"Not enough data: {why}.")


def _with_quality(context: Context, sentence: str) -> str:
    """Puts in front how much of the record is missing, where any is."""
    if not context.steps.num_steps_missing:
        return sentence
    share = percent_missing(context.steps)
    return f"{share} of steps missing, counts are lower bounds. {sentence}"


def percent_missing(steps: StepFacts) -> str:
    """Returns the share of steps without a row, with one digit."""
    return f"{100 * steps.missing_ratio:.1f} %"
