"""What reaches the scheduler from outside is written down with its place among the steps."""

from __future__ import annotations

import struct

from engine.encoder_cache import EncoderItem
from engine.scheduler import ModelRunnerOutput, Scheduler
from engine.session import Session, SessionInput
from telemetry.records import DraftCounts, RequestArrived, SessionInputAdded, TurnFinished
from telemetry.vocabulary import EventKind, FinishReason, SkipReason
from tests.engine.builders import Run, config


def hashes_of(run: Run) -> list[list[int]]:
    """Returns what each arrival said of its blocks: their size, then a hash a block."""
    arrivals = run.events(RequestArrived)
    told = [event.prefix_hashes for event in arrivals if isinstance(event, RequestArrived)]
    return [list(struct.unpack(f"<{len(hashes) // 8}Q", hashes or b"")) for hashes in told]


def test_an_input_says_how_many_steps_were_in_flight() -> None:
    run = Run(config(async_scheduling=True))
    run.add("a")
    first = run.scheduler.schedule()
    run.add("b")
    run.scheduler.schedule()
    run.add("c")
    run.scheduler.update_from_output(first, run.runner.execute(first))
    run.add("d")
    arrivals = [(e.step, e.num_steps_in_flight) for e in run.events(RequestArrived)]
    assert arrivals == [(0, 0), (0, 1), (1, 2), (1, 1)]


def test_an_arrival_is_told_while_a_step_is_in_flight() -> None:
    run = Run(config())
    run.scheduler.schedule()
    run.add("a")
    assert [event.request for event in run.events(RequestArrived)] == [0]


def test_equal_prefixes_have_equal_hashes_in_one_engine_and_no_other() -> None:
    run, other = Run(config()), Run(config())
    for name, length in (("a", 12), ("b", 9)):
        run.add(name, prompt=range(length))
        other.add(name, prompt=range(length))
    (size, *a), (_, *b) = hashes_of(run)
    assert (size, len(a), b) == (4, 3, a[:2])
    assert hashes_of(other)[0][1:] != a


def test_hashes_tell_apart_what_the_cache_tells_apart() -> None:
    run = Run(config())
    run.add("a", prompt=range(4))
    run.add("b", prompt=range(4), cache_salt="s")
    run.add("c", prompt=range(4), adapter="x")
    run.add("d", prompt=range(4), encoder_items=(EncoderItem("i", 0, 2),))
    assert len({hashes[1] for hashes in hashes_of(run)}) == 4


def contents_of(run: Run) -> list[list[int]]:
    """Returns what each arrival said of what is in its blocks."""
    arrivals = run.events(RequestArrived)
    told = [event.content_hashes for event in arrivals if isinstance(event, RequestArrived)]
    return [list(struct.unpack(f"<{len(hashes or b'') // 8}Q", hashes or b"")) for hashes in told]


def test_what_is_in_a_block_is_told_whatever_its_keys_and_place() -> None:
    run = Run(config())
    run.add("a", prompt=range(8))
    run.add("b", prompt=range(8), cache_salt="s")
    run.add("c", prompt=range(8), adapter="x")
    run.add("d", prompt=[50, 51, 52, 53, *range(10)])
    plain, salted, adapted, (other, *moved) = contents_of(run)
    assert plain == salted == adapted == moved
    assert other not in plain


def test_the_placeholders_of_another_image_are_another_content() -> None:
    run = Run(config())
    for name in "ab":
        run.add(name, prompt=[7] * 4, encoder_items=(EncoderItem(name, 0, 2),))
    one, other = contents_of(run)
    assert one != other


def test_nothing_is_hashed_where_nobody_records() -> None:
    scheduler = Scheduler(config())
    run = Run(config())
    run.scheduler = scheduler
    request = run.add("a", prompt=12)
    assert scheduler.journal._prefix_hashes(request) is None
    assert scheduler.journal._content_hashes(request) is None


def test_all_encoder_items_are_told_with_the_arrival() -> None:
    run = Run(config())
    items = (EncoderItem("i", 0, 2), EncoderItem("j", 4, 3), EncoderItem("i", 8, 2))
    run.add("a", prompt=12, encoder_items=items)
    (event,) = run.events(RequestArrived)
    assert isinstance(event, RequestArrived)
    assert (event.item_positions, event.item_embeds) == ([0, 4, 8], [2, 3, 2])
    first, second, third = (event.item_keys or "").split(" ")
    assert first == third != second


def test_a_turn_and_the_input_of_the_next_are_told() -> None:
    run = Run(config())
    run.add("a", prompt=6, max_tokens=3, session=Session())
    run.steps(3)
    run.scheduler.add_session_input("a", SessionInput(range(50, 55), 2, 9.0))
    (turn,) = run.events(TurnFinished)
    (piece,) = run.events(SessionInputAdded)
    assert isinstance(turn, TurnFinished)
    assert isinstance(piece, SessionInputAdded)
    assert (turn.reason, turn.num_tokens) == (FinishReason.length, 3)
    assert (piece.num_input_tokens, piece.num_prompt_tokens) == (5, 6 + 2 + 5)
    assert (piece.max_tokens, piece.arrival_time) == (2, 9.0)


def test_a_grammar_is_told_when_it_is_started_ready_or_refused() -> None:
    run = Run(config())
    run.add("a", blocked_by=SkipReason.grammar_compiling)
    run.add("b", blocked_by=SkipReason.grammar_compiling)
    run.scheduler.unblock("a")
    run.scheduler.unblock("a")
    run.scheduler.unblock("b", SkipReason.grammar_failed)
    kinds = [event.kind for event in run.recorder.events if 20 <= event.kind < 30]
    started, ready = EventKind.grammar_started, EventKind.grammar_ready
    assert kinds == [started, started, ready, EventKind.grammar_failed]


def test_drafts_are_told_with_the_step_that_they_wait_for() -> None:
    run = Run(config())
    run.add("a", max_tokens=9)
    run.step()
    run.scheduler.update_draft_token_ids({"a": [7, 7], "unknown": [7]})
    assert not run.events(DraftCounts)
    output = run.scheduler.schedule()
    run.scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids={"a": [7, 7]}))
    proposed, verified = run.events(DraftCounts)
    assert isinstance(proposed, DraftCounts)
    assert isinstance(verified, DraftCounts)
    assert (proposed.step, proposed.draft_requests, proposed.draft_counts) == (1, [0], [2])
    assert (verified.step, verified.draft_requests, verified.draft_counts) == (1, [0], [1])


def test_throttling_that_was_asked_for_in_vain_is_told_apart() -> None:
    run = Run(config())
    run.add("a", max_tokens=9)
    throttled = []
    for asked in (False, True):
        output = run.scheduler.schedule(throttle_prefills=asked)
        run.scheduler.update_from_output(output, run.runner.execute(output))
        throttled.append(run.last_step.throttled)
    assert throttled == [None, 1]
