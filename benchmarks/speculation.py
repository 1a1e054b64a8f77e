"""Whether drafts pay on this machine: CPU time of an output token, with drafts over without.

`python -m benchmarks.speculation [--model gemma3-270m] [--rounds N] [--requests 1 8]`. Each drafter
has an engine of its own; all answer the same prompts in turns, in random order, on one torch
thread, greedily: the texts are compared, and have to be equal. Prompts are in the prefix cache from
the warm-up on, so it is decoding that is measured. The tiny Llama says random bytes, in which no
n-gram comes again; its draft models are itself, and itself without its last layers. Gemma is asked
to go on with a text that repeats itself, and with one that does not.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import LlamaForCausalLM

from engine.config import EngineConfig
from engine.core import EngineCore, NewRequest
from engine.runner.checkpoints import find_checkpoint
from engine.runner.drafters import DrafterParts
from engine.runner.model import LoadedModel, load_model
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.settings import EngineSettings
from engine.speculative_settings import SpeculativeSettings
from engine.text.tokenizer import Tokenizer
from telemetry.recorder import ListRecorder
from telemetry.records import RunClock

NUM_OUTPUTS = 64
NUM_DRAFTS = (3, 5)
LISTED = "".join(f"- item {n}: the quick brown fox jumps over the lazy dog\n" for n in range(1, 7))
TEXTS = {
    "repeats itself": f"A list of twenty lines:\n{LISTED}",
    "does not": "The history of the lighthouse on the northern shore began when",
}


def main() -> None:
    """Prints a table for each number of requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a checkpoint or gemma3-270m (the tiny Llama)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    directory = find_checkpoint(arguments.model)
    model = load_model(directory, dtype="float32", device="cpu")
    for title, prompt in prompts_for(directory, is_tiny=arguments.model is None).items():
        for count in arguments.requests:
            prompts = [[*prompt[:-1], prompt[-1 - n % 3]] for n in range(count)]
            sides = dict(sides_of(model, directory, is_tiny=arguments.model is None))
            measure(sides, prompts, arguments.rounds)
            print_table(f"{model.name}, {title}, {count} requests", sides)


def prompts_for(directory: Path, *, is_tiny: bool) -> Mapping[str, list[int]]:
    """Returns a prompt for each kind of text."""
    if is_tiny:
        return {"random bytes": [random.Random(3).randrange(256) for _ in range(40)]}
    tokenizer = Tokenizer.load(directory)
    assert tokenizer is not None
    return {title: tokenizer.encode(text) for title, text in TEXTS.items()}


@dataclass
class Side:
    """An engine with one way of drafting, and what it took."""

    core: EngineCore
    recorder: ListRecorder
    milliseconds: list[float] = field(default_factory=list)

    def answer(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Returns the outputs of all prompts, and notes the CPU time of one output token."""
        sampling = SamplingParams(max_tokens=NUM_OUTPUTS, ignore_eos=True)
        texts: dict[str, list[int]] = {f"r{n}": [] for n in range(len(prompts))}
        for name, prompt in zip(texts, prompts, strict=True):
            self.core.add_request(
                NewRequest(request_id=name, prompt_token_ids=prompt, sampling=sampling)
            )
        began = time.process_time()
        while self.core.has_work():
            for result in self.core.step()[1]:
                texts[result.request_id] += result.new_token_ids
        spent = time.process_time() - began
        self.milliseconds.append(1000 * spent / (len(prompts) * NUM_OUTPUTS))
        return list(texts.values())


def sides_of(model: LoadedModel, directory: Path, *, is_tiny: bool) -> Iterator[tuple[str, Side]]:
    """Yields an engine without drafts, and one for each way of drafting."""
    yield "no drafts", side(model, None)
    for k in NUM_DRAFTS:
        ngram = SpeculativeSettings(
            method="ngram", num_speculative_tokens=k, prompt_lookup_min=2, prompt_lookup_max=4
        )
        yield f"n-gram, {k} drafts", side(model, DrafterParts(settings=ngram))
    if is_tiny:
        for num_layers in (4, 3, 1):
            drafting = SpeculativeSettings(
                method="draft_model", num_speculative_tokens=3, model=directory
            )
            parts = DrafterParts(settings=drafting, model=first_layers(directory, num_layers))
            yield f"draft model, {num_layers} of 4 layers, 3 drafts", side(model, parts)


def first_layers(directory: Path, num_layers: int) -> LoadedModel:
    """Returns a Llama without its other layers."""
    module = LlamaForCausalLM.from_pretrained(directory)
    module.model.layers = module.model.layers[:num_layers]
    module.config.num_hidden_layers = num_layers
    with TemporaryDirectory() as made:
        module.save_pretrained(made)
        return load_model(made, dtype="float32", device="cpu")


def side(model: LoadedModel, parts: DrafterParts | None) -> Side:
    """Returns an engine, not yet warm."""
    settings = EngineSettings(
        max_model_len=512,
        max_num_seqs=8,
        speculative_config=None if parts is None else parts.settings,
    )
    config: EngineConfig = settings.config(
        num_gpu_blocks=400,
        max_position=model.max_position,
        kv_groups=model.kv_groups(settings.block_size),
    )
    drafter = None if parts is None else parts.build(config)
    recorder = ListRecorder()
    core = EngineCore(
        config,
        ModelRunner(model, config, drafter=drafter),
        recorder=recorder,
        clock=RunClock.start().now,
        model_name=model.name,
    )
    return Side(core, recorder)


def measure(sides: Mapping[str, Side], prompts: Sequence[Sequence[int]], rounds: int) -> None:
    """Lets all sides answer in turns; the first round is the warm-up."""
    order, rng = list(sides), random.Random(1)
    for number in range(rounds + 1):
        rng.shuffle(order)
        texts = {name: sides[name].answer(prompts) for name in order}
        different = [name for name in order if texts[name] != texts["no drafts"]]
        if different:
            print(f"round {number}: other texts with {', '.join(different)}")


def print_table(title: str, sides: Mapping[str, Side]) -> None:
    """Prints of each side its cost, and what became of its drafts."""
    plain = sides["no drafts"].milliseconds[1:]
    print(f"\n{title}\n")
    print("| | ms a token | over no drafts | 95 % interval | accepted | tokens a step |")
    print("|---|---|---|---|---|---|")
    for name, one in sides.items():
        own = one.milliseconds[1:]
        ratios = [mine / theirs for mine, theirs in zip(own, plain, strict=True)]
        low, high = interval(ratios)
        drafts = one.core.stats.drafts
        accepted = tokens = "-"
        if drafts is not None and drafts.num_drafts:
            accepted = (
                f"{drafts.num_accepted_tokens / drafts.num_draft_tokens:.0%} of "
                f"{drafts.num_draft_tokens:,}"
            )
        steps = [step for step in one.recorder.steps if step.num_decode_requests]
        made = sum((s.num_decode_requests or 0) + (s.num_accepted or 0) for s in steps)
        tokens = f"{made / sum(s.num_decode_requests or 0 for s in steps):.2f}"
        print(
            f"| {name} | {statistics.median(own):.2f} | {statistics.median(ratios):.2f} | "
            f"{low:.2f} to {high:.2f} | {accepted} | {tokens} |"
        )


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Returns where the median of 95 % of bootstrap samples lies."""
    rng = random.Random(2)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(1000))
    return medians[25], medians[974]


if __name__ == "__main__":
    main()
