"""Allocations are listened to only while the answer matters, and other people's hooks are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from telemetry.sources.vllm.allocations import AllocationWatch
from telemetry.sources.vllm.guard import Guard
from telemetry.sources.vllm.lives import Lives

RUNNING, WAITING = object(), object()


class FullAttentionManager:
    block_size = 16


class Manager:
    """A KV cache manager that says no when it has nothing free."""

    def __init__(self) -> None:
        self.num_free = 1000
        self.coordinator = SimpleNamespace(single_type_managers=[FullAttentionManager()])
        self.block_pool = SimpleNamespace(get_num_free_blocks=lambda: self.num_free)

    def allocate_slots(self, request: Any, num_new_tokens: int) -> str | None:
        return "blocks" if self.num_free else None


class Stage:
    """A scheduler with one manager, watched."""

    def __init__(self) -> None:
        self.manager = Manager()
        scheduler = SimpleNamespace(
            kv_cache_manager=self.manager,
            lora_config=None,
            num_lookahead_tokens=0,
            num_spec_tokens=0,
            max_num_scheduled_tokens=160,
            running=[object(), object()],
        )
        self.lives = Lives()
        self.lives.by_id = {"a": None, "b": None}  # type: ignore[dict-item]
        self.heard: list[Any] = []
        self.scan = SimpleNamespace(hears_all=False)
        guard = Guard(lambda what: None, lambda what: None)
        self.watch = AllocationWatch(scheduler, self.lives, RUNNING, self.scan, self._hear, guard)  # type: ignore[arg-type]

    def _hear(self, blocks: Any, request: Any, num_new_tokens: int) -> None:
        self.heard.append((blocks, request.status))

    def ask(self, status: object) -> str | None:
        return self.manager.allocate_slots(SimpleNamespace(status=status), 1)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_with_plenty_of_blocks_running_requests_are_not_listened_to(stage: Stage) -> None:
    stage.watch.begin()
    assert stage.ask(RUNNING) == "blocks"
    assert vars(stage.manager)["allocate_slots"] == stage.watch._plain


def test_an_admission_is_heard_of(stage: Stage) -> None:
    stage.watch.begin()
    stage.watch.turn_on()
    stage.ask(WAITING)
    assert stage.heard == [("blocks", WAITING)]


def test_a_refusal_is_heard_of(stage: Stage) -> None:
    stage.manager.num_free = 0
    stage.watch.begin()
    assert stage.ask(RUNNING) is None
    assert stage.heard == [(None, RUNNING)]


def test_what_a_running_request_gets_is_heard_of_only_where_it_matters(stage: Stage) -> None:
    stage.manager.num_free = 2
    stage.watch.begin()
    stage.ask(RUNNING)
    stage.scan.hears_all = True
    stage.ask(RUNNING)
    assert stage.heard == [("blocks", RUNNING)]


def test_who_computes_a_prompt_may_ask_for_many_blocks(stage: Stage) -> None:
    stage.manager.num_free = 5
    stage.watch.begin()
    assert not stage.watch.is_on
    stage.lives.computing = {"a": None}  # type: ignore[dict-item]
    stage.watch.begin()
    assert stage.watch.is_on


def test_a_hook_of_somebody_else_stays(stage: Stage) -> None:
    stage.manager.allocate_slots = theirs = lambda *_: "theirs"  # type: ignore[method-assign]
    stage.watch.begin()
    stage.watch.turn_on()
    assert stage.manager.allocate_slots is theirs
