"""Reads the caller's W3C trace context, so that a request's spans join the caller's trace."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_SAMPLED = 0x01
"""The flag of a trace that its caller records."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace and span of whoever called, in hex.

    `is_sampled` says whether the caller records its trace.
    """

    trace_id: str
    parent_span_id: str
    is_sampled: bool


def read_traceparent(header: str | None) -> TraceContext | None:
    """Returns the context in a `traceparent` header; None without one, or where it is malformed.

    Source: W3C Trace Context, section 3.2: version ff and all-zero ids are invalid, and what cannot
    be read is ignored.
    """
    match = _TRACEPARENT.fullmatch(header.strip()) if header else None
    if match is None or header is None or header.startswith("ff"):
        return None
    trace_id, span_id = match.group(1), match.group(2)
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(match.group(3), 16) & _SAMPLED))
