"""Reads the caller's W3C trace context, which vLLM hands on with a request while it traces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_IS_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The caller's trace and span, in hex; `is_sampled`: the caller records its trace."""

    trace_id: str | None = None
    span_id: str | None = None
    is_sampled: bool | None = None


NO_TRACE = TraceContext()


def trace_context(headers: Mapping[str, str] | None) -> TraceContext:
    """Returns the context in a request's headers; `NO_TRACE` without one that can be read.

    Source: W3C Trace Context, section 3.2: version ff and ids of zeros are invalid.
    """
    found = (
        next((v for k, v in headers.items() if k.lower() == "traceparent"), "") if headers else ""
    )
    match = _TRACEPARENT.fullmatch(found.strip())
    if match is None:
        return NO_TRACE
    version, trace_id, span_id, flags = match.groups()
    if version == "ff" or not trace_id.strip("0") or not span_id.strip("0"):
        return NO_TRACE
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _IS_SAMPLED))
