"""The texts of a recorded run: how long each was, what it shared, where an end token ended it."""

from __future__ import annotations

from collections import defaultdict

from diagnose.replay.rows import Row, RunRows
from diagnose.replay.tokens import MadeUpTokens
from telemetry.vocabulary import EventKind, FinishReason

Ends = dict[int, list[tuple[int, int]]]
"""By request: number of the text, and position in it, of each token that ended a turn or all."""


def texts_of(rows: RunRows, block_size: int) -> tuple[MadeUpTokens, Ends]:
    """Returns made-up tokens for all texts of a run, and where the end tokens are among them."""
    tokens = MadeUpTokens(block_size)
    prompts: dict[int, list[int]] = defaultdict(list)
    ends: Ends = defaultdict(list)
    num_turns: dict[int, int] = defaultdict(int)
    told = [*rows.arrivals, *rows.inputs, *rows.finishes]
    told += [row for row in rows.events if row["kind"] == EventKind.turn_finished]
    for row in sorted(told, key=lambda row: int(row["seq"])):
        request: int = row["request"]
        if "num_prompt_tokens" in row:
            num_prompt = row["num_prompt_tokens"]
            _add(tokens, row, num_prompt, num_prompt - row.get("num_input_tokens", num_prompt))
            prompts[request].append(num_prompt)
            continue
        has_ended = "num_output_tokens" in row
        num_outputs = row["num_output_tokens" if has_ended else "num_tokens"]
        end = prompts[request][-1] + num_outputs
        if row["reason"] == FinishReason.stop and row["num_steps_in_flight"] is None:
            ends[request].append((num_turns[request], end - 1))
        num_turns[request] += 1
        if has_ended:
            _add(tokens, row, end, end)
    return tokens, ends


def _add(tokens: MadeUpTokens, row: Row, num_tokens: int, num_kept: int) -> None:
    tokens.add(
        row["request"],
        num_tokens,
        num_kept=num_kept,
        prefix_request=row["prefix_request"],
        num_shared_tokens=row["num_shared_tokens"] or 0,
    )
