"""Grammars are compiled beside the steps: who waits, what the record says, what goes wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models

from engine.sampling import SamplingParams, StructuredOutputsParams
from engine.structured_output.compiler import GrammarCompiler
from engine.structured_output.structured_outputs import StructuredOutputs
from telemetry.records import Event
from telemetry.vocabulary import EventKind, FinishReason, SkipReason
from tests.engine.structured_output.builders import VOCAB_SIZE, Engine, wanted
from tests.engine.structured_output.conftest import Small

GOOD, OTHER, WRONG = wanted("regex", "[ab]c"), wanted("regex", "[ab]d"), wanted("regex", "(")
PROMPT = list(range(30, 60))


class GatedCompiler(GrammarCompiler):
    """A compiler that waits in front of some grammars until it is let through."""

    def __init__(self, small: Small, *held: StructuredOutputsParams) -> None:
        super().__init__(
            small.directory, vocab_size=VOCAB_SIZE, eos_token_ids=small.model.eos_token_ids
        )
        self.gate = threading.Event()
        self.compiled: list[StructuredOutputsParams] = []
        self._held = held

    def compile(self, wanted: StructuredOutputsParams) -> Any:
        self.compiled.append(wanted)
        if wanted in self._held:
            self.gate.wait()
        return super().compile(wanted)


@pytest.fixture
def gated(small: Small) -> Iterator[GatedCompiler]:
    """Waits in front of GOOD."""
    compiler = GatedCompiler(small, GOOD)
    yield compiler
    compiler.gate.set()


def constrained(wish: StructuredOutputsParams, max_tokens: int = 20) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, structured_outputs=wish)


def of(engine: Engine, name: str, kind: EventKind) -> list[Event]:
    number = list(engine.told).index(name)
    return [e for e in engine.recorder.events if e.kind is kind and e.request == number]


def test_others_go_on_while_a_grammar_is_compiled(small: Small, gated: GatedCompiler) -> None:
    engine = Engine(small.model, gated)
    engine.add("waits", PROMPT, constrained(GOOD))
    engine.add("other", PROMPT, SamplingParams(max_tokens=60, ignore_eos=True))
    for _ in range(50):
        engine.step()
    assert (len(engine.told["waits"].token_ids), len(engine.told["other"].token_ids)) == (0, 50)
    gated.gate.set()
    engine.run()
    assert small.tokenizer.decode(engine.told["waits"].token_ids) in ("ac", "bc")


def test_the_wait_is_in_the_record_with_its_reason_and_times(
    small: Small, gated: GatedCompiler
) -> None:
    engine = Engine(small.model, gated)
    engine.add("waits", PROMPT, constrained(GOOD))
    engine.add("other", PROMPT, SamplingParams(max_tokens=40, ignore_eos=True))
    while engine.told["other"].reason is None:
        engine.step()
    gated.gate.set()
    engine.run()
    [started] = of(engine, "waits", EventKind.grammar_started)
    [skipped] = of(engine, "waits", EventKind.skipped)
    [other_done] = of(engine, "other", EventKind.finished)
    [ready] = of(engine, "waits", EventKind.grammar_ready)
    [admitted] = of(engine, "waits", EventKind.admitted)
    assert skipped.reason is SkipReason.grammar_compiling
    assert started.ts <= skipped.ts < other_done.ts < ready.ts <= admitted.ts


def test_a_grammar_that_is_there_costs_no_wait(small: Small) -> None:
    engine = Engine(small.model, small.compiler)
    engine.add("first", PROMPT, constrained(GOOD))
    engine.run()
    engine.add("second", PROMPT, constrained(GOOD))
    engine.run()
    assert of(engine, "first", EventKind.grammar_started)
    assert not of(engine, "second", EventKind.grammar_started)
    assert engine.told["first"] == engine.told["second"]


def test_requests_with_one_wish_wait_for_one_compilation(
    small: Small, gated: GatedCompiler
) -> None:
    engine = Engine(small.model, gated)
    for name in "abc":
        engine.add(name, PROMPT, constrained(GOOD))
    engine.step()
    gated.gate.set()
    engine.run()
    assert gated.compiled == [GOOD]
    assert {told.reason for told in engine.told.values()} == {FinishReason.stop}


def test_a_wrong_grammar_ends_its_request_and_nobody_elses(small: Small) -> None:
    engine = Engine(small.model, small.compiler)
    engine.add("wrong", PROMPT, constrained(WRONG))
    engine.add("good", PROMPT, constrained(GOOD))
    engine.run()
    wrong = engine.told["wrong"]
    assert (wrong.reason, wrong.blames_client, wrong.token_ids) == (FinishReason.error, True, [])
    assert wrong.error == (
        "the regex cannot be compiled: Regex parsing error at position 2: "
        "The parenthesis is not closed."
    )
    assert len(of(engine, "wrong", EventKind.grammar_failed)) == 1
    [finished] = of(engine, "wrong", EventKind.finished)
    assert finished.reason is FinishReason.error
    assert engine.told["good"].reason is FinishReason.stop


def test_what_takes_too_long_fails_and_holds_up_nobody(small: Small, gated: GatedCompiler) -> None:
    engine = Engine(small.model, gated, limit_seconds=0.0)
    engine.add("slow", PROMPT, constrained(GOOD))
    engine.run()
    assert engine.told["slow"].reason is FinishReason.error
    assert "takes more than 0 s to compile" in (engine.told["slow"].error or "")
    engine.structured_outputs.compile_thread.limit_seconds = 100.0
    engine.add("other", PROMPT, constrained(OTHER))
    engine.run()
    assert engine.told["other"].reason is FinishReason.stop


def test_who_is_aborted_while_it_waits_leaves_nothing(small: Small, gated: GatedCompiler) -> None:
    engine = Engine(small.model, gated)
    engine.add("gone", PROMPT, constrained(GOOD))
    engine.step()
    engine.core.abort(["gone"], FinishReason.abort_client)
    assert not engine.structured_outputs.is_compiling
    engine.add("again", PROMPT, constrained(GOOD))
    gated.gate.set()
    engine.run()
    assert engine.told["again"].reason is FinishReason.stop
    assert len(of(engine, "gone", EventKind.finished)) == 1
    assert gated.compiled == [GOOD]


def test_a_driver_that_waits_is_woken(small: Small) -> None:
    woken = threading.Event()
    outputs = StructuredOutputs(small.compiler, on_compiled=woken.set)
    _, is_ready = outputs.grammar_for("a", GOOD)
    assert not is_ready
    assert woken.wait(30)
    assert outputs.take_compiled() == {"a": None}


def test_the_cache_keeps_what_was_used_last(small: Small) -> None:
    size = small.compiler.compile(GOOD).memory_size_bytes
    outputs = StructuredOutputs(small.compiler, cache_bytes=2 * size + size // 2)
    third = wanted("regex", "[ab]e")
    for wish in (GOOD, OTHER, GOOD, third):
        _, is_ready = outputs.grammar_for("a", wish)
        while not is_ready and outputs.is_compiling:
            outputs.take_compiled(1.0)
    assert [outputs.cache.get(wish) is not None for wish in (GOOD, OTHER, third)] == [
        *(True, False, True)
    ]
    assert outputs.cache.num_bytes <= outputs.cache.max_bytes


def test_a_text_that_the_vocabulary_cannot_spell_ends_the_request(
    small: Small, tmp_path: Path
) -> None:
    """It knows "a" and no other character: no token is let through behind it."""
    HFTokenizer(models.WordLevel({"a": 0}, "a")).save(str(tmp_path / "tokenizer.json"))
    compiler = GrammarCompiler(
        tmp_path, vocab_size=VOCAB_SIZE, eos_token_ids=small.model.eos_token_ids
    )
    engine = Engine(small.model, compiler)
    engine.add("a", PROMPT, constrained(wanted("choice", ["ab", "ac"])))
    engine.add("other", PROMPT, SamplingParams(max_tokens=9, ignore_eos=True))
    engine.run()
    told = engine.told["a"]
    assert (told.reason, told.blames_client, told.token_ids) == (FinishReason.error, True, [0])
    assert "no token of this model's vocabulary" in (told.error or "")
    assert engine.told["other"].reason is FinishReason.length


@pytest.mark.parametrize(
    ("compiler", "complaint"),
    [
        ("no_model", "this model has no tokenizer.json"),
        ("no_end", "this model names none"),
    ],
)
def test_an_engine_without_the_means_refuses(small: Small, compiler: str, complaint: str) -> None:
    directory = None if compiler == "no_model" else small.directory
    engine = Engine(
        small.model, GrammarCompiler(directory, vocab_size=VOCAB_SIZE, eos_token_ids=())
    )
    engine.add("a", PROMPT, constrained(GOOD))
    assert engine.told["a"].reason is FinishReason.refused
    assert complaint in (engine.told["a"].error or "")
    assert not engine.core.has_work()


def test_a_large_schema_is_compiled_while_steps_go_on(small: Small) -> None:
    names = [f"field{i}" for i in range(200)]
    choice = {"enum": [f"value {i}" for i in range(50)]}
    schema = {"type": "object", "properties": dict.fromkeys(names, choice), "required": names}
    engine = Engine(small.model, small.compiler)
    engine.add("large", PROMPT, constrained(wanted("json", json.dumps(schema)), max_tokens=4))
    engine.add("other", PROMPT, SamplingParams(max_tokens=900, ignore_eos=True))
    while not of(engine, "large", EventKind.grammar_ready):
        engine.step()
    assert len(engine.told["other"].token_ids) > 0
    engine.core.abort_all(FinishReason.abort_api)
