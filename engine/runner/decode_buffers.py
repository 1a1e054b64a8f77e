"""The inputs of CUDA graphs: tensors that stay where they are, written anew before each launch."""

from __future__ import annotations

import torch

from engine.runner.decode_shapes import DecodeShape, PaddedDecodes
from engine.runner.to_device import to_device


class DecodeBuffers:
    """Room for the largest decode batch; smaller ones use its beginning.

    Args:
        shapes: what it has to hold.
        max_blocks: of a sequence, in each KV group.

    Attributes:
        token_ids, positions: `[most tokens]`.
        slot_mapping: `[num_groups, most tokens]`.
        seq_lens: `[most sequences]` int32.
        block_tables: `[num_groups, most sequences, max_blocks]` int32; what lies behind a
            sequence's own blocks is old, but a block.
    """

    def __init__(
        self,
        shapes: tuple[DecodeShape, ...],
        *,
        num_groups: int,
        max_blocks: int,
        device: torch.device,
    ) -> None:
        num_tokens = max(shape.num_tokens for shape in shapes)
        num_seqs = max(shape.num_seqs for shape in shapes)
        self.device = device
        self.token_ids = torch.zeros(num_tokens, dtype=torch.int64, device=device)
        self.positions = torch.zeros(num_tokens, dtype=torch.int64, device=device)
        self.slot_mapping = torch.zeros((num_groups, num_tokens), dtype=torch.int64, device=device)
        self.seq_lens = torch.ones(num_seqs, dtype=torch.int32, device=device)
        self.block_tables = torch.zeros(
            (num_groups, num_seqs, max_blocks), dtype=torch.int32, device=device
        )

    def fill(self, decodes: PaddedDecodes) -> None:
        """Writes a step's inputs."""
        num_tokens, num_seqs = decodes.shape.num_tokens, decodes.shape.num_seqs
        tables = decodes.block_tables
        self.token_ids[:num_tokens].copy_(to_device(decodes.token_ids, self.device))
        self.positions[:num_tokens].copy_(to_device(decodes.positions, self.device))
        self.slot_mapping[:, :num_tokens].copy_(to_device(decodes.slot_mapping, self.device))
        self.seq_lens[:num_seqs].copy_(to_device(decodes.seq_lens, self.device))
        self.block_tables[:, :num_seqs, : tables.shape[2]].copy_(to_device(tables, self.device))
