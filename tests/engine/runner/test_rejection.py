"""Drafts that were drawn from another distribution leave the target's as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.runner import rejection
from engine.runner.sample_rows import SampleRows
from engine.runner.sampler import Sampler
from engine.runner.sampler.draws import Stream
from engine.sampling import SamplingParams
from tests.engine.runner.chi_square import p_value

VOCAB = 32
NUM_SEQS = 20_480
NUM_DRAFTS = 2
ENOUGH = 0.001
WHOLE = SamplingParams(max_tokens=8, temperature=0.8)
CUT = SamplingParams(max_tokens=8, temperature=0.8, top_k=12, top_p=0.9)


def tables() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns logits `[VOCAB, VOCAB]` behind each last token: the target's, and a draft model's.

    They look alike and are not.
    """
    generator = torch.Generator().manual_seed(11)
    target = torch.randn(VOCAB, VOCAB, generator=generator) * 1.5
    return target, target + torch.randn(VOCAB, VOCAB, generator=generator)


def drawn(sampling: SamplingParams) -> list[list[int]]:
    """Returns the new tokens of as many sequences behind token 0, two drafts each."""
    target, draft = tables()
    sampler = Sampler(vocab_size=VOCAB)
    names = [f"r{n}" for n in range(NUM_SEQS)]
    for n, name in enumerate(names):
        seeded = {"temperature": sampling.temperature, "max_tokens": 8, "seed": n}
        own = SamplingParams(top_k=sampling.top_k, top_p=sampling.top_p, **seeded)  # type: ignore[arg-type]
        sampler.add(name, own)
    last, drafts, drawn_from = [0] * NUM_SEQS, [], []
    for place in range(NUM_DRAFTS):
        chosen, logits = sampler.draw_drafts(
            draft[last], names, [place] * NUM_SEQS, stream=Stream.DRAFT
        )
        drafts.append(chosen)
        drawn_from.append(torch.stack([logits[name] for name in names]))
        last = chosen
    each = list(zip(*drafts, strict=True))
    rows = SampleRows(
        request_ids=names,
        num_outputs=[0] * NUM_SEQS,
        num_prompt_tokens=[1] * NUM_SEQS,
        known_token_ids=[np.zeros(1, np.int32)] * NUM_SEQS,
        draft_token_ids=each,
        draft_logits=dict(zip(names, torch.stack(drawn_from, dim=1), strict=True)),
    )
    before = torch.tensor([[0, *pair] for pair in each]).reshape(-1)
    return sampler.sample(target[before], rows).token_ids


def agreement(texts: list[list[int]], sampling: SamplingParams) -> float:
    """Returns the p-value of all tokens, each given the one before it.

    The first tokens are 20,480 draws from one distribution; behind each accepted draft stands
    another token, and behind all of them the bonus token, given what precedes it.
    """
    counts = torch.zeros(NUM_DRAFTS + 1, VOCAB, VOCAB)
    for text in texts:
        for place, pair in enumerate(zip([0, *text], text, strict=False)):
            counts[(place, *pair)] += 1
    shares = _probabilities(tables()[0] / sampling.temperature, sampling)
    return p_value(counts.reshape(-1, VOCAB), shares.repeat(NUM_DRAFTS + 1, 1))


def _probabilities(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """Returns the target's distributions `[VOCAB, VOCAB]`, token by token."""
    shares = torch.zeros(VOCAB, VOCAB)
    for row, probs in enumerate(logits.softmax(dim=-1)):
        best = probs.argsort(descending=True)[: sampling.top_k or VOCAB].tolist()
        total, reached = float(probs[best].sum()), 0.0
        for token in best:
            if reached < sampling.top_p * total:
                shares[row, token] = probs[token]
            reached += float(probs[token])
    return shares / shares.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("sampling", [WHOLE, CUT], ids=["all tokens", "top-k and top-p"])
def test_the_tokens_are_distributed_as_the_targets(sampling: SamplingParams) -> None:
    texts = drawn(sampling)
    assert agreement(texts, sampling) > ENOUGH
    lengths = {len(text) for text in texts}
    assert lengths == {1, 2, 3}


def test_biased_acceptance_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "acceptance", lambda p, q: (1.15 * p / q).clamp(max=1.0))
    assert agreement(drawn(WHOLE), WHOLE) < ENOUGH


def test_rejected_tokens_drawn_from_the_target_itself_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A frequent mistake: the rest is what p has more than q, and not p."""
    honest = rejection.verified

    def careless(target_logits: torch.Tensor, draft_logits: torch.Tensor, *rest, **noise):  # type: ignore[no-untyped-def]
        verified = honest(target_logits, draft_logits, *rest, **noise)
        again = (target_logits + noise["gumbels"]).argmax(dim=-1)
        return torch.where(verified == rest[0], verified, again)

    monkeypatch.setattr("engine.runner.sampler.sampler.verified", careless)
    assert agreement(drawn(WHOLE), WHOLE) < ENOUGH


def test_drafts_from_the_targets_own_distribution_pass() -> None:
    logits = torch.randn(500, VOCAB)
    drafts = torch.randint(VOCAB, (500,))
    tokens = rejection.verified(
        logits,
        logits.clone(),
        drafts,
        uniforms=torch.rand(500),
        gumbels=torch.randn(500, VOCAB),
    )
    assert tokens.tolist() == drafts.tolist()


def test_a_draft_that_the_target_cannot_say_never_passes() -> None:
    target = torch.zeros(500, VOCAB)
    target[:, 7] = float("-inf")
    tokens = rejection.verified(
        target,
        torch.zeros(500, VOCAB),
        torch.full((500,), 7),
        uniforms=torch.rand(500),
        gumbels=torch.randn(500, VOCAB),
    )
    assert 7 not in tokens.tolist()


def test_a_placeholder_is_drawn_as_if_there_were_no_draft() -> None:
    sampler = Sampler(vocab_size=VOCAB)
    sampler.add("a", SamplingParams(max_tokens=8, temperature=1.0, seed=5))
    logits = torch.randn(3, VOCAB)

    def sampled(rows: torch.Tensor, drafts: list[int], **more: object) -> list[list[int]]:
        known = SampleRows(
            request_ids=["a"],
            num_outputs=[0],
            num_prompt_tokens=[1],
            known_token_ids=[np.zeros(1, np.int32)],
            draft_token_ids=[drafts],
            **more,  # type: ignore[arg-type]
        )
        return sampler.sample(rows, known).token_ids

    drawn_from = {"a": torch.randn(2, VOCAB)}
    padded = sampled(logits.clone(), [-1, -1], draft_logits=drawn_from)
    assert padded == sampled(logits[:1].clone(), [])
