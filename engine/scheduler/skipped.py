"""Who has been set aside since its last admission.

Steps ask how many sessions are among them that cannot go on yet, and there may be thousands of
others; so the sessions are kept apart as well.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSet

from engine.request import Request
from telemetry.vocabulary import SkipReason


class SkippedRequests(MutableSet[Request]):
    """A set of requests that knows its sessions."""

    def __init__(self) -> None:
        self._requests: set[Request] = set()
        self._sessions: set[Request] = set()

    @property
    def num_idle_sessions(self) -> int:
        """Sessions between two turns, with no input to go on with."""
        return sum(request.blocked_by is SkipReason.streaming_input for request in self._sessions)

    def add(self, value: Request) -> None:
        """Adds a request."""
        self._requests.add(value)
        if value.session is not None:
            self._sessions.add(value)

    def discard(self, value: Request) -> None:
        """Removes a request, if it is there."""
        self._requests.discard(value)
        self._sessions.discard(value)

    def __contains__(self, value: object) -> bool:
        return value in self._requests

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)
