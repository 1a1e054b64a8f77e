"""The texts of a recorded stretch, made up so that they share what the recorded ones did."""

from __future__ import annotations

from typing import Any

import numpy as np

from diagnose.reading import QueryLog, Scope, read_rows
from diagnose.replay.rows import Row, RunRows
from diagnose.replay.texts import texts_of
from diagnose.replay.tokens import MadeUpTokens
from diagnose.replay.workload import WorkRequest
from engine.config import EngineConfig

NAMED = 4096
"""Requests that one statement names; its length is limited."""

_PREFIXES = """
SELECT request, prefix_request FROM request_arrivals
WHERE engine = {engine} AND ts <= {end} AND prefix_request IS NOT NULL
UNION ALL
SELECT request, prefix_request FROM request_finishes
WHERE engine = {engine} AND prefix_request IS NOT NULL
"""
_ARRIVALS = """
SELECT request, seq, num_prompt_tokens, prefix_request, num_shared_tokens
FROM request_arrivals WHERE engine = {engine} AND request IN ({requests}) ORDER BY seq
"""
_FINISHES = """
SELECT request, seq, reason, num_steps_in_flight, num_output_tokens, prefix_request,
  num_shared_tokens
FROM request_finishes WHERE engine = {engine} AND request IN ({requests}) ORDER BY seq
"""


def read_tokens(
    log: QueryLog, scope: Scope, config: EngineConfig, works: list[WorkRequest]
) -> MadeUpTokens:
    """Returns made-up texts of the requests, which share what the recorded ones did."""
    needed = _closure(log, scope, np.array([work.number for work in works], dtype=np.int64))
    rows = RunRows(
        settings="",
        arrivals=_rows_of(log, _ARRIVALS, scope.engine, needed),
        finishes=_rows_of(log, _FINISHES, scope.engine, needed),
        inputs=[],
        events=[],
        steps=[],
    )
    tokens, _ = texts_of(rows, config.cache.hash_block_size)
    return tokens


def _rows_of(log: QueryLog, template: str, engine: int, requests: list[int]) -> list[Row]:
    """Returns the rows of some requests; a statement names so many of them at most."""
    rows: list[Row] = []
    for begin in range(0, len(requests), NAMED):
        named = ", ".join(map(str, requests[begin : begin + NAMED]))
        rows += read_rows(log, template.format(engine=engine, requests=named))
    return rows


def _closure(log: QueryLog, scope: Scope, numbers: Any) -> list[int]:
    """Returns the requests, and all that they share a prefix with at some remove."""
    table = log.query(scope.fill(_PREFIXES))
    request = table.column("request").to_numpy().astype(np.int64)
    prefix = table.column("prefix_request").to_numpy().astype(np.int64)
    size = int(max([*numbers, *request, *prefix], default=-1)) + 1
    is_needed = np.zeros(size, dtype=bool)
    is_needed[numbers] = True
    while True:
        num_before = int(is_needed.sum())
        is_needed[prefix[is_needed[request]]] = True
        if int(is_needed.sum()) == num_before:
            return [int(number) for number in np.flatnonzero(is_needed)]
