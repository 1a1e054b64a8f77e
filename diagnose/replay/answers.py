"""Connectors that answer as they did when a run was recorded."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from diagnose.replay.rows import RunRows
from engine.request import Request
from engine.scheduler.load_journal import ENCODER_CONNECTOR
from telemetry.vocabulary import EventKind


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was said from a step on: KV up to the token `reach`, or None: not known yet."""

    step: int
    reach: int | None
    is_async: bool


class RecordedConnector:
    """A KV connector that says again, step by step, what it said then.

    `step` is the step that is being decided.
    """

    def __init__(self, rows: RunRows) -> None:
        self.step = 0
        self._answers: dict[int, list[_Answer]] = defaultdict(list)
        self._sending: set[int] = set()
        for row in rows.events:
            match row["kind"]:
                case EventKind.lookup_pending:
                    self._answers[row["request"]].append(_Answer(row["step"], None, False))
                case EventKind.lookup_answered:
                    num_tokens = row["num_tokens"]
                    reach = num_tokens and row["num_hit_tokens"] + num_tokens
                    answer = _Answer(row["step"], reach, bool(row["is_async"]))
                    self._answers[row["request"]].append(answer)
                case EventKind.ack_wait_started:
                    self._sending.add(row["request"])

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        answer = self._answer(request)
        if answer is None:
            return 0
        return None if answer.reach is None else max(0, answer.reach - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        answer = self._answer(request)
        return answer is not None and answer.is_async

    def delays_free(self, request: Request) -> bool:
        return request.number in self._sending

    def _answer(self, request: Request) -> _Answer | None:
        answers = self._answers.get(request.number, ())
        return next((a for a in reversed(answers) if a.step <= self.step), None)


class RecordedEncoderConnector:
    """An encoder connector that has what was sent for in the step that is being decided."""

    def __init__(self, rows: RunRows) -> None:
        self.step = 0
        self._sent_for: dict[int, set[str]] = defaultdict(set)
        for row in rows.events:
            if row["kind"] == EventKind.load_started and row["connector"] == ENCODER_CONNECTOR:
                self._sent_for[row["step"]].add(row["text"])

    def __bool__(self) -> bool:
        return bool(self._sent_for)

    def has(self, key: str) -> bool:
        return key in self._sent_for.get(self.step, ())
