"""Export requests for tests: one `llm_request` span, changed as a test wishes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from telemetry.sources.otlp.decoding import ExportRequest
from tests.telemetry.recorded_sources import attribute

CAPTURED = Path(__file__).parents[3] / "data" / "vllm" / "otlp"
TRACE, SPAN, PARENT = bytes(range(16)), bytes(range(8)), bytes(range(8, 16))
VLLM = "vllm.tracing.otel"


def export(
    *,
    scope: str = VLLM,
    name: str = "llm_request",
    end_ns: int | None = None,
    attributes: dict[str, Any] | None = None,
    resource: dict[str, Any] | None = None,
    num_spans: int = 1,
) -> ExportRequest:
    """Returns spans that end at `end_ns`, by default now, and lasted a second."""
    message = ExportRequest()
    of_resource = message.resource_spans.add()
    for key, value in (resource or {"service.name": "chat"}).items():
        attribute(of_resource.resource, key, value)
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = scope
    end_ns = time.time_ns() if end_ns is None else end_ns
    for index in range(num_spans):
        span = of_scope.spans.add(name=name, trace_id=TRACE, parent_span_id=PARENT)
        span.span_id = (1 + index).to_bytes(8, "big")
        span.start_time_unix_nano, span.end_time_unix_nano = max(end_ns - 10**9, 0), end_ns
        for key, value in (attributes or {}).items():
            attribute(span, key, value)
    return message
