"""Rows of `engine_spans` from an export request: which spans are vLLM's, what is kept of them.

A span is vLLM's if its instrumentation scope is one of vLLM's modules: `llm_request`, one a request
that has finished, and those of its start. Any other span is counted and not kept, also one that
some other library makes inside a vLLM process (of HTTP calls, say, with URLs in it).

Attributes are those of an allow-list. No text of a request is among them, whatever is sent.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from telemetry.exporters.attributes import bounded
from telemetry.records import NULLS, EngineRow
from telemetry.source_records import EngineSpanRow
from telemetry.sources.otlp import resources
from telemetry.sources.otlp.decoding import ExportRequest
from telemetry.sources.rows import Row

REQUEST_SPAN = "llm_request"
MODEL_ATTRIBUTE = "gen_ai.response.model"
REQUEST_ID_ATTRIBUTE = "gen_ai.request.id"

COUNTS: dict[str, str] = {
    "num_prompt_tokens": "gen_ai.usage.prompt_tokens",
    "num_output_tokens": "gen_ai.usage.completion_tokens",
    "max_tokens": "gen_ai.request.max_tokens",
}
"""Columns that are counts, and the attribute that each is of."""

TIMES: dict[str, str] = {
    "queue_ns": "gen_ai.latency.time_in_queue",
    "ttft_ns": "gen_ai.latency.time_to_first_token",
    "prefill_ns": "gen_ai.latency.time_in_model_prefill",
    "decode_ns": "gen_ai.latency.time_in_model_decode",
    "e2e_ns": "gen_ai.latency.e2e",
}
"""Columns that are times, and the attribute, in seconds, that each is of."""

KEPT = (
    *("gen_ai.request.n", "gen_ai.request.temperature", "gen_ai.request.top_p"),
    *("gen_ai.usage.num_sequences", "gen_ai.latency.time_in_scheduler"),
    *("gen_ai.latency.time_in_model_inference", "gen_ai.latency.time_in_model_forward"),
    *("gen_ai.latency.time_in_model_execute", "code.function", "code.namespace"),
)
"""What else is kept, in `attributes`, under its own name."""

KEPT_OF_RESOURCE = ("vllm.process_kind", "vllm.process_name")
"""What says which process of the engine it was."""

LONGEST_ID = 1_024
"""Characters of a request's id."""
_ERROR = 2
"""Status code of a span that failed."""
_LONGEST_SECONDS = 1e9
_LARGEST_COUNT = NULLS["u4"] - 1
_PLAIN = frozenset({"string_value", "bool_value", "int_value", "double_value"})


@dataclass(frozen=True, slots=True)
class Span:
    """A span of vLLM's, as a row."""

    engine: int
    row: Row
    resource: Mapping[str, Any]

    def description(self) -> EngineRow:
        """Returns what it says of its engine."""
        return resources.describe(self.resource, self.row["start_ts"] or self.row["ts"])


@dataclass(slots=True)
class Taken:
    """What one message brought."""

    spans: list[Span] = field(default_factory=list)
    num_foreign: int = 0
    """Spans that are not vLLM's."""
    refused: Counter[str] = field(default_factory=Counter)
    """Spans of vLLM's that make no sense, by why."""


def take_apart(message: ExportRequest, *, earliest_ts: int, latest_ts: int) -> Taken:
    """Returns the spans in a message; those that ended outside the two times are refused."""
    taken = Taken()
    for of_resource in message.resource_spans:
        resource = plain_values(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            if not is_of_vllm(of_scope.scope.name):
                taken.num_foreign += len(of_scope.spans)
                continue
            for span in of_scope.spans:
                problem = _problem(span, earliest_ts, latest_ts)
                if problem is None:
                    row = {"engine": resources.engine_of(resource), **asdict(_row(span, resource))}
                    taken.spans.append(Span(row["engine"], row, resource))
                else:
                    taken.refused[problem] += 1
    return taken


def is_of_vllm(scope: str) -> bool:
    """Returns whether an instrumentation scope is one of vLLM's modules."""
    return scope == "vllm" or scope.startswith("vllm.")


def plain_values(attributes: Iterable[Any]) -> dict[str, Any]:
    """Returns the attributes that are text, truth values or numbers."""
    found = {}
    for pair in attributes:
        kind = pair.value.WhichOneof("value")
        if kind in _PLAIN:
            found[pair.key] = getattr(pair.value, kind)
    return found


def _problem(span: Any, earliest_ts: int, latest_ts: int) -> str | None:
    if (len(span.trace_id), len(span.span_id)) != (16, 8):
        return "a trace id is 16 bytes and a span id 8"
    if not span.end_time_unix_nano:
        return "it has no end"
    if not earliest_ts <= span.end_time_unix_nano <= latest_ts:
        return "it ended at a time that cannot be: compare the clocks"
    return None


def _row(span: Any, resource: Mapping[str, Any]) -> EngineSpanRow:
    told = plain_values(span.attributes)
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    return EngineSpanRow(
        ts=end,
        start_ts=start if 0 < start <= end else None,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex() if len(span.parent_span_id) == 8 else None,
        name=bounded(span.name),
        service=resources.service_of(resource),
        request_id=_id(told.get(REQUEST_ID_ATTRIBUTE)),
        model=_text(told.get(MODEL_ATTRIBUTE)),
        attributes=_others(span, told, resource),
        **{column: _count(told.get(name)) for column, name in COUNTS.items()},
        **{column: _nanoseconds(told.get(name)) for column, name in TIMES.items()},
    )


def _others(span: Any, told: Mapping[str, Any], resource: Mapping[str, Any]) -> str | None:
    kept = {name: told[name] for name in KEPT if name in told}
    kept |= {name: resource[name] for name in KEPT_OF_RESOURCE if name in resource}
    if span.status.code == _ERROR:
        kept["error"] = True
    known = {
        name: bounded(value) if isinstance(value, str) else value
        for name, value in kept.items()
        if not (isinstance(value, float) and not math.isfinite(value))
    }
    return json.dumps(known, sort_keys=True) if known else None


def _id(value: Any) -> str | None:
    """Returns an id as it is, since it is compared with those that were recorded."""
    return value[:LONGEST_ID] if isinstance(value, str) and value else None


def _text(value: Any) -> str | None:
    return bounded(value) if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _LARGEST_COUNT else None


def _nanoseconds(seconds: Any) -> int | None:
    """Returns a time in ns; None for one that is none: vLLM computes some from a moment of 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return round(seconds * 1e9) if 0 <= seconds < _LONGEST_SECONDS else None
