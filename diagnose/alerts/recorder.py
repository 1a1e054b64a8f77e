"""Alerts that are no rule's: open findings, and the health of the recorder itself.

A finding names its cause, which no metric does; so it alerts by what the recorder found. The others
say that a record has holes or ends, before anybody relies on it. Each has its runbook here, since
there is no rule's page to make it of.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.alerts.alert import Alert
from diagnose.finding import Severity
from telemetry.exporters.metrics import (
    ANALYST_AGE,
    BLIND,
    DRAIN_LAG,
    DROPPED,
    EXPORT_FAILURES,
    FINDING_ACTIVE,
    RECORDER_ERRORS,
    UNATTRIBUTED,
)

COLLECTOR_JOB = "stepscope-collector"
"""The job of the collector's page, as `deploy/prometheus.yml` calls it."""
MOST_SILENCE_SECONDS = 300
"""The analyst judges every 10 s, and rarer where that takes more than a quarter of the time."""
MOST_LAG_SECONDS = 30
"""The collector drains four times a second; a log that is so far behind is not written."""

_ENGINE = "Engine {{ $labels.engine }}, collector {{ $labels.instance }}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """An alert with what its runbook says."""

    alert: Alert
    meaning: str
    confirm: tuple[str, ...]
    """Commands of `stepscope`."""
    to_do: str
    false_alarm: str
    verify: str


def _alert(
    rule: str, expr: str, severity: Severity, hold: str, summary: str, description: str
) -> Alert:
    return Alert(
        rule=rule,
        expr=expr,
        severity=severity,
        hold=hold,
        summary=summary,
        description=f"{description} {_ENGINE}",
        source="collector",
    )


FINDING = Health(
    alert=Alert(
        rule="stepscope-finding-active",
        expr=f"max without (silenced) ({FINDING_ACTIVE.prometheus_name}"
        '{severity=~"high|critical",silenced="false"}) == 1',
        hold="30s",
        summary="Stepscope found a fault, with its cause",
        description="{{ $labels.rule }} is open, severity {{ $labels.severity }}. "
        f"{_ENGINE}",
        source="collector",
    ),
    meaning="The analyst judged the record of the engine's steps and found a fault that lasts. The "
    "label `rule` names it, `severity` says how bad it is; both are the finding's own. The finding "
    "has what no alert has: the cause, the requests that paid and what to change.",
    confirm=("stepscope diagnose --since 15m", 'stepscope query "FROM findings"'),
    to_do="Read the finding and follow its actions. `docs/rules/` has the page of its rule. "
    "`stepscope silence` ends the alert as long as the silence lasts, and so does a silence in "
    "Alertmanager; a finding that somebody acknowledged alerts on.",
    false_alarm="The page of its rule says when that rule stays quiet. A finding is damped before "
    "it is exported: what comes and goes does not alert each time.",
    verify="`stepscope diagnose --since 10m` lists the rule under what is well, and the series is "
    "gone.",
)

RECORDER: tuple[Health, ...] = (
    Health(
        alert=Alert(
            rule="stepscope-collector-down",
            expr=f'up{{job="{COLLECTOR_JOB}"}} == 0',
            severity=Severity.high,
            hold="2m",
            summary="The collector does not answer: steps stay in the rings and are overwritten",
            description="{{ $labels.instance }} has not answered a scrape for 2 minutes.",
            source="collector",
        ),
        meaning="Nothing drains the rings. An engine goes on undisturbed; its ring holds the last "
        "minutes, and what is older is lost. No finding is made meanwhile, so that silence of "
        "`StepscopeFindingActive` means nothing.",
        confirm=("stepscope doctor", "stepscope doctor --probe collector"),
        to_do="Start it again (`stepscope collect`, or the service). The next one goes on exactly "
        "where the log ends. A full disk shows in `stepscope doctor`.",
        false_alarm="A collector without `--metrics-port` has no page, and one that ended because "
        "its last engine did is down on purpose: scrape services, not such processes.",
        verify="`stepscope doctor` names a running collector and no lag.",
    ),
    Health(
        alert=Alert(
            rule="stepscope-analyst-silent",
            expr=f"{ANALYST_AGE.prometheus_name} > {MOST_SILENCE_SECONDS}",
            severity=Severity.high,
            hold="1m",
            summary="Nobody judges the log: no finding is opened or cleared",
            description="The analyst last judged {{ $value | humanizeDuration }} ago. Collector "
            "{{ $labels.instance }}.",
            source="collector",
        ),
        meaning="Steps are recorded and nobody looks at them. Findings stay as they were, so that "
        "silence of `StepscopeFindingActive` means nothing.",
        confirm=("stepscope doctor", "stepscope findings"),
        to_do="`stepscope doctor` says what the last attempt failed with. The collector starts an "
        "analyst again when it dies; one that takes too long shows there too. `stepscope diagnose` "
        "judges the same log by hand meanwhile.",
        false_alarm="A machine that slept, or whose clock jumped, looks like this for a minute.",
        verify="The age is under a minute again.",
    ),
    Health(
        alert=_alert(
            "stepscope-records-dropped",
            f"sum without (region) (increase({DROPPED.prometheus_name}[5m])) > 0",
            Severity.medium,
            "0s",
            "The record has holes: rows were overwritten before they were drained",
            "{{ $value | printf \"%.0f\" }} rows were lost in 5 minutes; counts are lower bounds.",
        ),
        meaning="The ring was full before the collector came round. Findings of this stretch say "
        "which share of the steps is missing, and their counts are lower bounds.",
        confirm=("stepscope doctor", "stepscope query record-gaps"),
        to_do="Give the collector a processor, give the ring more memory (`STEPSCOPE_RING_MB`), "
        "and look whether the disk keeps up.",
        false_alarm="After a collector was down for minutes this is the trace of it, and over.",
        verify="`stepscope query record-gaps` has no newer gap.",
    ),
    Health(
        alert=_alert(
            "stepscope-recorder-blind",
            f"{BLIND.prometheus_name} == 1",
            Severity.high,
            "30s",
            "An engine steps and nothing is recorded of it",
            "Steps go on unrecorded.",
        ),
        meaning="The engine's steps go on while its recorder stores none, or its ring is gone "
        "though it never said good-bye.",
        confirm=("stepscope doctor",),
        to_do="Look into the engine's log for the recorder's one warning, then restart the engine "
        "when that suits. A ring that vanished was removed by hand or with its container.",
        false_alarm="An engine that was killed together with its ring shows for a quarter of an "
        "hour, then no longer.",
        verify="`stepscope doctor` counts steps of the engine.",
    ),
    Health(
        alert=_alert(
            "stepscope-recorder-errors",
            f"increase({RECORDER_ERRORS.prometheus_name}[5m]) > 0",
            Severity.medium,
            "0s",
            "The recorder swallowed errors inside the engine",
            "{{ $value | printf \"%.0f\" }} errors in 5 minutes.",
        ),
        meaning="Recording failed inside the engine and was passed over, so that the engine goes "
        "on. What failed is not in the record.",
        confirm=("stepscope doctor",),
        to_do="The engine's log has the first error with its trace. Check that the version of "
        "Stepscope knows the version of the engine.",
        false_alarm="None known: each of these errors is a fault.",
        verify="The counter stands still while the engine steps.",
    ),
    Health(
        alert=_alert(
            "stepscope-drain-lag",
            f"{DRAIN_LAG.prometheus_name} > {MOST_LAG_SECONDS}",
            Severity.medium,
            "1m",
            "The log is far behind the engine",
            "{{ $value | humanizeDuration }} of the record may not be in the log yet.",
        ),
        meaning="The collector lives and does not keep up: a disk that is slow or full, or no "
        "processor to run on. What the ring overwrites meanwhile is lost.",
        confirm=("stepscope doctor",),
        to_do="Free the disk (`stepscope doctor` shows room and retention), and give the collector "
        "a processor.",
        false_alarm="Right after a start the collector first drains what the rings hold.",
        verify="The lag is under a second again.",
    ),
    Health(
        alert=_alert(
            "stepscope-preemptions-unattributed",
            f"{UNATTRIBUTED.prometheus_name} > 0",
            Severity.medium,
            "10m",
            "The engine counted preemptions that the record does not have",
            "{{ $value }} preemptions are in the scheduler's counter and not in the log.",
        ),
        meaning="The account of preemptions does not close. Causes and victims of the missing ones "
        "are unknown.",
        confirm=("stepscope diagnose --since 1h", "stepscope query record-gaps"),
        to_do="Look whether rows were dropped in the same stretch. Without a gap it is a fault of "
        "the recorder: make a bundle (`stepscope bundle`) and report it.",
        false_alarm="A collector that was attached to a running engine does not know what was "
        "counted before.",
        verify="The gauge is 0 after the next start of the engine.",
    ),
    Health(
        alert=Alert(
            rule="stepscope-export-failing",
            expr=f"increase({EXPORT_FAILURES.prometheus_name}[10m]) > 0",
            severity=Severity.medium,
            hold="10m",
            summary="Spans or metrics do not reach their OTLP receiver",
            description="{{ $value | printf \"%.0f\" }} exports of {{ $labels.signal }} failed in "
            "10 minutes. Collector {{ $labels.instance }}.",
            source="collector",
        ),
        meaning="The receiver does not acknowledge. Nothing is lost yet: the log is the queue, and "
        "the export goes on from where it was.",
        confirm=("stepscope doctor",),
        to_do="Check the receiver and `OTEL_EXPORTER_OTLP_ENDPOINT`.",
        false_alarm="A receiver that restarts is silent for less than the ten minutes.",
        verify="`stepscope doctor` shows a newer acknowledged export.",
    ),
)  # fmt: skip
"""Alerts on the recorder's own health."""
