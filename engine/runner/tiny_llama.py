"""A tiny Llama, made on this machine in seconds: a model where none was given.

Three million random parameters with a fixed seed, 4,096 positions, a byte-level tokenizer. It says
nothing sensible, but it is a real checkpoint: the same loader, attention and sampling as any other.
Kept in the cache directory; no network is ever asked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

NAME = "tiny-llama"
VERSION = 1
"""Rises when the recipe changes, so that an older cached model is left alone."""

SEED = 20
NUM_POSITIONS = 4096
BOS, EOS = "<|bos|>", "<|eos|>"


def default_cache_dir() -> Path:
    """Returns `$XDG_CACHE_HOME/stepscope`, by default `~/.cache/stepscope`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stepscope"


def tiny_llama(cache_dir: Path | None = None) -> Path:
    """Returns the directory of the tiny Llama, which is made first if it is not there.

    Written beside its place and renamed, so two processes at once are fine: the first to finish
    wins, and what it wrote is what the other would have written.
    """
    cache = cache_dir or default_cache_dir()
    target = cache / f"{NAME}-v{VERSION}"
    if (target / "config.json").is_file():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f"{target.name}.", suffix=".tmp", dir=cache))
    try:
        write_tiny_llama(making)
        making.chmod(0o755)
        try:
            making.rename(target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


def write_tiny_llama(directory: Path) -> None:
    """Writes the tiny Llama's model and tokenizer into `directory`."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = byte_tokenizer()
        make_model(tokenizer).save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Returns a tokenizer with a token a byte, and two more: begin and end of sequence."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: i for i, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=NUM_POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Returns the random model; its draws leave torch's own random state as it was."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=NUM_POSITIONS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
        initializer_range=0.1,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return LlamaForCausalLM(config).eval()
