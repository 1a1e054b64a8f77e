"""Contents of blocks are told apart by what is in them, and by nothing else."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.content_hashes import HASH_BYTES, ContentHashes, Item

BLOCK = 4
HASHES = ContentHashes(BLOCK)
PLACEHOLDERS = [9] * 8

tokens = st.lists(st.integers(0, 300_000), min_size=BLOCK, max_size=BLOCK)


def blocks_of(
    token_ids: Iterable[int], items: Iterable[Item] = (), hashes: ContentHashes = HASHES
) -> list[bytes]:
    """Returns the hash of each full block of a prompt."""
    found = hashes.of(array("i", token_ids), items)
    return [found[i : i + HASH_BYTES] for i in range(0, len(found), HASH_BYTES)]


def test_a_block_is_equal_at_any_place_and_behind_anything() -> None:
    first, second, again = blocks_of([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4])
    assert first == again != second


@given(tokens, tokens)
def test_blocks_are_equal_where_their_tokens_are(one: list[int], other: list[int]) -> None:
    assert (blocks_of(one) == blocks_of(other)) == (one == other)


def test_the_order_of_tokens_counts() -> None:
    assert blocks_of([1, 2, 3, 4]) != blocks_of([4, 3, 2, 1])


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1])
def test_what_fills_no_block_has_no_hash(size: int) -> None:
    assert HASHES.of(array("i", range(size))) == b""


def test_tokens_behind_the_last_full_block_do_not_count() -> None:
    assert blocks_of(range(BLOCK + 3)) == blocks_of(range(BLOCK))


def test_a_list_says_what_an_array_says() -> None:
    assert HASHES.of([1, 2, 3, 4, 5]) == HASHES.of(array("i", [1, 2, 3, 4, 5]))


def test_another_start_has_other_hashes() -> None:
    other = ContentHashes(BLOCK)
    assert blocks_of([1, 2, 3, 4]) != blocks_of([1, 2, 3, 4], hashes=other)
    item = Item("image", 0, BLOCK)
    assert blocks_of(PLACEHOLDERS, [item]) != blocks_of(PLACEHOLDERS, [item], other)


def test_no_token_stands_in_a_hash() -> None:
    prompt = array("i", [1000] * BLOCK)
    assert prompt.tobytes()[:4] not in HASHES.of(prompt)


# ---------------------------------------------------------------------------------- encoder items


def test_the_placeholders_of_two_images_are_not_the_same() -> None:
    one, other = (blocks_of(PLACEHOLDERS, [Item(key, 0, 8)]) for key in ("a", "b"))
    assert all(mine != yours for mine, yours in zip(one, other, strict=True))


def test_the_parts_of_an_image_are_not_the_same() -> None:
    first, second = blocks_of(PLACEHOLDERS, [Item("a", 0, 8)])
    assert first != second


def test_an_image_is_the_same_at_another_place() -> None:
    text = [1, 2, 3, 4]
    first = blocks_of([*PLACEHOLDERS, *text], [Item("a", 0, 8)])
    behind = blocks_of([*text, *PLACEHOLDERS], [Item("a", 4, 12)])
    assert first == [*behind[1:], behind[0]]


def test_text_around_an_image_is_what_it_is_without() -> None:
    text = [1, 2, 3, 4]
    assert blocks_of([*text, *PLACEHOLDERS], [Item("a", 4, 12)])[0] == blocks_of(text)[0]


def test_an_image_that_ends_behind_the_last_full_block_counts_as_far_as_it_goes() -> None:
    prompt = [1, 2, 3, *PLACEHOLDERS[:3]]
    assert blocks_of(prompt, [Item("a", 3, 6)]) != blocks_of(prompt, [Item("b", 3, 6)])
