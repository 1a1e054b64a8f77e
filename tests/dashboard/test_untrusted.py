"""Ids and names from outside show as they are, and do nothing."""

from __future__ import annotations

import pytest

from dashboard.untrusted import in_html, in_markdown, prose_in_markdown


@pytest.mark.parametrize(
    "text",
    [
        "**bold**",
        "[a link](http://example.org)",
        "<script>alert(1)</script>",
        ":red[a directive]",
        "$a formula$",
        "`code`",
        "a|table",
        "http://example.org",
        "a@example.org",
    ],
)
def test_markdown_is_escaped(text: str) -> None:
    shown = in_markdown(text, 100)
    assert shown.replace("\\", "") == text
    for index, char in enumerate(shown):
        if char in "*[]<>:$`|@/":
            assert shown[index - 1] == "\\"


def test_what_stands_between_backticks_is_code() -> None:
    assert prose_in_markdown("run `a --b` *now*") == r"run `a --b` \*now\*"


@pytest.mark.parametrize("text", ["a ` b", "``", "`[x](y)", "` ` `"])
def test_a_backtick_without_a_partner_or_a_word_is_none(text: str) -> None:
    assert prose_in_markdown(text) == in_markdown(text)


def test_code_holds_no_markup() -> None:
    assert prose_in_markdown("`[a](b) <i>`") == "`[a](b) <i>`"


def test_html_is_escaped() -> None:
    assert in_html('<b onclick="x">') == "&lt;b onclick=&quot;x&quot;&gt;"


def test_control_and_direction_characters_are_replaced() -> None:
    assert in_markdown("a\x1b[31m\u202eb") == "a?\\[31m?b"


def test_long_text_is_cut() -> None:
    assert in_html("x" * 100, 10) == "x" * 9 + "…"
