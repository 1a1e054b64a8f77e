"""Text from outside in labels and attributes."""

from __future__ import annotations

import pytest

from telemetry.exporters.attributes import (
    LONGEST_LABEL,
    LONGEST_TEXT,
    MOST_ITEMS,
    attributes,
    bounded,
    label,
)

HOSTILE = "\x00\x07\x1b[2J\r\n\u202e\ud800\U000e0001"


def test_nothing_that_moves_a_terminal_is_left() -> None:
    assert bounded(HOSTILE).isprintable()
    assert label(HOSTILE).isascii()


@pytest.mark.parametrize("length", [LONGEST_TEXT - 1, LONGEST_TEXT])
def test_a_text_that_fits_stays_as_it_is(length: int) -> None:
    assert bounded("é" * length) == "é" * length


@pytest.mark.parametrize("given", ["x" * (LONGEST_TEXT + 1), "\x1b" * LONGEST_TEXT])
def test_a_longer_text_is_cut_and_says_so(given: str) -> None:
    assert len(bounded(given)) == LONGEST_TEXT
    assert bounded(given).endswith("…")


def test_a_label_is_shorter_and_empty_for_nothing() -> None:
    assert len(label("x" * 1000)) == LONGEST_LABEL
    assert label(None) == ""


def test_what_is_not_known_is_left_out() -> None:
    assert attributes({"a": None, "b": 0, "c": False}) == {"b": 0, "c": False}


def test_whole_numbers_of_more_than_63_bits_become_text() -> None:
    assert attributes({"a": 1 << 63, "b": (1 << 63) - 1}) == {"a": str(1 << 63), "b": (1 << 63) - 1}


def test_a_list_is_bounded_in_both_directions() -> None:
    told = attributes({"a": ["x" * 1000] * 1000})["a"]
    assert isinstance(told, list)
    assert (len(told), len(told[0])) == (MOST_ITEMS, LONGEST_TEXT)


def test_what_no_attribute_can_be_becomes_text() -> None:
    assert attributes({"a": {"b": 1}}) == {"a": "{'b': 1}"}
