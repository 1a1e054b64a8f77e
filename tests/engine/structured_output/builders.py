"""A very small model with a real tokenizer, an engine on it, and a plain loop to compare with."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from engine.config import EngineConfig
from engine.core import EngineCore, NewRequest
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams, StructuredOutputsParams
from engine.scheduler import SchedulerOutput
from engine.structured_output.compiler import GrammarCompiler
from engine.structured_output.structured_outputs import StructuredOutputs
from engine.structured_output.wishes import StructuredOutputKind
from engine.text.tokenizer import Tokenizer
from telemetry.recorder import ListRecorder
from telemetry.records import RunClock
from telemetry.vocabulary import FinishReason
from tests.engine.runner.builders import engine_config

VOCAB_SIZE = 290
"""Of the model: more than its tokenizer has, and no multiple of 32."""

MERGES = [("t", "r"), ("u", "e"), ("tr", "ue"), ('"', ":"), ("0", "0"), ("}", "]"), ("r", "e")]
"""Tokens of several characters, some of which run over the borders of JSON's own."""

BOS, EOS, PAD = "<|bos|>", "<|eos|>", "<|pad|>"


def write_tokenizer(directory: Path) -> Tokenizer:
    """Writes a byte-level tokenizer with merges and special tokens, and returns it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = [*alphabet, *(left + right for left, right in MERGES)]
    inner = HFTokenizer(models.BPE({text: i for i, text in enumerate(texts)}, MERGES))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([BOS, EOS, PAD])
    inner.save(str(directory / "tokenizer.json"))
    tokenizer = Tokenizer.load(directory)
    assert tokenizer is not None
    return tokenizer


def token_id(text: str) -> int:
    """Returns the id of a special token."""
    return 256 + len(MERGES) + [BOS, EOS, PAD].index(text)


def small_llama() -> LlamaForCausalLM:
    """Returns a very small random Llama with more logits than there are tokens."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.25,
        bos_token_id=token_id(BOS),
        eos_token_id=token_id(EOS),
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return LlamaForCausalLM(config).eval()


def wanted(kind: StructuredOutputKind, spec: Any) -> StructuredOutputsParams:
    """Returns a wish; a schema or a list of choices may be given as it is."""
    return StructuredOutputsParams(
        kind=kind, spec=spec if isinstance(spec, str) else json.dumps(spec)
    )


def config(**sizes: Any) -> EngineConfig:
    """Returns a configuration with room for outputs of some hundred tokens."""
    return engine_config(**{"max_model_len": 1024, "num_blocks": 1024, "budget": 64, **sizes})


@dataclass
class Told:
    """What an engine has said to one request."""

    token_ids: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    error: str | None = None
    blames_client: bool = False


class Engine:
    """An engine core with a model, its record, and what it has said."""

    def __init__(
        self,
        model: LoadedModel,
        compiler: GrammarCompiler,
        settings: EngineConfig | None = None,
        *,
        limit_seconds: float = 30.0,
        runner: Callable[[EngineConfig], ModelRunner] | None = None,
    ) -> None:
        settings = settings or config()
        self.recorder = ListRecorder()
        self.outputs: list[SchedulerOutput] = []
        self.told: dict[str, Told] = {}
        self.structured_outputs = StructuredOutputs(compiler, limit_seconds=limit_seconds)
        self.core = EngineCore(
            settings,
            ModelRunner(model, settings) if runner is None else runner(settings),
            recorder=self.recorder,
            clock=RunClock.start().now,
            model_name="small",
            eos_token_ids=model.eos_token_ids,
            structured_outputs=self.structured_outputs,
        )

    def add(
        self, name: str, prompt: Sequence[int], sampling: SamplingParams, *, priority: int = 0
    ) -> None:
        self.told[name] = Told()
        refusal = self.core.add_request(
            NewRequest(
                request_id=name, prompt_token_ids=prompt, sampling=sampling, priority=priority
            )
        )
        if refusal is not None:
            self.told[name].reason, self.told[name].error = refusal.finish_reason, refusal.error

    def step(self) -> None:
        output, results = self.core.step()
        self.outputs.append(output)
        for result in results:
            told = self.told[result.request_id]
            told.token_ids += result.new_token_ids
            if result.finish_reason is not None:
                assert told.reason is None, "it has ended already"
                told.reason, told.error = result.finish_reason, result.error
                told.blames_client = result.blames_client
        self.core.scheduler.check_integrity()

    def run(
        self, max_steps: int = 5000, *, between: Callable[[int], object] = lambda n: None
    ) -> dict[str, Told]:
        """Steps until all requests have ended, and waits for grammars where nobody can run.

        Args:
            between: is called after each step, with its number.
        """
        for n in range(max_steps):
            if not self.core.has_work():
                return self.told
            self.step()
            between(n)
            if not self.outputs[-1].total_num_scheduled_tokens:
                self.core.take_compiled_grammars(0.05)
        raise AssertionError("the engine does not come to rest")


@torch.inference_mode()
def reference_tokens(
    model: LlamaForCausalLM, prompt: Sequence[int], compiled: Any, max_tokens: int
) -> list[int]:
    """Returns what a plain greedy loop says that tries each token on a matcher of its own."""
    from xgrammar import GrammarMatcher

    matcher, eos = GrammarMatcher(compiled), token_id(EOS)
    step_ids, cache = torch.tensor([list(prompt)]), None
    tokens: list[int] = []
    while len(tokens) < max_tokens and tokens[-1:] != [eos]:
        output = model(input_ids=step_ids, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        allowed = [token for token in (*range(token_id(BOS)), eos) if _would_take(matcher, token)]
        logits = output.logits[0, -1, allowed]
        tokens.append(allowed[int(logits.argmax())])
        assert matcher.accept_token(tokens[-1])
        step_ids = torch.tensor([tokens[-1:]])
    return tokens


def _would_take(matcher: Any, token: int) -> bool:
    if not matcher.accept_token(token):
        return False
    matcher.rollback(1)
    return True
