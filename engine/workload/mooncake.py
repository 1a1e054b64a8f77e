"""Mooncake's traces: arrival time, lengths, and hashes that say which prefixes are shared.

Source: the FAST'25 traces of the Mooncake project: one JSON object a line with `timestamp` (ms),
`input_length`, `output_length` and `hash_ids`, one id a block of 512 prompt tokens. Equal ids mean
equal tokens, so a prompt is rebuilt by drawing each block from its id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from engine.workload.plan import PlannedRequest, PromptPart, WorkloadError

BLOCK_TOKENS = 512
CONTENT_KEY = 2
"""Keeps these prompts apart from those of other readers under the same seed."""


def read_mooncake(lines: Iterable[str], *, name: str, scale: int = 1) -> list[PlannedRequest]:
    """Returns the trace's requests, lengths and blocks divided by `scale` (1 token at least).

    Raises:
        WorkloadError: a line is not what the format promises; the message names it.
    """
    if scale > BLOCK_TOKENS:
        raise WorkloadError(
            f"--scale is {scale}: a block of this trace has {BLOCK_TOKENS} tokens, "
            f"so {BLOCK_TOKENS} is the most"
        )
    plan = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            plan.append(_read_line(line, f"{name}, line {number}", scale))
    return plan


def _read_line(line: str, where: str, scale: int) -> PlannedRequest:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise WorkloadError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise WorkloadError(f"{where}: expected a JSON object, found {line.strip()[:60]!r}")
    timestamp = _number(row, "timestamp", where)
    num_prompt_tokens = max(1, int(_number(row, "input_length", where)) // scale)
    num_output_tokens = int(_number(row, "output_length", where)) // scale
    return PlannedRequest(
        offset_seconds=timestamp / 1000,
        prompt=_prompt(_hash_ids(row, where), num_prompt_tokens, scale, where),
        max_tokens=max(1, num_output_tokens),
    )


def _number(row: Mapping[str, Any], key: str, where: str) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise WorkloadError(f"{where}: {key} is {value!r}, expected a number from 0 up")
    return value


def _hash_ids(row: Mapping[str, Any], where: str) -> list[int]:
    hash_ids = row.get("hash_ids")
    if not isinstance(hash_ids, list) or not all(
        isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in hash_ids
    ):
        raise WorkloadError(f"{where}: hash_ids must be a list of whole numbers from 0 up")
    return hash_ids


def _prompt(hash_ids: list[int], num_tokens: int, scale: int, where: str) -> tuple[PromptPart, ...]:
    """Returns the prompt block by block; a scaled block ends where 512 tokens of old would."""
    parts = []
    start = 0
    for index, hash_id in enumerate(hash_ids):
        end = min(num_tokens, -(-(index + 1) * BLOCK_TOKENS // scale))
        if end > start:
            parts.append(PromptPart((CONTENT_KEY, hash_id), end - start))
        start = max(start, end)
    if start < num_tokens:
        raise WorkloadError(
            f"{where}: {len(hash_ids)} hash ids stand for {start} tokens "
            f"but the prompt has {num_tokens}"
        )
    return tuple(parts)
