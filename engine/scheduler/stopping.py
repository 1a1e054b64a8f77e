"""When a request has enough tokens."""

from __future__ import annotations

from engine.request import Request
from telemetry.vocabulary import FinishReason


def stop_after(request: Request, token_id: int, max_model_len: int) -> FinishReason | None:
    """Returns why a request ends with the token it was just given; None if it goes on."""
    sampling = request.sampling
    if request.num_output_tokens >= sampling.min_tokens:
        if token_id == request.eos_token_id and not sampling.ignore_eos:
            return FinishReason.stop
        if token_id in sampling.stop_token_ids:
            return FinishReason.stop
    if request.num_tokens >= max_model_len or request.num_output_tokens >= sampling.max_tokens:
        return FinishReason.length
    return None
