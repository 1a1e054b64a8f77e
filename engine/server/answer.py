"""What every kind of answer can do: be one JSON object, or a stream of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from engine.server.generation import Generation


class Answer(Protocol):
    """The JSON of a generation. `is_streamed` says which of the two the client wants."""

    generation: Generation
    is_streamed: bool

    async def as_object(self) -> dict[str, Any]:
        """Returns the whole answer once it is complete."""

    def as_chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the objects of a streamed answer, the usage last where it was asked for."""
