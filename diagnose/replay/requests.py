"""A request, made again of the row of its arrival."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from diagnose.replay.rows import Row
from engine.encoder_cache import EncoderItem
from engine.request import Request
from engine.sampling import SamplingParams
from engine.session import Session
from telemetry.vocabulary import SkipReason


class RecordedGrammar:
    """A grammar that takes all: what the recorded one refused is not in the record."""

    key = "recorded"

    def accepted_prefix(self, token_ids: list[int]) -> list[int]:
        return token_ids


def request_of(row: Row, prompt: array[int], end_tokens: Sequence[int]) -> Request:
    """Returns a request with made-up tokens.

    Args:
        row: of `request_arrivals`.
        end_tokens: tokens that end it, or a turn of it; nothing else does but its limits.
    """
    ignores_eos = bool(row["ignore_eos"])
    stop_tokens = end_tokens if ignores_eos else end_tokens[:-1]
    return Request(
        row["request_id"] if row["request_id"] is not None else str(row["request"]),
        number=row["request"],
        prompt_token_ids=prompt,
        sampling=SamplingParams(
            max_tokens=row["max_tokens"],
            min_tokens=row["min_tokens"] or 0,
            ignore_eos=ignores_eos,
            stop_token_ids=tuple(stop_tokens),
        ),
        arrival_time=row["arrival_time"],
        priority=row["priority"] or 0,
        eos_token_id=end_tokens[-1] if len(end_tokens) > len(stop_tokens) else None,
        reads_prefix_cache=row["reads_cache"] is not False,
        adapter=row["adapter"],
        cache_salt=row["salt_key"],
        grammar=None if row["grammar_key"] is None else RecordedGrammar(),
        encoder_items=_items(row),
        session=None if row["session"] is None else Session(),
        blocked_by=None if row["reason"] is None else SkipReason(row["reason"]),
    )


def _items(row: Row) -> tuple[EncoderItem, ...]:
    if row["item_keys"] is None:
        return ()
    keys = row["item_keys"].split(" ")
    columns = zip(keys, row["item_positions"], row["item_embeds"], strict=True)
    return tuple(EncoderItem(key, position, num) for key, position, num in columns)
