"""No line is too strange: whatever stands in one, every reader of lines has an answer."""

from __future__ import annotations

import gzip

from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.sources.vllm_log import heads, iterations, startup, stats
from telemetry.sources.vllm_log.errors import event_of
from telemetry.sources.vllm_log.prefixes import Unwrapper
from telemetry.sources.vllm_log.shapes import shape_of
from telemetry.sources.vllm_log.tracebacks import Tracebacks
from tests.telemetry.sources.vllm_log.builders import CAPTURED
from tests.telemetry.sources.vllm_log.test_environments import EXCERPTS

REAL = gzip.decompress((CAPTURED / "serve_kv.log.gz").read_bytes()).decode().splitlines()
LINES = [*dict.fromkeys(REAL), *(text.rstrip() for text, _, _ in EXCERPTS.values())]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A real line with a piece of it replaced by another text."""
    line = draw(st.sampled_from(LINES))
    start = draw(st.integers(0, len(line)))
    end = draw(st.integers(start, min(len(line), start + 40)))
    return line[:start] + draw(st.text(max_size=20)) + line[end:]


@settings(deadline=None)
@given(st.lists(st.one_of(mutated(), st.text(max_size=200)), max_size=6))
def test_every_reader_answers(lines: list[str]) -> None:
    unwrapper, tracebacks = Unwrapper(), Tracebacks()
    for line in lines:
        unwrapped = unwrapper.unwrap(line)
        if unwrapped is None:
            continue
        head = heads.parse(unwrapped.text)
        stats.parse(head.message)
        iterations.parse(head.message)
        startup.parse(head.message)
        tracebacks.take(head.process, head.message)
        event_of("ERROR", "core.py:1", head.message)
        assert shape_of(head.message).isprintable() or not head.message.isprintable()
