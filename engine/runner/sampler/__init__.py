"""From logits to tokens, a row of logits at a time; a sequence has one row, and one for each draft.

The order is vLLM's: a grammar's `bitmask`; log probabilities are of what is then there (`logprobs`:
vLLM's `raw_logprobs`); `processors`: ends that are held back, biases; `penalties` (`token_counts`
are what they count); then greedy rows take the best token (`likeliest`), and the others go through
temperature, min-p, top-k and top-p (`truncation`) to a draw (`draws`). `acceptance` keeps the
tokens up to the first draft that was wrong. `sampler` holds what each request asked for and does it
all; `rows` is a step's rows, one by one.

A draw depends on the request's seed and on the output's index, and on nothing else.
"""

from engine.runner.sampler.sampler import Sampler

__all__ = ["Sampler"]
