"""A tiny Llama, made on this machine in seconds: a model where none was given.

Three million random parameters with a fixed seed, 4,096 positions, a byte-level tokenizer. It says
nothing sensible, but it is a real checkpoint: the same loader, attention and sampling as any other.
Kept in the cache directory; no network is ever asked.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.runner.cache_directory import default_cache_dir, made_once
from engine.runner.quiet_loading import quiet_loading

NAME = "tiny-llama"
VERSION = 2
"""Rises when the recipe changes, so that an older cached model is left alone."""

SEED = 20
NUM_POSITIONS = 4096
BOS, EOS = "<|bos|>", "<|eos|>"
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tiny_llama(cache_dir: Path | None = None) -> Path:
    """Returns the directory of the tiny Llama, which is made first if it is not there."""
    cache = cache_dir or default_cache_dir()
    return made_once(cache / f"{NAME}-v{VERSION}", write_tiny_llama)


def write_tiny_llama(directory: Path) -> None:
    """Writes the tiny Llama's model and tokenizer into `directory`."""
    with quiet_loading():
        tokenizer = byte_tokenizer()
        make_model(tokenizer).save_pretrained(directory)
        tokenizer.save_pretrained(directory)


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
        chat_template=CHAT_TEMPLATE,
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
