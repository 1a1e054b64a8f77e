"""Drafts that are certain change no token: what is new is what as many steps would have said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from engine.runner.sample_rows import SampledTokens, SampleRows
from engine.runner.sampler import Sampler
from engine.sampling import SamplingParams

VOCAB_SIZE = 40
PROMPT = [1, 2, 3]
LOGITS = torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=torch.Generator().manual_seed(2)) * 3
"""Of a model that looks at the newest token alone."""

SAMPLINGS = {
    "greedy": SamplingParams(max_tokens=40),
    "drawn": SamplingParams(max_tokens=40, temperature=0.8, seed=5),
    "without a seed": SamplingParams(max_tokens=40, temperature=1.0, top_p=0.9),
    "penalised": SamplingParams(max_tokens=40, presence_penalty=1.0, frequency_penalty=0.5),
    "penalised and drawn": SamplingParams(
        max_tokens=40, temperature=1.0, seed=6, repetition_penalty=1.5, min_p=0.02
    ),
    "with a least length": SamplingParams(
        max_tokens=40, min_tokens=25, stop_token_ids=tuple(range(10)), logit_bias=((0, 5.0),)
    ),
    "with logprobs": SamplingParams(max_tokens=40, temperature=1.0, seed=7, logprobs=2),
}


def step(
    sampler: Sampler, texts: dict[str, list[int]], drafts: dict[str, Sequence[int]]
) -> SampledTokens:
    """Samples behind texts, each of which has drafts behind it."""
    last = [
        token
        for name, text in texts.items()
        for token in (text[-1], *(max(draft, 0) for draft in drafts[name]))
    ]
    rows = SampleRows(
        request_ids=list(texts),
        num_outputs=[len(text) - len(PROMPT) for text in texts.values()],
        num_prompt_tokens=[len(PROMPT)] * len(texts),
        known_token_ids=[np.array(text, np.int32) for text in texts.values()],
        draft_token_ids=[drafts[name] for name in texts],
    )
    assert rows.num_rows == len(last)
    return sampler.sample(LOGITS[last].clone(), rows)


def new_sampler() -> Sampler:
    sampler = Sampler(vocab_size=VOCAB_SIZE)
    for name, sampling in SAMPLINGS.items():
        sampler.add(name, sampling)
    return sampler


def outputs_without_drafts() -> tuple[dict[str, list[int]], list[object]]:
    """Returns each request's text after thirty steps, and the logprobs of the one that wants them.

    They come a token at a time.
    """
    sampler, texts = new_sampler(), {name: list(PROMPT) for name in SAMPLINGS}
    logprobs: list[object] = []
    for _ in range(30):
        sampled = step(sampler, texts, dict.fromkeys(texts, ()))
        logprobs += sampled.logprobs["with logprobs"]
        for text, token_ids in zip(texts.values(), sampled.token_ids, strict=True):
            assert len(token_ids) == 1
            text += token_ids
    return texts, logprobs


@pytest.mark.parametrize("how", ["right", "often wrong", "placeholders"])
def test_drafts_change_neither_tokens_nor_logprobs(how: str) -> None:
    expected, expected_logprobs = outputs_without_drafts()
    sampler, texts = new_sampler(), {name: list(PROMPT) for name in SAMPLINGS}
    rng = np.random.default_rng(1)
    logprobs: list[object] = []
    num_most = 0

    def guess(name: str) -> list[int]:
        drafts = expected[name][len(texts[name]) :][: rng.integers(5)]
        for i in range(len(drafts)):
            if how != "right" and rng.random() < 0.3:
                drafts[i] = -1 if how == "placeholders" else int(rng.integers(VOCAB_SIZE))
        return drafts

    while min(map(len, texts.values())) < len(PROMPT) + 25:
        sampled = step(sampler, texts, {name: guess(name) for name in texts})
        logprobs += sampled.logprobs["with logprobs"]
        for text, token_ids in zip(texts.values(), sampled.token_ids, strict=True):
            num_most = max(num_most, len(token_ids))
            text += token_ids
    assert num_most == 5
    num_same = min(map(len, texts.values()))
    assert [t[:num_same] for t in texts.values()] == [t[:num_same] for t in expected.values()]
    assert logprobs[:25] == expected_logprobs[:25]


def test_what_is_behind_a_wrong_draft_is_dropped() -> None:
    sampler = Sampler(vocab_size=VOCAB_SIZE)
    first = int(LOGITS[PROMPT[-1]].argmax())
    second = int(LOGITS[first].argmax())
    wrong = (second + 1) % VOCAB_SIZE
    sampled = step(sampler, {"a": list(PROMPT)}, {"a": [first, wrong, 3]})
    assert sampled.token_ids == [[first, second]]


def test_a_bitmask_has_a_row_for_each_draft() -> None:
    sampler = Sampler(vocab_size=VOCAB_SIZE)
    words = np.full((4, 2), -1, np.int32)
    words[1] = (1 << 5, 0)
    words[3] = (0, 1 << 3)
    rows = SampleRows(
        request_ids=["free", "bound"],
        num_outputs=[0, 0],
        num_prompt_tokens=[3, 3],
        known_token_ids=[np.array(PROMPT, np.int32)] * 2,
        draft_token_ids=[(), (5, 6)],
        bitmask=words,
    )
    logits = LOGITS[[3, 3, 5, 6]].clone()
    best = int(LOGITS[5].argmax())
    assert sampler.sample(logits, rows).token_ids == [[int(LOGITS[3].argmax())], [5, best]]
    rows = SampleRows(
        request_ids=["bound"],
        num_outputs=[0],
        num_prompt_tokens=[3],
        known_token_ids=[np.array(PROMPT, np.int32)],
        draft_token_ids=[()],
        bitmask=words[3:],
    )
    assert sampler.sample(LOGITS[[6]].clone(), rows).token_ids == [[35]]
