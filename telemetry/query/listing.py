"""What can be asked: the saved queries, views, macros and tables, a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from telemetry.query.saved import own_directory
from telemetry.rendering import printable
from telemetry.sql import MACRO_DOCS, VIEWS
from telemetry.sql.documentation import SavedQuery
from telemetry.sql.table_docs import TABLE_DOCS

WIDTH = 100


def listing(queries: Mapping[str, SavedQuery]) -> str:
    """Returns the four lists; queries of the user are untrusted text."""
    parts = [
        ("saved queries   stepscope query NAME --since 1h", _query_lines(queries)),
        ("views           stepscope query 'FROM NAME LIMIT 10'", _lines(VIEWS.items())),
        ("macros", [(macro.signature, macro.doc) for macro in MACRO_DOCS.values()]),
        ("tables", _lines(TABLE_DOCS.items())),
    ]
    text = "\n\n".join("\n".join([title, *_aligned(lines)]) for title, lines in parts)
    return f"{text}\n\nyour own queries   --queries DIR, or files NAME.sql in\n  {own_directory()}"


def _query_lines(queries: Mapping[str, SavedQuery]) -> list[tuple[str, str]]:
    return [(name, query.question or query.doc) for name, query in queries.items()]


def _lines(documented: Iterable[tuple[str, object]]) -> list[tuple[str, str]]:
    return [(name, str(getattr(each, "doc", ""))) for name, each in documented]


def _aligned(lines: list[tuple[str, str]]) -> list[str]:
    width = max(len(printable(name)) for name, _ in lines)
    texts = [
        f"  {printable(name):<{width}}  {first_sentence(printable(doc))}" for name, doc in lines
    ]
    return [text if len(text) <= WIDTH else text[: WIDTH - 1] + "…" for text in texts]


def first_sentence(doc: str) -> str:
    """Returns a documentation's first sentence, without its dot."""
    return doc.partition(". ")[0].rstrip(".")
