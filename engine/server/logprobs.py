"""Log probabilities as the API tells them: the old form of completions, and the one of chats."""

from __future__ import annotations

from typing import Any

from engine.scheduler.output import TokenLogprobs
from engine.server.generation import Piece
from engine.text.token_spelling import Spelling, spelled_without_tokenizer
from engine.text.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON does not have; vLLM's number."""


def completion_logprobs(piece: Piece, tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    """Returns `logprobs` of a choice of `/v1/completions`; None where there are none.

    A token's `top_logprobs` have the token itself too, as OpenAI's and vLLM's do.
    """
    if not piece.logprobs:
        return None
    each = [(one, _spelling(tokenizer, one.token_id)) for one in piece.logprobs]
    return {
        "text_offset": list(piece.starts),
        "token_logprobs": [_finite(one.logprob) for one, _ in each],
        "tokens": [spelling.text for _, spelling in each],
        "top_logprobs": [_by_text(one, tokenizer) for one, _ in each],
    }


def chat_logprobs(piece: Piece, tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    """Returns `logprobs` of a choice of `/v1/chat/completions`; None where there are none."""
    if not piece.logprobs:
        return None
    content = [
        {
            **_entry(one.token_id, one.logprob, tokenizer),
            "top_logprobs": [_entry(*pair, tokenizer) for pair in one.top],
        }
        for one in piece.logprobs
    ]
    return {"content": content, "refusal": None}


def _by_text(one: TokenLogprobs, tokenizer: Tokenizer | None) -> dict[str, float]:
    """Returns the likeliest tokens by text; of two that are written alike, the likelier."""
    found: dict[str, float] = {}
    for token_id, logprob in (*one.top, (one.token_id, one.logprob)):
        found.setdefault(_spelling(tokenizer, token_id).text, _finite(logprob))
    return found


def _entry(token_id: int, logprob: float, tokenizer: Tokenizer | None) -> dict[str, Any]:
    spelling = _spelling(tokenizer, token_id)
    utf8 = None if spelling.utf8 is None else list(spelling.utf8)
    return {"token": spelling.text, "logprob": _finite(logprob), "bytes": utf8}


def _spelling(tokenizer: Tokenizer | None, token_id: int) -> Spelling:
    if tokenizer is None:
        return spelled_without_tokenizer(token_id)
    return tokenizer.spelling(token_id)


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
