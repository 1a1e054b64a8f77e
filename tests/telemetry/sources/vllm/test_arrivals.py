"""What is told of an arrival: ids as callers know them, what is in a prompt's blocks."""

from __future__ import annotations

from typing import Any

import pytest

from telemetry.content_hashes import ContentHashes
from telemetry.sources.vllm.arrivals import KEEPS_IDS, caller_id, content_hashes, extends_ids
from tests.telemetry.sources.vllm.fake_vllm import fake_class


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


def asked(**attributes: Any) -> Any:
    """Returns a request of two full blocks of four tokens."""
    request = fake_class("Request")()
    known = {"prompt_token_ids": list(range(9)), "block_hashes": [b"1", b"2"]}
    for name, value in (known | attributes).items():
        setattr(request, name, value)
    return request


def test_full_blocks_of_a_prompt_are_told() -> None:
    hashes = ContentHashes(4)
    assert content_hashes(asked(), hashes) == hashes.of(range(8))


@pytest.mark.parametrize(
    "unknown",
    [{"block_hashes": []}, {"prompt_token_ids": None}, {"prompt_embeds": object()}],
    ids=["vLLM hashes no block", "embeddings alone", "embeddings between tokens"],
)
def test_what_is_in_blocks_is_left_open_where_it_is_not_known(unknown: dict[str, Any]) -> None:
    assert content_hashes(asked(**unknown), ContentHashes(4)) is None
