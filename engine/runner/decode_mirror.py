"""Keys and values of a decode batch, kept side by side from step to step, on CPU.

While the same requests decode, each step adds one key and one value a sequence to what the step
before saw. So what would be gathered from the blocks in every step is copied once, laid out for two
batched matrix products, and then only added to:

    step n      other requests than before         gathered from the blocks, as ever
    step n + 1  the same, one token further        copied:   keys, values [size * heads, room, dim]
    step n + 2  the same again                     their new keys and values are written behind

With 32 sequences of 192 tokens of a small model that takes 0.4 of the time of gathering and torch's
fused attention (`benchmarks/attention.py`). The blocks hold everything as they always do: a
mirror may be thrown away at any moment, and is when anything but the next token comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from engine.runner.batch_inputs import BatchInputs
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall, StepAttention

MIN_SEQS = 4
"""Fewer sequences attend as fast to what is gathered."""

ROOM_TOKENS = 32
"""A mirror has room for a multiple of so many tokens a sequence."""

MAX_PADDING_RATIO = 2.0
"""Most room, of what the sequences need: it is computed with, whether it is used or not."""

MAX_MIRROR_BYTES = 256 << 20
"""Memory of all layers' mirrors."""


@dataclass(slots=True)
class _Mirror:
    """One batch, from step to step.

    Attributes:
        request_ids: the sequences, in batch order.
        seq_lens: `[size]`, keys of each in the newest step.
        room: tokens that there is room for.
        layers: keys and values of each layer that has been asked.
    """

    request_ids: tuple[str, ...]
    seq_lens: npt.NDArray[np.int64]
    room: int
    layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


class DecodeMirrors:
    """The mirror of the batch that runs now, if there is one.

    Invariants:
        of a sequence in the mirror all keys and values before its newest token are there, in each
        layer that the mirror has.
    """

    def __init__(self, cache: PagedKVCache) -> None:
        self._cache = cache
        self._mirror: _Mirror | None = None

    def step(self, inputs: BatchInputs, gathered: Callable[[], StepAttention]) -> StepAttention:
        """Returns a step's attention: mirrored where that works, else what `gathered` returns.

        It has to be told of every step, also of those that cannot be mirrored.
        """
        mirror, self._mirror = self._mirror, None
        if len(inputs.seq_lens) < MIN_SEQS or len(inputs.token_ids) != len(inputs.seq_lens):
            return gathered()
        room = -(-int(inputs.seq_lens.max()) // ROOM_TOKENS) * ROOM_TOKENS
        if not self._pays(inputs, room):
            return gathered()
        goes_on = (
            mirror is not None
            and mirror.request_ids == inputs.request_ids
            and bool((mirror.seq_lens + 1 == inputs.seq_lens).all())
        )
        if mirror is None or not goes_on:
            self._mirror = _Mirror(inputs.request_ids, inputs.seq_lens, room)
            return gathered()
        if mirror.room != room:
            mirror = _Mirror(inputs.request_ids, inputs.seq_lens, room)
        mirror.seq_lens = inputs.seq_lens
        self._mirror = mirror
        return MirroredStep(self._cache, mirror, inputs, gathered)

    def _pays(self, inputs: BatchInputs, room: int) -> bool:
        tokens = len(inputs.seq_lens) * room
        num_bytes = tokens * self._cache.token_bytes * len(self._cache.layers)
        padding = tokens / (int(inputs.seq_lens.sum()) + len(inputs.seq_lens) * ROOM_TOKENS)
        return num_bytes <= MAX_MIRROR_BYTES and padding <= MAX_PADDING_RATIO


class MirroredStep:
    """A decode step's attention over a mirror (see `StepAttention`).

    Layers that see less than everything, or want more than plain attention, have it gathered.
    """

    def __init__(
        self,
        cache: PagedKVCache,
        mirror: _Mirror,
        inputs: BatchInputs,
        gathered: Callable[[], StepAttention],
    ) -> None:
        self.cache = cache
        self.slot_mapping = torch.from_numpy(inputs.slot_mapping)
        self._mirror = mirror
        self._inputs = inputs
        self._gather = gathered
        self._gathered: StepAttention | None = None
        self._longest = int(inputs.seq_lens.max())
        self._mask = _mask(inputs.seq_lens, mirror.room, cache)
        self._places = _places(inputs.seq_lens, mirror.room, cache)

    def attend(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        """Returns a layer's output `[num_tokens, num_heads, value_dim]`."""
        window = self.cache.groups[self.cache.group_of[call.layer]].sliding_window
        sees_all = window is None or window >= self._longest
        if not sees_all or call.softcap is not None or call.sinks is not None:
            return self._attend_gathered(call, query)
        keys, values = self._keys_and_values(call.layer)
        num_tokens, num_heads, key_dim = query.shape
        scale = key_dim**-0.5 if call.scaling is None else call.scaling
        folded = query.reshape(len(keys), -1, key_dim)
        scores = torch.baddbmm(self._mask, folded, keys.transpose(1, 2), alpha=scale)
        output = torch.bmm(scores.softmax(dim=-1), values)
        return output.view(num_tokens, num_heads, -1)

    def _attend_gathered(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        self._mirror.layers.pop(call.layer, None)  # it does not get this step's token
        if self._gathered is None:
            self._gathered = self._gather()
        return self._gathered.attend(call, query)

    def _keys_and_values(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a layer's mirror with this step's token in it."""
        mirrored = self._mirror.layers.get(layer)
        if mirrored is None:
            mirrored = self._mirror.layers[layer] = self._copied(layer)
            return mirrored
        cache = self.cache.layers[layer]
        slots = self.slot_mapping[self.cache.group_of[layer]]
        new = cache.view(-1, *cache.shape[2:]).index_select(0, slots).flatten(0, 1)
        for whole, part in zip(mirrored, new.tensor_split((self.cache.key_dim,), 1), strict=True):
            whole.view(-1, whole.shape[2]).index_copy_(0, self._places, part)
        return mirrored

    def _copied(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values `[size * num_kv_heads, room, dim]` of all tokens, 0 behind them.

        What lies behind the newest token in its block may be anybody's, but is finite.
        """
        num_blocks = -(-self._mirror.room // self.cache.block_size)
        tables = self._inputs.block_tables[self.cache.group_of[layer]]
        size = len(tables)
        blocks = np.zeros((size, num_blocks), np.int64)
        known = min(num_blocks, tables.shape[1])
        blocks[:, :known] = tables[:, :known]
        gathered = self.cache.gather(layer, torch.from_numpy(blocks.reshape(-1)))
        heads = gathered.view(size, -1, *gathered.shape[2:])[:, : self._mirror.room].transpose(1, 2)
        keys, values = heads.tensor_split((self.cache.key_dim,), 3)
        return keys.flatten(0, 1).contiguous(), values.flatten(0, 1).contiguous()


def _mask(seq_lens: npt.NDArray[np.int64], room: int, cache: PagedKVCache) -> torch.Tensor:
    """Returns `[size * num_kv_heads, 1, room]`: 0 where there is a token, else -inf."""
    layer = cache.layers[0]
    behind = torch.arange(room) >= torch.from_numpy(seq_lens)[:, None]
    mask = torch.zeros(behind.shape, dtype=layer.dtype).masked_fill_(behind, float("-inf"))
    return mask.repeat_interleave(layer.shape[2], 0)[:, None]


def _places(seq_lens: npt.NDArray[np.int64], room: int, cache: PagedKVCache) -> torch.Tensor:
    """Returns `[size * num_kv_heads]`, where in a mirror's flat rows the newest tokens go."""
    num_kv_heads = cache.layers[0].shape[2]
    first = np.arange(len(seq_lens) * num_kv_heads) * room
    return torch.from_numpy(first + np.repeat(seq_lens - 1, num_kv_heads))
