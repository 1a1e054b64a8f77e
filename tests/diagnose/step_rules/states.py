"""Engines in one state for a while, built by hand: what the rules on step records judge."""

from __future__ import annotations

from typing import Any

from diagnose.diagnosis import evaluate, read_context
from diagnose.finding import Finding, Healthy, NotMeasured, RuleVerdict
from diagnose.rules import RULES
from diagnose.window import choose_window
from telemetry.vocabulary import EventKind, SkipReason, StopReason
from tests.diagnose.logs import described, log_of, steps, verdict_of
from tests.telemetry.log_builder import MS, LogBuilder

SECOND = 1000 * MS

__all__ = ["SECOND", "EventKind", "LogBuilder", "SkipReason", "StopReason", "described", "steps"]


def judge(log: LogBuilder, rule: str) -> RuleVerdict:
    """What one rule says of a log."""
    return verdict_of(log_of(log), rule)


def verdicts(log: LogBuilder) -> dict[str, RuleVerdict]:
    """What all rules say of a log."""
    answering = log_of(log)
    context = read_context(answering, choose_window(answering), log.engine)
    return evaluate(context, tuple(RULES.values()))


def found(log: LogBuilder, rule: str) -> Finding:
    """The finding of one rule; fails where it says something else."""
    verdict = judge(log, rule)
    assert isinstance(verdict, Finding), verdict
    return verdict


def is_healthy(log: LogBuilder, rule: str) -> bool:
    return isinstance(judge(log, rule), Healthy)


def missing(log: LogBuilder, rule: str) -> tuple[str, ...]:
    """What a rule lacks; fails where it judged."""
    verdict = judge(log, rule)
    assert isinstance(verdict, NotMeasured), verdict
    return verdict.missing


def lasting(log: LogBuilder, seconds: float, **columns: Any) -> LogBuilder:
    """Adds equal steps of 100 ms each for so long."""
    before, log.step_ns = log.step_ns, 100 * MS
    steps(log, round(seconds * 10), **columns)
    log.step_ns = before
    return log


def calm(log: LogBuilder, number: int = 20) -> LogBuilder:
    """Adds steps in which nobody waits."""
    return steps(log, number)
