"""Documents as Markdown, parsed again by a real parser: what is shown is what was written."""

from __future__ import annotations

import pytest

from diagnose.document import (
    Bullets,
    Details,
    Document,
    Figure,
    Heading,
    Paragraph,
    Statement,
    Table,
    code,
    strong,
)
from diagnose.markdown import escaped, to_markdown
from diagnose.reading import Scope

HOSTILE = [
    "<script>alert(1)</script>",
    "[a](javascript:alert(1))",
    "![a](http://evil.example/x.png)",
    "**bold** _em_ ~~gone~~ `code`",
    "http://evil.example and www.evil.example and @someone",
    "a | b",
    "&lt;img&gt;",
    "$x$ \\ back",
    "a\n# heading",
    "\u202eevil\x1b[31m",
]


def markdown(*blocks: object) -> str:
    return to_markdown(Document("title", blocks))  # type: ignore[arg-type]


def html_of(text: str) -> str:
    parser = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    return str(parser.enable("table").enable("strikethrough").render(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_makes_no_element(text: str) -> None:
    shown = html_of(markdown(Paragraph(text)))
    assert shown.count("<") == 2, shown  # <p> and </p>


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_stays_in_its_cell(text: str) -> None:
    table = Table("t", ("a", "b"), ((text, code(text)), ("x", "y")))
    shown = html_of(markdown(table))
    assert shown.count("<td>") == 4, shown
    assert "<script" not in shown
    assert "<a " not in shown
    assert "<img" not in shown


@pytest.mark.parametrize("text", HOSTILE)
def test_no_address_or_mention_is_left_to_be_linked(text: str) -> None:
    line = escaped(text)
    assert "http://" not in line
    assert "www." not in line
    assert "@" not in line.replace("\\@", "")


@pytest.mark.parametrize(
    "text", ["# 5 steps", "- 4 requests", "1. step", "+ more", "> all", "===="]
)
def test_a_line_does_not_become_something_else_by_how_it_begins(text: str) -> None:
    shown = html_of(markdown(Paragraph(text)))
    assert shown.startswith("<p>"), shown


def test_a_number_at_the_start_of_a_line_stays_as_it_is() -> None:
    assert markdown(Paragraph("10.3 % of steps")) == "10.3 % of steps\n"


def test_enum_values_are_never_changed() -> None:
    assert escaped("kv_full + cache_reset") == "kv_full + cache_reset"


def test_strong_words_keep_the_space_after_them() -> None:
    assert markdown(Paragraph((strong("Rejected: "), "none"))) == "**Rejected:** none\n"


def test_a_code_span_holds_backticks() -> None:
    shown = html_of(markdown(Paragraph(code("a `b` c"))))
    assert shown == "<p><code>a `b` c</code></p>\n"


def test_a_statement_cannot_end_its_own_fence() -> None:
    shown = html_of(markdown(Statement("name", "SELECT 1\n```\n<script>")))
    assert shown.count("<pre>") == 1
    assert "<script>" not in shown


def test_a_summary_is_html_and_escaped_as_such() -> None:
    text = markdown(Details("a < b & *c*", (Paragraph("inside"),)))
    assert "<summary>a &lt; b &amp; *c*</summary>" in text


def test_numbers_stand_at_the_right() -> None:
    text = markdown(Table("t", ("a", "n"), (("x", "1"),), frozenset({1})))
    assert "|---|---:|" in text


def test_an_arrow_is_one_sign_but_in_what_is_typed() -> None:
    text = markdown(Bullets(("1 -> 2", code("--set a->b"))))
    assert text == "- 1 → 2\n- `--set a->b`\n"


def test_a_figure_leaves_no_trace() -> None:
    text = markdown(Heading(1, "t"), Figure(Scope(1, 2, 3)), Paragraph("after"))
    assert text == "# t\n\nafter\n"
