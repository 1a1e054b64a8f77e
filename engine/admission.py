"""Who could never be served: checked before a request is queued, by API and engine alike."""

from __future__ import annotations

from engine.config import EngineConfig
from engine.kv_cache.group import most_blocks


def complaint_about(config: EngineConfig, num_prompt_tokens: int, max_tokens: int) -> str | None:
    """Returns why a request could never finish; None if it can.

    The last output is never computed, so a request takes up one position less than its tokens.
    `allow_oversize` lets a request wait for blocks that will never be there; the model's length is
    a limit all the same.
    """
    num_tokens = num_prompt_tokens + max_tokens
    limit = config.scheduler.max_model_len
    if num_tokens > limit:
        return (
            f"prompt has {num_prompt_tokens:,} tokens and max_tokens is {max_tokens:,}, together "
            f"{num_tokens:,}, but max_model_len is {limit:,}: shorten the prompt, lower "
            "max_tokens, or raise --max-model-len"
        )
    cache = config.cache
    num_blocks = _blocks_needed(config, num_tokens - 1)
    if num_blocks > cache.num_usable_blocks and not config.allow_oversize:
        return (
            f"prompt has {num_prompt_tokens:,} tokens and max_tokens is {max_tokens:,}: that "
            f"takes {num_blocks:,} KV blocks of {cache.block_size} tokens, but the engine has "
            f"{cache.num_usable_blocks:,}: shorten the prompt, lower max_tokens, or give the "
            "engine more KV blocks (--num-gpu-blocks-override, --gpu-memory-utilization)"
        )
    return None


def room_for_output(config: EngineConfig, num_prompt_tokens: int) -> int:
    """Returns the most outputs that a request could ask for, 1 at least; see `complaint_about`."""
    low, high = 1, max(1, config.scheduler.max_model_len - num_prompt_tokens)
    while low < high:
        middle = (low + high + 1) // 2
        if complaint_about(config, num_prompt_tokens, middle) is None:
            low = middle
        else:
            high = middle - 1
    return low


def _blocks_needed(config: EngineConfig, num_tokens: int) -> int:
    """Returns the blocks that so many tokens ever hold at once, over all KV groups."""
    scheduler = config.scheduler
    return sum(
        most_blocks(
            group,
            num_tokens,
            in_flight=scheduler.max_num_batched_tokens * scheduler.max_concurrent_batches,
            max_model_len=scheduler.max_model_len,
        )
        for group in config.cache.kv_groups
    )
