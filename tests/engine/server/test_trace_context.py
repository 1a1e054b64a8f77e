import pytest

from engine.server.trace_context import TraceContext, read_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f" 00-{TRACE}-{SPAN}-00 ", False),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"01-{TRACE}-{SPAN}-03-more", True),
    ],
)
def test_a_callers_trace_is_taken_over(header: str, is_sampled: bool) -> None:
    assert read_traceparent(header) == TraceContext(TRACE, SPAN, is_sampled)


@pytest.mark.parametrize(
    "header",
    [None, "", "hello", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{SPAN}"],
)
def test_what_is_no_trace_is_ignored(header: str | None) -> None:
    assert read_traceparent(header) is None
