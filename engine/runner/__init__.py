"""The runner: executes what the scheduler decided, and gives back the tokens.

`Runner` is the seam: one call a step. Its tour:

* `scripted`: a runner without a model (standard library only), for tests and fault drills.
* `checkpoints`: from a model's name to its directory; `gguf_file` unpacks one, `tiny_llama` makes
  one on the spot. `model`: a checkpoint, loaded; `attention_needs`: what its layers ask for.
* `input_batch`: the persistent batch in numpy (`batch_rows`), driven by the scheduler's deltas
  alone, and its `batch_inputs`; `grouping`: which of its sequences attend together.
* `layer_groups`: which layers share block tables; `kv_tensors`: the paged KV cache and how many
  blocks fit; `attention`: attention over it, called by the `transformers` model. What attends is an
  `attention_backend`: gathering (`attention_metadata` is what a step's layers share,
  `gathered_attention` and `attention_math` the work; `decode_mirror` keeps what was gathered), or
  on CUDA one of `kernels`.
* `cpu_linear`, `cpu_norm`, `cpu_rotary`: what a CPU computes otherwise than the model's code does.
* `forward_pass`: a step's, as a CUDA graph where one fits (`decode_shapes`, `decode_buffers`,
  `graphs`). `device_profile`: what `largest_step` and graphs need of a device's memory, measured by
  `memory_profile`; `device_notes` tells it.
* `sampler`: from logits to tokens (`sample_rows` are what goes in and comes out); `rejection`
  verifies drafts that were drawn from another distribution.
* `drafter`: who guesses the next step's tokens, `ngram_drafter` or `model_drafter`, made by
  `drafters`; `drafting` is their place in a runner.
* `paged_blocks`: whole blocks of the KV cache as bytes, for a KV connector; `kv_manifest`: whose
  they are.
* `model_runner`: all of it in one `execute()`.

Importing this package loads no torch. It does tell torch's threads, unless the environment says
otherwise, to sleep while they wait for each other: by default they spin, and where another process
wants the same core a decode step then takes a hundred times as long. The OpenMP run time reads this
once, when torch is loaded. So does oneDNN with the bound of its cache of prepared products, one for
each shape of weights and number of tokens: with its own bound of 1,024 an engine grows by half a
gigabyte in ten minutes of mixed lengths, and is no faster.
"""

from __future__ import annotations

import os
from typing import Protocol

from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput
from engine.structured_output.bitmask import GrammarBitmask

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
for _cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_cache, "16")


class Runner(Protocol):
    """Executes steps, in the order in which they were scheduled."""

    def execute(
        self, output: SchedulerOutput, bitmask: GrammarBitmask | None = None
    ) -> ModelRunnerOutput:
        """Returns the next token of each scheduled request that reached its newest token.

        `bitmask` says what grammars let through, where one constrains a scheduled request.
        A step that schedules nothing is executed too: it may tell of ends and preemptions.
        """
