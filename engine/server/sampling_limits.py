"""What sampling may ask of this engine and this model; what is wrong anywhere is told before."""

from __future__ import annotations

from engine.sampling import SamplingParams
from engine.server.api_error import bad_request
from engine.server.engine_client import EngineClient


def check_limits(client: EngineClient, sampling: SamplingParams, logprobs_field: str) -> None:
    """Returns if a model has the tokens, and the server's settings allow the log probabilities.

    Args:
        logprobs_field: the request's field that says how many, for the error.

    Raises:
        ApiError: 400, the field that asks for too much, and the limit.
    """
    vocab_size = client.check_ready().vocab_size
    for token_id, _ in sampling.logit_bias:
        if token_id >= vocab_size:
            raise bad_request(
                f"logit_bias has token {token_id}, outside 0 to {vocab_size - 1}, the model's "
                "vocabulary",
                "logit_bias",
            )
    limit = client.settings.max_logprobs
    if sampling.logprobs is not None and sampling.logprobs > limit:
        raise bad_request(
            f"{logprobs_field} is {sampling.logprobs} but at most {limit} are told of each token "
            "here: ask for fewer, or start the server with a larger --max-logprobs",
            logprobs_field,
        )
