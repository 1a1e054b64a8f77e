"""What a person reads once an import is done."""

from __future__ import annotations

from telemetry.sources.summary import summary
from telemetry.sources.telling import ImportTold

NOON = 1_764_417_600 * 10**9


def test_what_was_read_what_was_not_and_what_is_not_known() -> None:
    told = ImportTold(source="otlp", name="a\x1b.pb", unit="spans")
    told.read("request", 1_200)
    told.read("start-up", 3)
    told.rows([NOON, NOON + 61 * 10**9])
    told.unread("b.pb: no message", 2)
    told.notes.append("spans know nothing of preemptions")
    assert summary(told).splitlines() == [
        "a\\x1b.pb: 2 rows of 1,203 spans",
        "  spans     1,200 request, 3 start-up",
        "  times     2025-11-29 12:00:00 to 2025-11-29 12:01:01 UTC",
        "  not read  2",
        "            b.pb: no message",
        "  note      spans know nothing of preemptions",
    ]


def test_an_import_of_nothing_has_no_times() -> None:
    told = ImportTold(source="otlp", name="a", unit="pages")
    assert summary(told).splitlines() == ["a: 0 rows of 0 pages", "  not read  0"]
