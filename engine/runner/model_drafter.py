"""Drafts of a second, smaller model with the same vocabulary.

It has KV tensors of its own under the scheduler's block tables: a block holds the same tokens in
both models, so prefix hits, windows and preemptions need no books of their own. After each step it
runs whatever it has not run yet (the step's chunk of a prompt, or the newest token), then goes on
alone for as many tokens as there are drafts.

    step         known tokens ........ newest
    first pass   what the draft model lacks, up to the newest        -> draft 0
    next passes                        draft 0, draft 1, ...         -> draft 1, draft 2, ...

How a draft is chosen for a request that draws its tokens (others get the likeliest one):

* coupled: with the random numbers that are going to draw the target's token for that place. Two
  models that agree draw the same; the target draws what it would have drawn without drafts.
* greedy: the likeliest token, which a draw often is not.
* probabilistic: with random numbers of its own, for `rejection` to verify.

The slots behind the newest token are the scheduler's `num_lookahead_tokens`. Where there are fewer,
near `max_model_len`, there are fewer drafts. Blocks that a KV connector filled hold nothing for the
draft model: it guesses badly behind them, and no token is wrong for it.

Source: Daliri, Musco, Suresh 2024, "Coupling without Communication and Drafter-Invariant
Speculative Decoding" (https://arxiv.org/abs/2408.07978), for coupled drafts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from engine.config import ConfigError, KVGroupConfig
from engine.runner.attention_backend import GatherBackend
from engine.runner.batch_inputs import BatchInputs
from engine.runner.drafter import Drafts
from engine.runner.forward_pass import ForwardPass
from engine.runner.grouping import batch_order
from engine.runner.input_batch import InputBatch
from engine.runner.kv_tensors import KVShape, PagedKVCache
from engine.runner.model import LoadedModel
from engine.runner.sampler import Sampler
from engine.runner.sampler.draws import Stream
from engine.speculative_settings import DraftSampleMethod

IntArray = npt.NDArray[np.int64]


class ModelDrafter:
    """Runs a draft model over the batch.

    Args:
        model: the draft model, on the target's device.
        kv_groups: the target's, as the scheduler keeps them.
        num_speculative_tokens: most drafts of a request.
        how: drafts are chosen.
        num_blocks: KV blocks, the null block among them.
        max_model_len: longest sequence.

    Raises:
        ConfigError: the draft model cannot serve such sequences, or sees more than the target's
            blocks keep.
    """

    def __init__(
        self,
        model: LoadedModel,
        kv_groups: Sequence[KVGroupConfig],
        *,
        num_speculative_tokens: int,
        how: DraftSampleMethod,
        num_blocks: int,
        max_model_len: int,
    ) -> None:
        if max_model_len > model.max_position:
            raise ConfigError(
                f"max_model_len is {max_model_len} but the draft model {model.name} has "
                f"{model.max_position} positions: lower --max-model-len or use another draft model"
            )
        self._num_drafts = num_speculative_tokens
        self._how = how
        self._max_model_len = max_model_len
        self._tables = tables_for(model, kv_groups)
        cache = _allocate(model, num_blocks, kv_groups[0].block_size)
        self._forward_pass = ForwardPass(model, GatherBackend(cache))

    def propose(self, batch: InputBatch, inputs: BatchInputs, sampler: Sampler) -> Drafts:
        """Returns the tokens that the draft model goes on with, of each sampling sequence."""
        spans = _Spans.of(batch, inputs, self._num_drafts, self._max_model_len)
        batch.num_draft_computed_tokens[inputs.rows] = spans.written
        token_ids: dict[str, list[int]] = {}
        logits: dict[str, list[torch.Tensor]] = {}
        for number in range(self._num_drafts):
            step = spans.inputs_of_pass(number, batch, inputs)
            if step is None:
                break
            chosen, drawn = self._choose(self._logits(step), step, batch, sampler, number)
            rows = step.rows[step.sampling_seqs]
            batch.token_ids[rows, batch.num_tokens[rows] + number] = chosen
            for place, token_id in zip(step.sampling_seqs.tolist(), chosen, strict=True):
                token_ids.setdefault(step.request_ids[place], []).append(token_id)
            for name, row in drawn.items():
                logits.setdefault(name, []).append(row)
        return Drafts(token_ids, {name: torch.stack(rows) for name, rows in logits.items()})

    def _choose(
        self,
        logits: torch.Tensor,
        step: BatchInputs,
        batch: InputBatch,
        sampler: Sampler,
        number: int,
    ) -> tuple[list[int], Mapping[str, torch.Tensor]]:
        """Returns a draft for each sampling sequence, and what from, if a verification asks."""
        if self._how == "greedy":
            likeliest: list[int] = logits.argmax(dim=-1).tolist()
            return likeliest, {}
        rows = step.rows[step.sampling_seqs]
        outputs = batch.num_tokens[rows] - batch.num_prompt_tokens[rows] + number
        names = [step.request_ids[place] for place in step.sampling_seqs.tolist()]
        coupled = self._how == "coupled"
        stream = Stream.TOKEN if coupled else Stream.DRAFT
        drafts, drawn_from = sampler.draw_drafts(logits, names, outputs.tolist(), stream=stream)
        return drafts, {} if coupled else drawn_from

    def _logits(self, inputs: BatchInputs) -> torch.Tensor:
        """Returns the logits `[num_sampling, vocab_size]` behind the sampling sequences' ends."""
        inputs = replace(
            inputs,
            slot_mapping=inputs.slot_mapping[self._tables],
            block_tables=inputs.block_tables[self._tables],
        )
        return self._forward_pass.prepare(inputs, None).run()


@dataclass(frozen=True, slots=True)
class _Spans:
    """What the draft model runs after one step, for each of the step's sequences.

    Attributes:
        start: `[num_seqs]`, tokens whose KV it has.
        end: `[num_seqs]`, tokens whose KV it has after its first pass.
        num_drafts: `[num_seqs]`, drafts that there is room for; each pass but the first runs one.
    """

    start: IntArray
    end: IntArray
    num_drafts: IntArray

    @classmethod
    def of(cls, batch: InputBatch, inputs: BatchInputs, most: int, max_model_len: int) -> _Spans:
        rows, sampling = inputs.rows, inputs.sampling_seqs
        computed = batch.num_computed_tokens[rows]
        # What it ran as a draft that was right is not run again: it lies behind the newest token
        # of the time, as many places as were right. A row that was filled anew has no such.
        right = np.zeros_like(computed)
        right[sampling] = computed[sampling] - (inputs.seq_lens[sampling] - inputs.num_drafts)
        known_then = inputs.seq_lens - inputs.query_lens + 1
        slots = batch.num_blocks[:, rows].min(axis=0) * batch.block_size
        room = np.minimum(slots, max_model_len - 1) - computed
        num_drafts = np.zeros_like(computed)
        num_drafts[sampling] = np.clip(room[sampling], 0, most)
        return cls(
            start=np.minimum(batch.num_draft_computed_tokens[rows], known_then + right),
            end=computed + (num_drafts > 0),
            num_drafts=num_drafts,
        )

    @property
    def written(self) -> IntArray:
        """`[num_seqs]`, tokens and drafts whose KV it has after its last pass."""
        written: IntArray = self.end + np.maximum(self.num_drafts - 1, 0)
        return written

    def inputs_of_pass(
        self, number: int, batch: InputBatch, inputs: BatchInputs
    ) -> BatchInputs | None:
        """Returns what a pass runs, counted from 0; None where it has nothing to run."""
        seq_lens = self.end + number
        query_lens = np.where(self.num_drafts > number, 1, 0) if number else seq_lens - self.start
        places = np.flatnonzero(query_lens)
        if not len(places):
            return None
        places = places[batch_order(query_lens[places], seq_lens[places])]
        step = batch.flatten(
            tuple(inputs.request_ids[i] for i in places.tolist()),
            inputs.rows[places],
            query_lens[places],
            seq_lens[places],
        )
        drafting = np.flatnonzero(self.num_drafts[places] > number)
        return replace(step, sampling_seqs=drafting, num_drafts=np.zeros_like(drafting))


def tables_for(model: LoadedModel, kv_groups: Sequence[KVGroupConfig]) -> list[int]:
    """Returns for each KV group of a draft model the target's group whose block table it uses.

    That is one which keeps at least what the layers see.

    Raises:
        ConfigError: there is none.
    """
    tables = []
    for group in model.kv_shape.groups:
        window = group.sliding_window
        for number, kept in enumerate(kv_groups):
            if kept.sliding_window is None or kept.sliding_window >= (window or sys.maxsize):
                tables.append(number)
                break
        else:
            sees = "everything" if window is None else f"{window} tokens"
            raise ConfigError(
                f"layers of the draft model {model.name} see {sees}, but all of the target's KV "
                "blocks are given back behind a shorter sliding window: use another draft model"
            )
    return tables


def draft_block_bytes(shape: KVShape, block_size: int) -> int:
    """Returns the memory of one KV block in a draft model: all layers have tensors of their own.

    Layers cannot share memory as the target's do (`layer_groups`): two of a draft model's groups
    may use the same block table.
    """
    return _num_layers(shape) * block_size * shape.token_bytes


def _num_layers(shape: KVShape) -> int:
    return sum(len(group.layers) for group in shape.groups)


def _allocate(model: LoadedModel, num_blocks: int, block_size: int) -> PagedKVCache:
    shape = model.kv_shape
    size = (num_blocks, block_size, shape.num_kv_heads, shape.key_dim + shape.value_dim)
    layers = [
        torch.zeros(size, dtype=shape.dtype, device=model.device) for _ in range(_num_layers(shape))
    ]
    return PagedKVCache(layers, shape.groups, shape.key_dim)
