"""A streaming session: one request whose input comes in pieces, with an answer after each.

When a turn ends the session waits with its blocks for more input. The next piece turns the outputs
so far into prompt; the last sampled token, which was never computed, is dropped. Pieces, and the
end, that come during a turn are queued until it is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SessionInput:
    """The next piece of a session's input."""

    token_ids: Sequence[int]
    max_tokens: int
    arrival_time: float


@dataclass(slots=True)
class Session:
    """What has been said to a session and not been taken up yet."""

    queued: deque[SessionInput] = field(default_factory=deque)
    is_closed: bool = False
    """No input will follow those that are queued."""
