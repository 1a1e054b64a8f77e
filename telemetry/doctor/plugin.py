"""What the plug-in in a vLLM says of itself: what it records, what not, and what would add it.

It says so in the engine's settings, under `stepscope`; that it gave up after errors stands in an
event of its own. An engine of vLLM's without these words is recorded from outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from telemetry.doctor.check import Check
from telemetry.doctor.vllm_flags import has_flag
from telemetry.sources.vllm.compatibility import TITLES

State: TypeAlias = Literal["recording", "partial", "disabled", "absent"]

ATTACH = (
    "pip install stepscope in vLLM's environment, start vLLM with STEPSCOPE_LOG={log}, "
    "and have `stepscope collect --log {log}` running"
)
"""How a vLLM is attached (docs/attach-vllm.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """Something that is not recorded, and how it would be. `flag` is None where none is known."""

    what: str
    flag: str | None
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """The plug-in of one engine. `reason` says why it is disabled or absent."""

    version: str | None
    scheduler: str | None
    is_tested: bool | None
    state: State
    reason: str | None
    recorded: list[str]
    lacking: dict[str, str]
    additions: list[Addition]


def plugin_report(facts: Mapping[str, Any]) -> PluginReport | None:
    """Returns what the plug-in of an engine says; None for an engine that is no vLLM.

    Args:
        facts: of the log (`facts_of`), or the description in the engine's ring.
    """
    if facts.get("source") != "vllm":
        return None
    settings = _object(facts.get("settings"))
    told = settings.get("stepscope")
    version = facts.get("version")
    if not isinstance(told, dict):
        return _absent(version)
    lacking = {_title(name): str(why) for name, why in _dict(told.get("lacking")).items()}
    recorded = [_title(name) for name, is_on in _dict(told.get("features")).items() if is_on]
    error = _text(facts.get("gave_up_text"))
    return PluginReport(
        version=version,
        scheduler=_text(told.get("scheduler")),
        is_tested=told.get("is_tested") is True,
        state="disabled" if error else "partial" if lacking else "recording",
        reason=error,
        recorded=recorded,
        lacking=lacking,
        additions=list(_additions(settings, version)),
    )


def plugin_checks(report: PluginReport | None) -> Iterator[Check]:
    """Yields what there is to say of a vLLM's plug-in; nothing for another engine."""
    if report is None:
        return
    if report.state == "absent":
        yield Check("unknown", "plug-in", report.reason or "")
        return
    version = f"vLLM {report.version or 'of unknown version'}, {report.scheduler}"
    untested = "" if report.is_tested else ": not tested with this version of Stepscope"
    yield Check("good" if report.is_tested else "warn", "version", version + untested)
    yield _state(report)
    yield Check("good", "records", ", ".join(report.recorded) or "nothing")
    for what, why in report.lacking.items():
        yield Check("warn", "lacking", f"{what}: {why}")
    for addition in report.additions:
        yield Check("unknown", "could add", f"{addition.what}: {addition.how}")


def _state(report: PluginReport) -> Check:
    if report.state == "disabled":
        return Check("bad", "plug-in", f"gave up: {report.reason}; restart vLLM to record again")
    if report.state == "partial":
        num_lacking = len(report.lacking)
        return Check("warn", "plug-in", f"records in part, {num_lacking} of its features lack")
    return Check("good", "plug-in", "records all that this version lets it")


def _absent(version: str | None) -> PluginReport:
    return PluginReport(
        version=version,
        scheduler=None,
        is_tested=None,
        state="absent",
        reason="not in this vLLM, which is seen from outside only: "
        + ATTACH.format(log="<the log's directory>"),
        recorded=[],
        lacking={},
        additions=[],
    )


# ----------------------------------------------------------------------------- what flags would add


def _additions(settings: Mapping[str, Any], version: str | None) -> Iterator[Addition]:
    """Yields what the engine's own settings keep out of the record."""
    if settings.get("has_otlp_traces") is False:
        yield _with_flag(
            version,
            "the caller's trace, and vLLM's own spans",
            "--otlp-traces-endpoint",
            "start vLLM with --otlp-traces-endpoint grpc://HOST:4317 (`stepscope collect "
            "--otlp-listen` takes the spans)",
        )
    if _dict(settings.get("cache")).get("enable_prefix_caching") is False:
        yield _with_flag(
            version,
            "shared prefixes and cache hits",
            "--enable-prefix-caching",
            "start vLLM with --enable-prefix-caching",
        )
    if "kv_events" in settings and not _dict(settings["kv_events"]).get("enable_kv_cache_events"):
        yield _with_flag(
            version,
            "KV blocks stored and removed",
            "--kv-events-config",
            'start vLLM with --kv-events-config \'{"enable_kv_cache_events": true, '
            '"publisher": "zmq"}\' and the collector with --kv-events tcp://HOST:5557',
        )
    if settings.get("shutdown_timeout") == 0:
        yield _with_flag(
            version,
            "whether an engine was ended or died (vLLM kills one that it ends, at once)",
            "--shutdown-timeout",
            "start vLLM with --shutdown-timeout 10, in which open requests end first",
        )
    if settings.get("log_stats") is False:
        yield _with_flag(
            version,
            "vLLM's own counters, to compare the record with",
            "--disable-log-stats",
            "start vLLM without --disable-log-stats",
        )


def _with_flag(version: str | None, what: str, flag: str, how: str) -> Addition:
    if has_flag(version, flag):
        return Addition(what=what, flag=flag, how=how)
    unknown = f"a setting of vLLM's; which one vLLM {version or '?'} has is not known here"
    return Addition(what=what, flag=None, how=unknown)


# ------------------------------------------------------------------------- what others have written


def _object(text: Any) -> dict[str, Any]:
    try:
        return _dict(json.loads(text)) if isinstance(text, str) else {}
    except ValueError:
        return {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))
