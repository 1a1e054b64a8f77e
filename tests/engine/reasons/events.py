"""What happens to requests, transfers and the engine, as far as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from engine.config import KVConnectorConfig, SpeculationConfig
from engine.scheduler import PauseState
from engine.scheduler.output import KVSaves
from engine.session import Session, SessionInput
from telemetry.vocabulary import EventKind, SkipReason
from tests.engine.builders import Run
from tests.engine.reasons.skips import remote_kv_lookup_pending
from tests.engine.reasons.stage import ENCODER, Elsewhere, Stage, item, stage


def plain() -> Run:
    play = stage()
    play.run.add("a", max_tokens=2)
    play.steps(2)
    return play.run


def set_aside() -> Run:
    play = stage(max_loras=1)
    play.run.add("a", adapter="first")
    play.run.add("b", adapter="second")
    play.step()
    return play.run


def evicted_and_back() -> Run:
    play = stage(num_usable_blocks=3)
    play.run.add("a", prompt=4, max_tokens=6)
    play.run.add("b", prompt=3, max_tokens=6)
    while play.run.scheduler.requests:
        play.step()
    return play.run


def two_turns() -> Run:
    play = stage()
    play.run.add("a", max_tokens=1, session=Session())
    play.step()
    play.run.scheduler.add_session_input("a", SessionInput([90], 1, 50.0))
    return play.run


def jumped() -> Run:
    play = stage()
    play.run.add("a", max_tokens=9)
    play.step()
    play.run.scheduler.append_known_tokens("a", [21])
    return play.run


def unblocked(what: SkipReason, failure: SkipReason | None = None) -> Run:
    play = stage()
    play.run.add("a", blocked_by=what)
    play.run.scheduler.unblock("a", failure)
    play.step()
    return play.run


def drafted() -> Run:
    play = stage(speculation=SpeculationConfig(num_speculative_tokens=2))
    play.run.add("a", max_tokens=9)
    play.step()
    play.run.scheduler.update_draft_token_ids({"a": [7, 8]})
    play.step()
    return play.run


def loading(**settings: object) -> Stage:
    connector = KVConnectorConfig(**settings)  # type: ignore[arg-type]
    play = stage(elsewhere=Elsewhere({"a": 8}), connector=connector)
    play.run.add("a", prompt=12, max_tokens=9)
    return play


def loaded() -> Run:
    play = loading()
    play.step(finished_recving=frozenset("a"))
    return play.run


def load_failed() -> Run:
    play = loading()
    play.step(failed_recving=frozenset("a"), finished_recving=frozenset("a"))
    return play.run


def load_timed_out() -> Run:
    play = loading(load_timeout_seconds=5.0)
    play.step()
    play.wait(5)
    play.step()
    return play.run


def saved(saves: KVSaves) -> Run:
    play = stage(connector=KVConnectorConfig())
    play.run.add("a", max_tokens=9)
    play.step(kv_saves=saves)
    return play.run


def sending(**settings: object) -> Stage:
    connector = KVConnectorConfig(**settings)  # type: ignore[arg-type]
    play = stage(elsewhere=Elsewhere(sends=True), connector=connector)
    play.run.add("a", max_tokens=1)
    play.step()
    return play


def acknowledged() -> Run:
    play = sending()
    play.step(finished_sending=frozenset("a"))
    return play.run


def ack_timed_out() -> Run:
    play = sending(ack_timeout_seconds=5.0)
    play.wait(5)
    play.step()
    return play.run


def lease_expired() -> Run:
    play = sending(lease_seconds=5.0)
    play.wait(5)
    play.step()
    return play.run


def encoded() -> Run:
    """The second item takes the place of the first, which nobody needs any more."""
    play = stage(encoder=replace(ENCODER, cache_size=8))
    for name, key in (("a", "i"), ("b", "j")):
        play.run.add(name, prompt=12, max_tokens=1, encoder_items=item(key, 0))
        play.run.to_the_end()
    return play.run


def paused(back: bool) -> Run:
    play = stage()
    play.run.scheduler.set_pause(PauseState.PAUSED_ALL)
    if back:
        play.run.scheduler.set_pause(PauseState.UNPAUSED)
    return play.run


def caches_emptied() -> Run:
    play = stage(encoder=ENCODER)
    play.run.scheduler.reset_prefix_cache()
    play.run.scheduler.reset_encoder_cache()
    return play.run


def throttled() -> Run:
    play = stage()
    play.run.add("a", max_tokens=9)
    play.steps(2)
    play.step(throttle=True)
    return play.run


_COMPILING, _FAILED = SkipReason.grammar_compiling, SkipReason.grammar_failed

SCENARIOS: dict[EventKind, Callable[[], Run]] = {
    EventKind.arrived: plain,
    EventKind.admitted: plain,
    EventKind.first_token: plain,
    EventKind.finished: plain,
    EventKind.skipped: set_aside,
    EventKind.preempted: evicted_and_back,
    EventKind.resumed: evicted_and_back,
    EventKind.caught_up: evicted_and_back,
    EventKind.turn_finished: two_turns,
    EventKind.input_added: two_turns,
    EventKind.tokens_appended: jumped,
    EventKind.drafts_proposed: drafted,
    EventKind.drafts_verified: drafted,
    EventKind.unblocked: partial(unblocked, SkipReason.streaming_input),
    EventKind.grammar_started: partial(unblocked, _COMPILING),
    EventKind.grammar_ready: partial(unblocked, _COMPILING),
    EventKind.grammar_failed: partial(unblocked, _COMPILING, _FAILED),
    EventKind.lookup_pending: remote_kv_lookup_pending,
    EventKind.lookup_answered: loaded,
    EventKind.load_started: loaded,
    EventKind.load_finished: loaded,
    EventKind.load_failed: load_failed,
    EventKind.load_timed_out: load_timed_out,
    EventKind.save_started: partial(saved, KVSaves(started=frozenset("a"))),
    EventKind.save_finished: partial(saved, KVSaves(finished=frozenset("a"))),
    EventKind.save_failed: partial(saved, KVSaves(failed=frozenset("a"))),
    EventKind.ack_wait_started: acknowledged,
    EventKind.ack_received: acknowledged,
    EventKind.ack_timed_out: ack_timed_out,
    EventKind.lease_expired: lease_expired,
    EventKind.item_scheduled: encoded,
    EventKind.item_evicted: encoded,
    EventKind.paused: partial(paused, back=False),
    EventKind.unpaused: partial(paused, back=True),
    EventKind.prefix_cache_reset: caches_emptied,
    EventKind.encoder_cache_reset: caches_emptied,
    EventKind.throttled: throttled,
}

MADE_ELSEWHERE: dict[EventKind, str] = {
    EventKind.client_gone: "engine/core.py",
    EventKind.engine_starting: "engine/identity.py",
    EventKind.engine_started: "engine/identity.py",
    EventKind.engine_failed: "engine/identity.py",
    EventKind.engine_stopped: "engine/identity.py",
    EventKind.engine_died: "telemetry/collector/derive.py",
    EventKind.records_dropped: "telemetry/collector/derive.py",
}
"""What the scheduler cannot see happen, and the file that writes it down."""

MADE_BY_NOBODY_HERE: dict[EventKind, str] = {
    EventKind.load_queued: "a load starts where it is decided; other engines queue it first",
    EventKind.config_changed: "no setting of this engine can be changed while it runs",
    EventKind.recorder_degraded: "this recorder gives nothing up: what does not fit is counted",
}
"""Words for logs of other engines, and why this one has no use for them."""
