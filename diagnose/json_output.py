"""A diagnosis as JSON for machines, under a version of its own.

Engines are 16 hex digits, moments ISO 8601 to the nanosecond; `null` means not measured. Shapes may
gain keys under the same version, never lose or change one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from diagnose.accounting import Accounting
from diagnose.diagnosis import Diagnosis, EngineDiagnosis
from diagnose.finding import Action, Affected, Evidence, Finding, Verdict
from diagnose.words import engine_hex, iso, stretch

SCHEMA_VERSION = 1


SaidDocuments = Mapping[str, Mapping[str, Any]]
"""By the finding's id: `acknowledged` and `silenced`, as they stand in a finding."""
_NOTHING_SAID: Mapping[str, Any] = {"acknowledged": None, "silenced": None}


def to_json(diagnosis: Diagnosis, said: SaidDocuments | None = None) -> str:
    """Returns the diagnosis as a JSON document."""
    return json.dumps(to_document(diagnosis, said), indent=2, ensure_ascii=True, allow_nan=False)


def to_document(diagnosis: Diagnosis, said: SaidDocuments | None = None) -> dict[str, Any]:
    """Returns the diagnosis as plain dictionaries and lists.

    `said` is what people said of its findings; without it nothing is told of that.

    `accounting` and `data_quality` are those of the worst engine, as `verdict` is; each engine has
    its own under `engines`.
    """
    engines = diagnosis.engines
    when = stretch(diagnosis.window.start_ts, diagnosis.window.end_ts)
    return {
        "schema_version": SCHEMA_VERSION,
        "window": _window(diagnosis),
        "verdict": _verdict(diagnosis.verdict),
        "engines": [_engine(engine) for engine in engines],
        "findings": [
            {**finding_document(finding, when), **_said_of(finding, said)}
            for finding in diagnosis.findings
        ],
        "healthy": [
            _of(engine)
            | {"rule": said.rule, "name": said.name, "number": said.number}
            | ({"sentence": said.sentence} if said.sentence else {})
            for engine in engines
            for said in engine.healthy
        ],
        "suppressed": [
            _of(engine) | {"rule": said.rule, "by": said.by, "number": said.number}
            for engine in engines
            for said in engine.suppressed
        ],
        "not_measured": [
            _of(engine) | {"rule": said.rule, "missing": list(said.missing), "why": said.why}
            for engine in engines
            for said in engine.not_measured
        ],
        "accounting": _accounting(engines[0].accounting) if engines else None,
        "data_quality": _quality(engines[0]) if engines else None,
    }


def _said_of(finding: Finding, said: SaidDocuments | None) -> Mapping[str, Any]:
    return {} if said is None else said.get(finding.id, _NOTHING_SAID)


def _window(diagnosis: Diagnosis) -> dict[str, Any]:
    window = diagnosis.window
    return {
        "start": iso(window.start_ts),
        "end": iso(window.end_ts),
        "start_ts": window.start_ts,
        "end_ts": window.end_ts,
        "duration_ns": window.duration_ns,
        "is_live": window.is_live,
        "num_steps": sum(engine.steps.num_steps for engine in diagnosis.engines),
        "num_scrapes": sum(e.metrics.num_scrapes for e in diagnosis.engines if e.metrics),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    severity = None if verdict.severity is None else verdict.severity.name
    return {"rule": verdict.rule, "sentence": verdict.sentence, "severity": severity}


def _of(engine: EngineDiagnosis) -> dict[str, Any]:
    return {"engine": engine_hex(engine.scope.engine)}


def _engine(engine: EngineDiagnosis) -> dict[str, Any]:
    settings, steps = engine.settings, engine.steps
    return _of(engine) | {
        "dp_rank": settings.dp_rank,
        "model": settings.model,
        "source": settings.source,
        "version": settings.version,
        "verdict": _verdict(engine.verdict),
        "num_steps": steps.num_steps,
        "num_requests": _if_recorded(engine.accounting, engine.accounting.num_requests),
        "max_running": steps.max_running,
        "max_waiting": steps.max_waiting,
        "min_free_blocks": steps.min_free_blocks,
        "scrapes": _scrapes(engine),
        "num_usable_blocks": settings.num_usable_blocks,
        "max_num_seqs": settings.max_num_seqs,
        "accounting": _accounting(engine.accounting),
        "data_quality": _quality(engine),
    }


def _scrapes(engine: EngineDiagnosis) -> dict[str, Any] | None:
    """Returns what was judged where no steps are recorded; `None` where they are."""
    facts = engine.metrics
    if facts is None:
        return None
    return {
        "source": facts.source,
        "num_scrapes": facts.num_scrapes,
        "usual_interval_ns": facts.usual_interval_ns,
        "num_resets": facts.num_resets,
        "num_gaps": facts.num_gaps,
        "max_running": _whole(facts["num_running"].max),
        "max_waiting": _whole(facts["num_waiting"].max),
        "max_kv_cache_usage_ratio": facts["kv_cache_usage_ratio"].max,
        "num_preemptions": facts["num_preemptions"].sum,
        "num_finished": facts["num_finished"].sum,
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _if_recorded(account: Accounting, value: int) -> int | None:
    """Returns a count of the record; `None` where there is no record to count in."""
    return value if account.is_recorded else None


def finding_document(finding: Finding, when: str) -> dict[str, Any]:
    """Returns one finding; `when` is the window, in words, that its evidence was counted over."""
    opened, cleared = finding.span.opened_ts, finding.span.cleared_ts
    return {
        "id": finding.id,
        "rule": finding.rule,
        "rule_version": finding.rule_version,
        "severity": finding.severity.name,
        "confidence": finding.confidence.level,
        "confidence_why": finding.confidence.why,
        "status": "open" if finding.is_open else "cleared",
        "opened": iso(opened),
        "opened_ts": opened,
        "cleared": None if cleared is None else iso(cleared),
        "cleared_ts": cleared,
        "scope": {"engine": engine_hex(finding.engine)},
        "sentence": finding.sentence,
        "symptom": finding.symptom,
        "cause": {"kind": finding.cause.kind, "sentence": finding.cause.sentence},
        "shares": [
            {"kind": share.kind, "name": share.name, "num": share.num, "ratio": share.ratio}
            for share in finding.shares
        ],
        **({} if finding.shared_ts is None else {"shared_ts": finding.shared_ts}),
        "chain": [
            {"stage": link.stage, "ts": link.ts, "sentence": link.sentence}
            for link in finding.chain
        ],
        "rejected": [
            {"kind": item.kind, "name": item.name, "number": item.number}
            for item in finding.rejected
        ],
        "evidence": [_evidence(item, when) for item in finding.evidence],
        "impact": dict(finding.impact.numbers)
        | {"cost": list(finding.impact.cost), "users": list(finding.impact.users)},
        "affected_requests": [_affected(paid) for paid in finding.affected],
        "num_affected_requests": finding.num_affected,
        "actions": [_action(action) for action in finding.actions],
        "prediction": finding.prediction,
        "missing": list(finding.missing),
        "data_quality": list(finding.data_quality),
    }


def _evidence(item: Evidence, when: str) -> dict[str, Any]:
    return {
        "name": item.name,
        "value": item.value,
        "unit": item.unit,
        "baseline": item.baseline,
        "threshold": item.threshold,
        "n": item.n,
        "window": item.window or when,
        "provenance": item.provenance,
        "sql": item.sql,
    }


def _affected(paid: Affected) -> dict[str, Any]:
    return {
        "request": paid.request,
        "request_id": paid.request_id,
        "times": paid.times,
        "num_tokens_lost": paid.num_tokens_lost,
        "num_tokens_recomputed": paid.num_tokens_recomputed,
        "evicted_ns": paid.evicted_ns,
        "waited_ns": paid.waited_ns,
    }


def _action(action: Action) -> dict[str, Any]:
    return {
        "what": action.what,
        "flag": action.flag,
        "from": action.old,
        "to": action.new,
        "applies": action.applies,
        "trade_off": action.trade_off,
        "verify": action.verify,
        "revert": action.revert,
        "predicted": [
            {
                "name": effect.name,
                "unit": effect.unit,
                "before": effect.before,
                "after": effect.after,
                "error": effect.error,
                "is_exact": effect.is_exact,
            }
            for effect in action.predicted
        ],
    }


def _accounting(account: Accounting) -> dict[str, Any]:
    loss, work = account.loss, account.work
    return {
        "engine": engine_hex(account.scope.engine),
        "preemptions": {
            "counter": account.counter,
            "recorded": account.num_rows,
            "kv_full": _if_recorded(account, account.num_kv_full),
            "priority": _if_recorded(account, account.num_priority),
            "cache_reset": _if_recorded(account, account.num_cache_reset),
            "cause_unknown": _if_recorded(account, account.num_cause_unknown),
            "unattributed": account.unattributed,
            "equals_counter": account.equals_counter if account.is_recorded else None,
        },
        "tokens": {
            "lost": loss.num_lost,
            "recomputed": loss.num_recomputed,
            "regained_from_prefix_cache": loss.num_regained_from_prefix_cache,
            "regained_from_connector": loss.num_regained_from_connector,
            "lost_again": loss.num_lost_again,
            "never_resumed": loss.num_never_resumed,
            "pending": loss.num_pending,
            "identity_holds": loss.identity_holds,
        },
        "token_work": {
            "scheduled": work.num_scheduled,
            "useful_prefill": work.num_useful_prefill,
            "useful_decode": work.num_useful_decode,
            "recomputed": work.num_recomputed,
            "rejected_drafts": work.num_rejected_drafts,
            "padding": work.num_padding,
            "unattributed": work.num_unattributed,
            "adds_up": work.adds_up,
        },
        "requests": {
            "seen": _if_recorded(account, account.num_requests),
            "finished": account.num_finished,
            "affected": _if_recorded(account, account.num_affected),
            "max_times": _if_recorded(account, account.max_times),
            "evicted_ns": account.evicted_ns,
            "request_ns": account.request_ns,
            "newer_paid": _if_recorded(account, account.num_newer_paid),
            "itself_paid": _if_recorded(account, account.num_itself_paid),
            "older_paid": _if_recorded(account, account.num_older_paid),
        },
        "latency": {
            "longest_pause_p95_ns": {
                "evicted": account.pauses.evicted_p95_ns,
                "others": account.pauses.calm_p95_ns,
            },
            "e2e_p95_ns": {
                "evicted": account.pauses.evicted_e2e_p95_ns,
                "others": account.pauses.calm_e2e_p95_ns,
            },
        },
        "victims": [_affected(paid) for paid in account.victims],
        "sql": account.sql,
    }


def _quality(engine: EngineDiagnosis) -> dict[str, Any]:
    quality, steps = engine.quality, engine.steps
    return _of(engine) | {
        "num_steps": steps.num_steps,
        "num_steps_missing": steps.num_steps_missing,
        "missing_ratio": steps.missing_ratio,
        "num_records_dropped": quality.num_records_dropped,
        "num_recorder_errors": quality.num_recorder_errors,
        "died_step": quality.died_step,
        "notes": list(engine.data_quality),
    }
