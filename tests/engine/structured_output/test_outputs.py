"""What comes out keeps to what was asked for, and is what a plain loop would say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import jsonschema
import pytest

from engine.config import EngineConfig
from engine.sampling import SamplingParams, StructuredOutputsParams
from telemetry.records import RequestAdmitted
from telemetry.vocabulary import EventKind, FinishReason
from tests.engine.structured_output.builders import (
    Engine,
    Told,
    config,
    reference_tokens,
    wanted,
)
from tests.engine.structured_output.conftest import Small

SCHEMAS = {
    "flat": {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": -20, "maximum": 120},
            "colour": {"enum": ["red", "blue", "grün"]},
            "name": {"type": "string", "pattern": '^[a-zé"\\\\]{1,5}$'},
        },
        "required": ["count", "colour", "name"],
        "additionalProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {
            "flags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
            "at": {
                "type": "object",
                "properties": {"x": {"type": "number", "minimum": 0, "maximum": 1}},
                "required": ["x"],
            },
        },
        "required": ["flags", "at"],
    },
    "references": {
        "$defs": {"leaf": {"anyOf": [{"type": "null"}, {"const": ["a", 1]}]}},
        "type": "array",
        "items": {"$ref": "#/$defs/leaf"},
        "minItems": 2,
        "maxItems": 2,
    },
    "optional": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}, "c": {"const": "c"}},
        "required": ["b"],
    },
}
REGEX = r"[a-f]{2,4}-\d{1,3}(x|yz)?"
CHOICES = ['yes\n"or" so', "no", "ÿ\\"]
GRAMMAR = 'root ::= "(" item ("," item)? ")"\nitem ::= [0-9] | "tr" "ue"'

WISHES: Sequence[StructuredOutputsParams] = (
    *(wanted("json", schema) for schema in SCHEMAS.values()),
    *(wanted("regex", REGEX), wanted("choice", CHOICES), wanted("grammar", GRAMMAR)),
)


def prompts(small: Small, count: int) -> list[list[int]]:
    """Returns prompts of which every third begins like another."""
    beginning = "The quick brown fox jumps over the lazy dog. "
    texts = [f"{beginning if n % 3 else ''}Say {n}: " for n in range(count)]
    return [small.tokenizer.encode(text) for text in texts]


def requests(small: Small) -> dict[str, tuple[list[int], SamplingParams]]:
    """Returns each wish greedily and drawn, among requests without a wish."""
    each = [(wish, n) for n in range(2) for wish in (*WISHES, None)]
    return {
        f"r{i}": (
            prompt,
            SamplingParams(
                max_tokens=300 if wish else 40,
                temperature=float(n),
                seed=i,
                structured_outputs=wish,
            ),
        )
        for i, (prompt, (wish, n)) in enumerate(zip(prompts(small, len(each)), each, strict=True))
    }


def run(small: Small, settings: EngineConfig | None = None) -> tuple[dict[str, Told], Engine]:
    engine = Engine(small.model, small.compiler, settings)
    for i, (name, (prompt, sampling)) in enumerate(requests(small).items()):
        engine.add(name, prompt, sampling, priority=i % 3)
    return engine.run(), engine


@pytest.fixture(scope="module")
def told(small: Small) -> dict[str, Told]:
    """What an engine with room for all of them says."""
    return run(small)[0]


def assert_kept(wish: StructuredOutputsParams, text: str) -> None:
    match wish.kind:
        case "json":
            jsonschema.validate(json.loads(text), json.loads(wish.spec))
        case "regex":
            assert re.fullmatch(wish.spec, text)
        case "choice":
            assert text in CHOICES
        case "grammar":
            assert re.fullmatch(r"\((\d|true)(,(\d|true))?\)", text)
        case "json_object":
            raise AssertionError("its length has no limit")


def test_every_output_keeps_to_its_wish(small: Small, told: dict[str, Told]) -> None:
    for name, (_, sampling) in requests(small).items():
        if sampling.structured_outputs is not None:
            assert told[name].reason is FinishReason.stop
            assert_kept(sampling.structured_outputs, small.tokenizer.decode(told[name].token_ids))


def test_greedy_outputs_are_a_plain_loops(small: Small, told: dict[str, Told]) -> None:
    greedy = {n: r for n, r in requests(small).items() if r[1].temperature == 0}
    for name, (prompt, sampling) in greedy.items():
        if sampling.structured_outputs is not None:
            compiled = small.compiler.compile(sampling.structured_outputs)
            expected = reference_tokens(small.plain, prompt, compiled, sampling.max_tokens)
            assert told[name].token_ids == expected


def test_preemptions_anywhere_change_nothing(small: Small, told: dict[str, Told]) -> None:
    """Every few steps all who run are preempted, and lose what they had computed."""
    engine = Engine(small.model, small.compiler, config(budget=2048))
    for name, (prompt, sampling) in requests(small).items():
        engine.add(name, prompt, sampling)
    again = engine.run(
        between=lambda n: n % 5 or engine.core.scheduler.reset_prefix_cache(reset_running=True)
    )
    assert again == told
    preempted = {e.request for e in engine.recorder.events if e.kind is EventKind.preempted}
    assert len(preempted) > len(told) // 2


def test_neighbours_and_chunks_change_nothing(small: Small, told: dict[str, Told]) -> None:
    again, _ = run(small, config(budget=7, max_num_seqs=3))
    assert again == told


def test_prefix_hits_change_nothing(small: Small, told: dict[str, Told]) -> None:
    engine = Engine(small.model, small.compiler)
    for _ in range(2):
        for name, (prompt, sampling) in requests(small).items():
            engine.add(name, prompt, sampling)
        again = engine.run()
    hits = [e.num_hit_tokens for e in engine.recorder.events if isinstance(e, RequestAdmitted)]
    assert again == told
    assert not any(hits[:2])
    assert sum(map(bool, hits[len(hits) // 2 :])) >= 10


def test_strings_have_no_control_characters(small: Small) -> None:
    engine = Engine(small.model, small.compiler)
    wish = wanted("json", {"type": "string", "minLength": 3, "maxLength": 12})
    for seed, prompt in enumerate(prompts(small, 40)):
        sampling = SamplingParams(
            max_tokens=60, temperature=2.0, seed=seed, structured_outputs=wish
        )
        engine.add(f"r{seed}", prompt, sampling)
    for told in engine.run().values():
        assert isinstance(json.loads(small.tokenizer.decode(told.token_ids)), str)


def test_who_ignores_the_end_says_nothing_more(small: Small) -> None:
    engine = Engine(small.model, small.compiler)
    sampling = SamplingParams(
        max_tokens=30, ignore_eos=True, structured_outputs=wanted("regex", "ab")
    )
    engine.add("a", prompts(small, 1)[0], sampling)
    told = engine.run()["a"]
    assert small.tokenizer.decode(told.token_ids) == "ab"
    assert (told.reason, len(told.token_ids)) == (FinishReason.length, 30)


def test_special_tokens_are_no_text(small: Small) -> None:
    """A client never reads them, so a pattern that spells one is spelled out."""
    engine = Engine(small.model, small.compiler)
    sampling = SamplingParams(max_tokens=30, structured_outputs=wanted("regex", r"<\|(bos|pad)\|>"))
    engine.add("a", prompts(small, 1)[0], sampling)
    assert small.tokenizer.decode(engine.run()["a"].token_ids) in ("<|bos|>", "<|pad|>")


def test_a_penalty_cannot_push_an_output_out(small: Small) -> None:
    engine = Engine(small.model, small.compiler)
    sampling = SamplingParams(
        max_tokens=60,
        repetition_penalty=5.0,
        logit_bias=tuple((token, -100.0) for token in range(97, 123)),
        structured_outputs=wanted("regex", "(ab){20}"),
    )
    engine.add("a", prompts(small, 1)[0], sampling)
    assert small.tokenizer.decode(engine.run()["a"].token_ids) == "ab" * 20


def test_bitmask_time_is_told_apart_from_sampling(small: Small) -> None:
    engine = Engine(small.model, small.compiler)
    plain = replace(requests(small)["r0"][1], structured_outputs=None, max_tokens=4)
    engine.add("plain", prompts(small, 1)[0], plain)
    engine.run()
    assert all(step.bitmask_ns is None for step in engine.recorder.steps)
    engine.add("a", prompts(small, 1)[0], requests(small)["r5"][1])
    engine.run()
    last = [step for step in engine.recorder.steps if step.num_scheduled_tokens][-1]
    assert last.bitmask_ns is not None
    assert last.bitmask_ns > 0
    assert last.sample_ns is not None
