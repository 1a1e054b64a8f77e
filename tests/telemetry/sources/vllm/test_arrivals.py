"""Ids as callers know them."""

from __future__ import annotations

import pytest

from telemetry.sources.vllm.arrivals import KEEPS_IDS, caller_id, extends_ids


@pytest.mark.parametrize(
    ("request_id", "known_as"),
    [
        ("chatcmpl-1234-0a1b2c3d", "chatcmpl-1234"),
        ("mine-0a1b2c3d-deadbeef", "mine-0a1b2c3d"),
        ("mine", "mine"),
        ("mine-0A1B2C3D", "mine-0A1B2C3D"),
    ],
)
def test_what_vllm_adds_to_an_id_is_taken_off(request_id: str, known_as: str) -> None:
    assert caller_id(request_id, is_extended=True) == known_as


def test_an_id_is_left_alone_where_vllm_leaves_it_alone() -> None:
    assert extends_ids({})
    assert not extends_ids({KEEPS_IDS: "1"})
    assert caller_id("mine-0a1b2c3d", is_extended=False) == "mine-0a1b2c3d"
