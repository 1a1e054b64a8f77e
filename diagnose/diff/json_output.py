"""A comparison as JSON for machines, under a version of its own (`docs/diff.schema.json`).

`null` is not measured. Shapes may gain keys under the same version, never lose or change one.
"""

from __future__ import annotations

import json
from typing import Any

from diagnose.diff.comparison import Diff, FindingChange, Quantity
from diagnose.diff.noise import METHOD
from diagnose.diff.side import Side
from diagnose.diff.words import cautions, headline
from diagnose.finding import Finding
from diagnose.words import engine_hex, iso

SCHEMA_VERSION = 1


def to_json(diff: Diff) -> str:
    """Returns the comparison as a JSON document."""
    return json.dumps(to_document(diff), indent=2, ensure_ascii=True, allow_nan=False)


def to_document(diff: Diff) -> dict[str, Any]:
    """Returns the comparison as plain dictionaries and lists."""
    return {
        "schema_version": SCHEMA_VERSION,
        "sentence": headline(diff),
        "a": _side(diff.a),
        "b": _side(diff.b),
        "cautions": cautions(diff),
        "findings": [_finding(change) for change in diff.findings],
        "settings": [{"name": s.name, "a": s.old, "b": s.new} for s in diff.settings],
        "settings_of_one_side": [setting.name for setting in diff.settings_of_one_side],
        "quantities": [_quantity(quantity) for quantity in diff.quantities],
        "method": METHOD,
    }


def _side(side: Side) -> dict[str, Any]:
    engine = side.diagnosis
    verdict = engine.verdict
    severity = None if verdict.severity is None else verdict.severity.name
    return {
        "engine": engine_hex(side.scope.engine),
        "model": engine.settings.model,
        "start": iso(side.scope.start_ts),
        "end": iso(side.scope.end_ts),
        "num_steps": engine.steps.num_steps,
        "num_scrapes": None if engine.metrics is None else engine.metrics.num_scrapes,
        "num_other_engines": side.num_others,
        "verdict": {"rule": verdict.rule, "severity": severity, "sentence": verdict.sentence},
    }


def _finding(change: FindingChange) -> dict[str, Any]:
    return {
        "rule": change.rule,
        "fate": change.fate,
        "a": _found(change.a),
        "b": _found(change.b),
        "why": change.why,
    }


def _found(finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    return {
        "id": finding.id,
        "severity": finding.severity.name,
        "sentence": finding.sentence,
        "status": "open" if finding.is_open else "cleared",
    }


def _quantity(quantity: Quantity) -> dict[str, Any]:
    return {
        "group": quantity.group,
        "name": quantity.name,
        "unit": quantity.unit,
        "a": {"value": quantity.a, "n": quantity.num_a},
        "b": {"value": quantity.b, "n": quantity.num_b},
        "change_ratio": quantity.change_ratio,
        "difference": None
        if quantity.low is None
        else {"low": quantity.low, "high": quantity.high},
        "outcome": quantity.outcome,
    }
