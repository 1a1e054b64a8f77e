"""What a rule is, and what it is given to decide on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from diagnose.accounting import Accounting
from diagnose.causes.attribution import Effort, work_limit
from diagnose.facts import EngineSettings, RecordQuality, StepFacts
from diagnose.finding import Finding, RuleVerdict, finding_id
from diagnose.reading import QueryLog, Scope, read_row, read_rows
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_latency import Histograms
from diagnose.storm import Storm, read_storm

PAGE_SECTIONS = (
    "What it measures",
    "Why it matters",
    "When it stays quiet",
    "What to do",
    "Source",
)
"""Headings that the page of every rule has, in this order."""


@dataclass(frozen=True)
class Context:
    """One engine in one window, as every rule sees it."""

    log: QueryLog
    scope: Scope
    settings: EngineSettings
    steps: StepFacts
    quality: RecordQuality
    accounting: Accounting
    newest_ts: int
    """Newest moment that the log knows of the engine, at most the window's end."""
    metrics: MetricFacts | None = None
    """What scrapes or log lines say, for an engine whose steps are not recorded; else `None`."""
    effort: Effort = "usual"
    """How much may be replayed to share preemptions out among their causes."""

    @cached_property
    def storm(self) -> Storm | None:
        """The worst episode of preemptions for want of blocks; `None` if there was none."""
        return read_storm(
            self.log,
            self.scope,
            self.settings,
            stopped_ts=self.quality.stopped_ts,
            work_limit=work_limit(self.effort, self.steps.num_steps),
        )

    @cached_property
    def histograms(self) -> Histograms:
        """What the scrapes' histograms say; only for an engine with `metrics`."""
        if self.metrics is None:
            raise ValueError(f"engine {self.scope.engine} has a step record: judge that")
        return Histograms(self.log, self.metrics)

    @cached_property
    def data_quality(self) -> tuple[str, ...]:
        """What a reader must know before believing a count."""
        if self.metrics is not None:
            return self.metrics.caveats
        return self.quality.sentences(self.steps)

    def row(self, sql: str) -> dict[str, Any]:
        """Returns the one row of an aggregate; `sql` is a template for the window."""
        return read_row(self.log, self.scope.fill(sql))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Returns all rows; `sql` is a template for the window."""
        return read_rows(self.log, self.scope.fill(sql))


Earlier = Mapping[str, RuleVerdict]
"""What the rules before this one said, by rule."""

Decide = Callable[[Context, Earlier], RuleVerdict | None]
"""What a rule says of an engine; `None` only where a guard does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A problem and how it is recognised.

    `decide` judges the record of its steps, `decide_metrics` scrapes or log lines of an engine that
    has no such record; `None` where a rule does not look at the one or the other. `page` is the
    text of the rule's module; `silenced_by` names the rules whose finding explains this one's away.
    """

    id: str
    version: int
    prefix: str
    """First part of its findings' ids."""
    page: str
    decide: Decide | None = None
    decide_metrics: Decide | None = None
    silenced_by: tuple[str, ...] = ()

    def judge(self, context: Context, earlier: Earlier) -> RuleVerdict | None:
        """Returns what the rule says of an engine by what is known of it."""
        decide = self.decide if context.metrics is None else self.decide_metrics
        return None if decide is None else decide(context, earlier)

    def new_id(self, context: Context) -> str:
        """Returns the id of this rule's finding of an engine."""
        return finding_id(self.prefix, context.scope.engine)

    def sections(self) -> dict[str, str]:
        """Returns the page's sections by heading; the text before the first is under ``."""
        parts = re.split(r"^(.+)\n-{3,}\n", self.page, flags=re.MULTILINE)
        named = zip(parts[1::2], parts[2::2], strict=True)
        return {"": parts[0].strip()} | {name: text.strip() for name, text in named}


def findings_of(verdicts: Earlier) -> list[Finding]:
    """Returns the findings among verdicts, in their order."""
    return [verdict for verdict in verdicts.values() if isinstance(verdict, Finding)]
