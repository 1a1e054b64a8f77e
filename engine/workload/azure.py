"""Azure's LLM inference traces: arrival time, prompt length, output length, and no content.

Source: Azure Public Dataset, LLM inference traces (Patel et al., Splitwise, ISCA 2024). The CSV has
the columns TIMESTAMP, ContextTokens, GeneratedTokens. Prompts are random and share nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from engine.workload.plan import PlannedRequest, PromptPart, WorkloadError

HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
CONTENT_KEY = 1
"""Keeps these prompts apart from those of other readers under the same seed."""


def read_azure(lines: Iterable[str], *, name: str, scale: int = 1) -> list[PlannedRequest]:
    """Returns the trace's requests, lengths divided by `scale` (1 token at least).

    Raises:
        WorkloadError: a line is not what the header promises; the message names it.
    """
    rows = csv.reader(lines)
    header = tuple(column.strip() for column in next(rows, []))
    if header != HEADER:
        raise WorkloadError(
            f"{name}, line 1: the header is {','.join(header)!r} but an Azure trace begins with "
            f"{','.join(HEADER)!r}"
        )
    return list(_read_rows(rows, name, scale))


def _read_rows(rows: Iterable[list[str]], name: str, scale: int) -> Iterator[PlannedRequest]:
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        try:
            stamp, num_prompt, num_output = row
            arrived = datetime.fromisoformat(stamp)
            lengths = int(num_prompt), int(num_output)
        except ValueError as error:
            raise WorkloadError(f"{name}, line {number}: {error} in {','.join(row)!r}") from None
        if min(lengths) < 0:
            raise WorkloadError(f"{name}, line {number}: a length is negative in {','.join(row)!r}")
        yield PlannedRequest(
            offset_seconds=_seconds(arrived),
            prompt=(PromptPart((CONTENT_KEY, number), max(1, lengths[0] // scale)),),
            max_tokens=max(1, lengths[1] // scale),
        )


def _seconds(moment: datetime) -> float:
    """Returns seconds since the Unix epoch; a stamp without a zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()
