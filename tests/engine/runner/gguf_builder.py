"""A very small Llama as a GGUF file, half of it quantized, with a byte-level vocabulary."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

HIDDEN, HEADS, KV_HEADS, FEED_FORWARD, LAYERS, POSITIONS = 64, 4, 2, 96, 2, 512
BOS, EOS = 257, 258
CHAT_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"


def write_gguf(path: Path, *, adds_bos: bool | None = True, architecture: str = "llama") -> Path:
    """Writes the file; `adds_bos` None says nothing about it."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(EOS + 1)
    _add_vocabulary(writer)
    if adds_bos is not None:
        writer.add_add_bos_token(adds_bos)
    writer.add_chat_template(CHAT_TEMPLATE)
    _add_weights(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {**{byte: chr(byte) for byte in printable}}
    letters |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    tokens = [letters[byte] for byte in range(256)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*tokens, letters[0] + letters[1], "<s>", "</s>"])
    writer.add_token_types([1] * 257 + [3, 3])
    writer.add_token_merges([f"{letters[0]} {letters[1]}"])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)


def _add_weights(writer: gguf.GGUFWriter) -> None:
    rng = np.random.default_rng(3)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN)}
    shapes |= {"attn_output": (HIDDEN, HIDDEN), "ffn_gate": (FEED_FORWARD, HIDDEN)}
    shapes |= {"ffn_up": (FEED_FORWARD, HIDDEN), "ffn_down": (HIDDEN, FEED_FORWARD)}
    _add_matrix(writer, rng, "token_embd", (EOS + 1, HIDDEN))
    _add_matrix(writer, rng, "output", (EOS + 1, HIDDEN))
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            _add_matrix(writer, rng, f"blk.{layer}.{name}", shape, is_quantized=layer > 0)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, np.float32))


def _add_matrix(
    writer: gguf.GGUFWriter,
    rng: np.random.Generator,
    name: str,
    shape: tuple[int, int],
    *,
    is_quantized: bool = False,
) -> None:
    values = (0.3 * rng.standard_normal(shape)).astype(np.float32)
    if is_quantized:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    else:
        writer.add_tensor(f"{name}.weight", values)
