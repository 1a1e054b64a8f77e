"""From `--speculative-config` to a drafter, in two steps: KV blocks are counted in between."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import EngineConfig
from engine.runner.checkpoints import find_checkpoint
from engine.runner.drafter import Drafter
from engine.runner.model import DTYPES, DtypeName, LoadedModel, load_model
from engine.runner.model_drafter import ModelDrafter, draft_block_bytes
from engine.runner.model_error import ModelError
from engine.runner.ngram_drafter import NgramDrafter
from engine.speculative_settings import SpeculativeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterParts:
    """What a drafter is made of, and what it takes.

    Attributes:
        model: the draft model; None for one that looks n-grams up.
        weights_bytes: memory of its parameters.
        block_bytes: memory of a KV block in it.
    """

    settings: SpeculativeSettings
    model: LoadedModel | None = None
    weights_bytes: int = 0
    block_bytes: int = 0

    def build(self, config: EngineConfig) -> Drafter:
        """Returns the drafter, with its KV tensors in place.

        Raises:
            ConfigError: the draft model cannot serve the target's sequences.
        """
        settings, max_model_len = self.settings, config.scheduler.max_model_len
        if self.model is None:
            shortest, longest = settings.lookup
            return NgramDrafter(
                num_speculative_tokens=settings.num_speculative_tokens,
                prompt_lookup_min=shortest,
                prompt_lookup_max=longest,
                max_model_len=max_model_len,
            )
        return ModelDrafter(
            self.model,
            config.cache.kv_groups,
            num_speculative_tokens=settings.num_speculative_tokens,
            how=settings.draft_sample_method or "coupled",
            num_blocks=config.cache.num_gpu_blocks,
            max_model_len=max_model_len,
        )


def load_drafter_parts(
    settings: SpeculativeSettings, target: LoadedModel, *, dtype: DtypeName, block_size: int
) -> DrafterParts:
    """Returns what a target's drafter is made of.

    Raises:
        ModelError: there is no such draft model, or its vocabulary is not the target's.
    """
    if settings.method == "ngram":
        return DrafterParts(settings=settings)
    directory = find_checkpoint(settings.model, dtype=DTYPES.get(dtype))
    model = load_model(directory, dtype=dtype, device=str(target.device))
    if model.vocab_size != target.vocab_size:
        raise ModelError(
            f"the draft model {model.name} has a vocabulary of {model.vocab_size:,} tokens but "
            f"{target.name} one of {target.vocab_size:,}: a draft model has to share the target's"
        )
    return DrafterParts(
        settings=settings,
        model=model,
        weights_bytes=model.weights_bytes,
        block_bytes=draft_block_bytes(model.kv_shape, block_size),
    )
