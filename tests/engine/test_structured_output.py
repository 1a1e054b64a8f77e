"""Structured output: which requests a step's bitmask is for, and when it can be filled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config import SpeculationConfig
from tests.conformance import RefusingGrammar
from tests.engine.builders import Run, config
from tests.engine.in_flight import InFlight


def test_without_a_grammar_nothing_is_said() -> None:
    run = Run(config())
    run.add("a")
    output = run.step()
    assert not output.has_structured_output_requests
    assert output.structured_output_rows == {}


def test_a_synchronous_step_is_never_pending() -> None:
    run = Run(config())
    run.add("plain", max_tokens=5)
    run.add("a", max_tokens=5, grammar=RefusingGrammar())
    for _ in range(4):
        output = run.step()
        assert output.has_structured_output_requests
        assert output.structured_output_rows == {"a": 1}
        assert not output.pending_structured_output_tokens


def test_a_chunk_needs_no_bitmask() -> None:
    run = Run(config(max_num_batched_tokens=4))
    run.add("a", prompt=6, grammar=RefusingGrammar())
    first, second = run.step(), run.step()
    assert first.has_structured_output_requests
    assert (first.structured_output_rows, second.structured_output_rows) == ({}, {"a": 1})


def test_each_draft_needs_a_row() -> None:
    run = Run(config())
    run.add("a", max_tokens=9, grammar=RefusingGrammar())
    run.step()
    run.scheduler.update_draft_token_ids({"a": [7, 8, 3, 9]})
    output = run.scheduler.schedule()
    assert output.scheduled_spec_decode_tokens == {"a": [7, 8]}
    assert output.structured_output_rows == {"a": 3}


def test_an_asynchronous_step_is_pending_while_the_last_token_is_on_its_way() -> None:
    run = Run(config(async_scheduling=True))
    run.add("a", max_tokens=9, grammar=RefusingGrammar())
    flight = InFlight(run, 2)
    assert not flight.schedule().pending_structured_output_tokens
    assert flight.schedule().pending_structured_output_tokens
    flight.take_in()
    flight.take_in()
    assert not flight.schedule().pending_structured_output_tokens


def test_tokens_on_their_way_for_others_do_not_matter() -> None:
    run = Run(config(async_scheduling=True))
    run.add("plain", max_tokens=9)
    flight = InFlight(run, 2)
    flight.schedule()
    run.add("a", max_tokens=9, grammar=RefusingGrammar())
    output = flight.schedule()
    assert output.structured_output_rows == {"a": 1}
    assert not output.pending_structured_output_tokens


@pytest.mark.parametrize("num_drafts", [0, 2])
def test_pending_is_exactly_open_placeholders(num_drafts: int) -> None:
    settings = replace(
        config(async_scheduling=True),
        speculation=SpeculationConfig(num_speculative_tokens=num_drafts),
    )
    run = Run(settings)
    request = run.add("a", max_tokens=12, grammar=RefusingGrammar())
    flight = InFlight(run, 2)
    for _ in range(6):
        is_open = request.num_output_placeholders > 0
        output = flight.schedule()
        scheduled = "a" in output.num_scheduled_tokens
        assert output.pending_structured_output_tokens is (is_open and scheduled)
        if len(flight.outputs) > 1:
            flight.take_in()
