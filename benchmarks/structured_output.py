"""What structured output costs: compiling, filling bits, applying them.

`OMP_NUM_THREADS=1 python -m benchmarks.structured_output [--vocab-size N]`

The vocabulary is a byte-level BPE that is trained here on Python's own library. Times are CPU times
of the process, but those of rows and steps, which are medians of the wall clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.runner.sampler.bitmask import apply_bitmask
from engine.sampling import StructuredOutputsParams
from engine.structured_output.bitmask import GrammarBitmask
from engine.structured_output.compiler import GrammarCompiler
from engine.structured_output.grammar import RequestGrammar
from engine.structured_output.wishes import StructuredOutputKind

EOS = "<|eos|>"
NUM_BYTES = 12_000_000
BATCHES = (1, 16, 64)
FIRST = {
    "JSON": StructuredOutputsParams(kind="json", spec="{}"),
    "all others": StructuredOutputsParams(kind="regex", spec="a"),
}


def train(directory: Path, vocab_size: int) -> int:
    """Writes a tokenizer into a directory; returns the id of its end of text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    print(f"vocabulary: {tokenizer.get_vocab_size():,} tokens")
    return int(tokenizer.token_to_id(EOS))


def _texts() -> Iterator[str]:
    num_bytes = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if num_bytes > NUM_BYTES or "site-packages" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        num_bytes += len(text)
        yield text


def object_of(num_fields: int, field: Callable[[int], Any]) -> str:
    names = [f"field_{i}" for i in range(num_fields)]
    properties = {name: field(i) for i, name in enumerate(names)}
    return json.dumps({"type": "object", "properties": properties, "required": names})


def wishes() -> dict[str, tuple[StructuredOutputKind, str]]:
    texts = {"type": "string"}
    line = json.loads(object_of(8, lambda i: [texts, {"type": "number"}][i % 2]))
    return {
        "any JSON object": ("json_object", ""),
        "schema, 5 fields": ("json", object_of(5, lambda i: texts)),
        "schema, 30 fields, lists of objects": (
            "json",
            object_of(30, lambda i: {"type": "array", "items": line} if i % 3 == 0 else texts),
        ),
        "schema, 200 fields of 50 values each": (
            "json",
            object_of(200, lambda i: {"enum": [f"value {i} {j}" for j in range(50)]}),
        ),
        "regex, e-mail": ("regex", r"[a-z0-9._]{1,30}@[a-z0-9]{1,20}\.(com|org|net)"),
        "1,000 choices": ("choice", json.dumps([f"choice number {i}" for i in range(1000)])),
        "arithmetic in EBNF": (
            "grammar",
            'root ::= term (("+" | "-") term)*\nterm ::= atom (("*" | "/") atom)*\n'
            'atom ::= [0-9]+ | "(" root ")"',
        ),
    }


def time_us(work: Callable[[], object], repeats: int = 200) -> float:
    """Returns the median time of a call, in microseconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1e3


def compile_all(compiler: GrammarCompiler) -> dict[str, Any]:
    compiled = {}
    print("\n| grammar | compiling, ms of CPU | MB | a row at its start, µs |\n|---|---|---|---|")
    for name, (kind, spec) in wishes().items():
        began = time.process_time_ns()
        compiled[name] = compiler.compile(StructuredOutputsParams(kind=kind, spec=spec))
        took = (time.process_time_ns() - began) / 1e6
        words = np.zeros((1, -(-compiler.vocab_size // 32)), np.int32)
        grammar = RequestGrammar(name)
        grammar.begin(compiled[name])
        row = time_us(partial(grammar.fill, words, 0, (), words[0]))
        megabytes = compiled[name].memory_size_bytes / 1e6
        print(f"| {name} | {took:,.1f} | {megabytes:.2f} | {row:.1f} |")
    return compiled


def time_steps(compiled: Any, vocab_size: int) -> None:
    """Prints what steps of so many requests take, all of them within a text of JSON."""
    print("\n| requests | filling, µs | rows of the step, µs | applying, µs | argmax, µs |")
    print("|---|---|---|---|---|")
    for count in BATCHES:
        times = _times_of_step(compiled, vocab_size, count)
        print("| " + " | ".join([str(count), *(f"{each:.0f}" for each in times)]) + " |")


def _times_of_step(compiled: Any, vocab_size: int, count: int) -> list[float]:
    grammars = [RequestGrammar(str(i)) for i in range(count)]
    for grammar in grammars:
        grammar.begin(compiled)
        grammar._matcher.accept_string('{"field_0": "some')
    words = np.zeros((count, -(-vocab_size // 32)), np.int32)
    names = [grammar.key for grammar in grammars]
    bitmask = GrammarBitmask(words, {name: i for i, name in enumerate(names)}, 0)
    logits = torch.randn(count, vocab_size)

    def fill() -> None:
        for row, grammar in enumerate(grammars):
            grammar.fill(words, row, (), words[row])

    steps: tuple[Callable[[], object], ...] = (
        fill,
        lambda: bitmask.for_rows(names, [()] * count),
        lambda: apply_bitmask(logits, words),
        lambda: logits.argmax(dim=-1),
    )
    return [time_us(each, 50) for each in steps]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    vocab_size = parser.parse_args().vocab_size
    with tempfile.TemporaryDirectory() as directory:
        end = train(Path(directory), vocab_size)
        compiler = GrammarCompiler(Path(directory), vocab_size=vocab_size, eos_token_ids=(end,))
        for name, wanted in FIRST.items():
            began = time.process_time_ns()
            compiler.compile(wanted)
            took = (time.process_time_ns() - began) / 1e6
            print(f"first grammar of {name}, with its vocabulary: {took:,.0f} ms of CPU")
        compiled = compile_all(compiler)
        time_steps(compiled["schema, 5 fields"], vocab_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
