"""Whatever bytes come: spans, or a refusal in words; never anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.sources.otlp.decoding import (
    ExportRequest,
    NotOtlpError,
    from_json,
    from_protobuf,
)
from telemetry.sources.otlp.spans import take_apart
from tests.telemetry.sources.otlp.builders import export

WHOLE = export(attributes={"gen_ai.request.id": "a", "gen_ai.latency.e2e": 1.5}).SerializeToString()
IN_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["resourceSpans", "scopeSpans", "spans", "traceId", "attributes", "key", "value"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


def read(decode: Callable[[bytes], ExportRequest], payload: bytes) -> None:
    with suppress(NotOtlpError):
        take_apart(decode(payload), earliest_ts=0, latest_ts=1 << 62)


@pytest.mark.parametrize("decode", [from_protobuf, from_json])
@given(payload=st.binary(max_size=200))
def test_random_bytes(decode: Callable[[bytes], ExportRequest], payload: bytes) -> None:
    read(decode, payload)


@given(
    at=st.integers(0, len(WHOLE) - 1),
    byte=st.integers(0, 255),
    length=st.integers(1, len(WHOLE)),
)
def test_a_message_with_a_wrong_byte(at: int, byte: int, length: int) -> None:
    read(from_protobuf, (WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :])[:length])


@given(value=IN_JSON)
def test_json_of_other_shapes(value: object) -> None:
    read(from_json, json.dumps({"resourceSpans": value}).encode())
