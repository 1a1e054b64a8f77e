"""The caller's trace, as vLLM hands it on."""

from __future__ import annotations

import pytest

from telemetry.sources.vllm.trace_context import NO_TRACE, TraceContext, trace_context

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "is_sampled"), [("01", True), ("00", False), ("03", True)])
def test_a_traceparent_is_read(flags: str, is_sampled: bool) -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-{flags}"}
    assert trace_context(headers) == TraceContext(TRACE, SPAN, is_sampled)


def test_names_of_headers_know_no_case() -> None:
    assert trace_context({"Traceparent": f"00-{TRACE}-{SPAN}-01"}).trace_id == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01<script>",
    ],
)
def test_what_cannot_be_read_is_no_trace(header: str) -> None:
    assert trace_context({"traceparent": header}) == NO_TRACE


def test_a_request_without_headers_has_no_trace() -> None:
    assert trace_context(None) == trace_context({}) == NO_TRACE
