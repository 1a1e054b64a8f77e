"""All that reached a recorded scheduler, read from its log."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.reading import QueryLog
from diagnose.replay.answers import RecordedConnector, RecordedEncoderConnector
from diagnose.replay.calls import Call
from diagnose.replay.order import calls_of
from diagnose.replay.rows import Row, read_run
from diagnose.replay.settings import config_from
from diagnose.replay.texts import Ends, texts_of
from diagnose.replay.tokens import MadeUpTokens
from engine.config import EngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInputs:
    """What a scheduler was given: its settings, requests and their texts, answers, calls.

    `arrivals` are rows of `request_arrivals`, by request; `inputs` are rows of `session_inputs`, by
    request and number of the text that they begin.
    """

    config: EngineConfig
    arrivals: dict[int, Row]
    inputs: dict[tuple[int, int], Row]
    tokens: MadeUpTokens
    ends: Ends
    connector: RecordedConnector
    encoder_connector: RecordedEncoderConnector
    calls: list[Call]


def read_inputs(log: QueryLog, engine: int) -> RunInputs:
    """Returns the inputs of one engine's scheduler.

    Raises:
        ReplayError: the log lacks the engine's settings, or some of its steps.
        ConfigError: a setting cannot be used by this version.
    """
    rows = read_run(log, engine)
    config = config_from(rows.settings)
    tokens, ends = texts_of(rows, config.cache.hash_block_size)
    return RunInputs(
        config=config,
        arrivals={row["request"]: row for row in rows.arrivals},
        inputs=_numbered(rows.inputs),
        tokens=tokens,
        ends=ends,
        connector=RecordedConnector(rows),
        encoder_connector=RecordedEncoderConnector(rows),
        calls=list(calls_of(rows)),
    )


def _numbered(inputs: list[Row]) -> dict[tuple[int, int], Row]:
    """Returns the inputs of sessions by request and number of the text, from 1."""
    found: dict[tuple[int, int], Row] = {}
    num_texts: dict[int, int] = {}
    for row in inputs:
        request = row["request"]
        num_texts[request] = num_texts.get(request, 0) + 1
        found[request, num_texts[request]] = row
    return found
