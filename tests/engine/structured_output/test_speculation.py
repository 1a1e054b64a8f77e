"""Constrained outputs with drafts: the grammar cuts them, and the text stays what it was."""

from __future__ import annotations

import numpy as np
import pytest

from engine.config import EngineConfig, SpeculationConfig
from engine.runner.drafter import Drafter
from engine.runner.model_drafter import ModelDrafter
from engine.runner.model_runner import ModelRunner
from engine.runner.ngram_drafter import NgramDrafter
from engine.structured_output.grammar import RequestGrammar
from tests.engine.structured_output.builders import (
    EOS,
    VOCAB_SIZE,
    Engine,
    Told,
    config,
    token_id,
    wanted,
)
from tests.engine.structured_output.conftest import Small
from tests.engine.structured_output.test_outputs import requests, run

NUM_DRAFTS = 3


def drafting(small: Small, who: str, num_blocks: int) -> EngineConfig:
    has_kv = who == "model"
    return config(
        num_blocks=num_blocks,
        budget=256,
        speculation=SpeculationConfig(
            num_speculative_tokens=NUM_DRAFTS,
            num_lookahead_tokens=NUM_DRAFTS if has_kv else 0,
            draft_slots_per_request=1 if has_kv else 0,
        ),
    )


def engine_with_drafts(small: Small, who: str) -> Engine:
    def runner(settings: EngineConfig) -> ModelRunner:
        drafter: Drafter = NgramDrafter(
            num_speculative_tokens=NUM_DRAFTS,
            prompt_lookup_min=1,
            prompt_lookup_max=3,
            max_model_len=settings.scheduler.max_model_len,
        )
        if who == "model":
            drafter = ModelDrafter(
                small.model,
                small.model.kv_groups(settings.cache.block_size),
                num_speculative_tokens=NUM_DRAFTS,
                how="greedy",
                num_blocks=settings.cache.num_gpu_blocks,
                max_model_len=settings.scheduler.max_model_len,
            )
        return ModelRunner(small.model, settings, drafter=drafter)

    return Engine(small.model, small.compiler, drafting(small, who, 1024), runner=runner)


@pytest.fixture(scope="module")
def without_drafts(small: Small) -> dict[str, Told]:
    return run(small)[0]


@pytest.mark.parametrize("who", ["ngram", "model"])
def test_drafts_change_nothing(who: str, small: Small, without_drafts: dict[str, Told]) -> None:
    engine = engine_with_drafts(small, who)
    for name, (prompt, sampling) in requests(small).items():
        engine.add(name, prompt, sampling)

    def preempt_all_now_and_then(n: int) -> None:
        if n % 20 == 7:
            engine.core.scheduler.reset_prefix_cache(reset_running=True)

    assert engine.run(between=preempt_all_now_and_then) == without_drafts
    constrained = {n for n, (_, each) in requests(small).items() if each.structured_outputs}
    steps = engine.outputs
    rows = [step.structured_output_rows[n] for step in steps for n in step.structured_output_rows]
    assert 1 < max(rows) <= 1 + NUM_DRAFTS
    assert sum(step.num_accepted or 0 for step in engine.recorder.steps) > 10
    drafted = {n for step in steps for n in step.scheduled_spec_decode_tokens}
    assert drafted & constrained


@pytest.fixture
def grammar(small: Small) -> RequestGrammar:
    """Wants "ab" or "aab", and nothing behind it."""
    grammar = RequestGrammar("key")
    grammar.begin(small.compiler.compile(wanted("regex", "a{1,2}b")))
    return grammar


def test_drafts_are_cut_at_the_first_that_is_refused(small: Small, grammar: RequestGrammar) -> None:
    a, b, c = (small.tokenizer.encode(text)[0] for text in "abc")
    eos = token_id(EOS)
    assert grammar.accepted_prefix([a, a, c, b]) == [a, a]
    assert grammar.accepted_prefix([a, b, eos, a]) == [a, b, eos]
    assert grammar.accepted_prefix([-1, a]) == []
    assert grammar.accept([a, b, eos])
    assert grammar.accepted_prefix([a]) == []


def test_rows_behind_drafts_are_what_the_grammar_wants_there(
    small: Small, grammar: RequestGrammar
) -> None:
    a, b = (small.tokenizer.encode(text)[0] for text in "ab")
    eos = token_id(EOS)
    width = -(-VOCAB_SIZE // 32)
    words, end = np.zeros((6, width), np.int32), np.zeros(width, np.int32)
    end[eos // 32] = 1 << eos % 32
    grammar.fill(words, 1, [a, b, eos, a], end)
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :VOCAB_SIZE]
    assert [row.nonzero()[0].tolist() for row in bits[1:5]] == [[a], [a, b], [eos], [eos]]
    assert not words[0].any()
    assert (words[5] == -1).all()
    assert grammar.accept([a]), "nothing of it stays"
