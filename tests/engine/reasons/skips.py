"""Who is set aside while the scan goes on."""

from __future__ import annotations

from collections.abc import Callable

from engine.config import KVConnectorConfig
from engine.session import Session
from telemetry.vocabulary import SkipReason
from tests.engine.builders import Run, config
from tests.engine.in_flight import InFlight
from tests.engine.reasons.stage import ENCODER, Elsewhere, item, stage


def grammar_compiling() -> Run:
    play = stage()
    play.run.add("a", blocked_by=SkipReason.grammar_compiling)
    play.step()
    return play.run


def grammar_failed() -> Run:
    play = stage()
    play.run.add("a", blocked_by=SkipReason.grammar_compiling)
    play.run.scheduler.unblock("a", SkipReason.grammar_failed)
    play.step()
    return play.run


def load_started() -> Run:
    play = stage(elsewhere=Elsewhere({"a": 8}), connector=KVConnectorConfig())
    play.run.add("a", prompt=12)
    play.step()
    return play.run


def remote_kv_loading() -> Run:
    play = stage(elsewhere=Elsewhere({"a": 8}), connector=KVConnectorConfig())
    play.run.add("a", prompt=12)
    play.steps(2)
    return play.run


def remote_kv_lookup_pending() -> Run:
    play = stage(elsewhere=Elsewhere({"a": None}), connector=KVConnectorConfig())
    play.run.add("a", prompt=12)
    play.step()
    return play.run


def lora_slots() -> Run:
    play = stage(max_loras=1)
    play.run.add("a", adapter="first")
    play.run.add("b", adapter="second")
    play.step()
    return play.run


def streaming_input() -> Run:
    play = stage()
    play.run.add("a", max_tokens=1, session=Session())
    play.step()
    return play.run


def stale_output() -> Run:
    """Three steps in flight: the victim's token comes two steps after its eviction.

    With two it cannot: a step that preempts admits nobody, and the next follows the token.
    """
    run = Run(config(pp_size=3, num_usable_blocks=2))
    run.add("a", prompt=4, max_tokens=2)
    flight = InFlight(run, 3)
    flight.schedule()
    flight.schedule()
    run.add("b", prompt=4, max_tokens=2)
    flight.to_the_end()
    return run


def encoder_transfer() -> Run:
    play = stage(elsewhere=Elsewhere(keys=frozenset("i")), encoder=ENCODER)
    play.run.add("a", prompt=12, encoder_items=item("i", 0))
    play.step()
    return play.run


SCENARIOS: dict[SkipReason, Callable[[], Run]] = {
    SkipReason.grammar_compiling: grammar_compiling,
    SkipReason.grammar_failed: grammar_failed,
    SkipReason.remote_kv_loading: remote_kv_loading,
    SkipReason.remote_kv_lookup_pending: remote_kv_lookup_pending,
    SkipReason.load_started: load_started,
    SkipReason.lora_slots: lora_slots,
    SkipReason.streaming_input: streaming_input,
    SkipReason.stale_output: stale_output,
    SkipReason.encoder_transfer: encoder_transfer,
}
