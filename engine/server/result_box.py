"""Where the results of an API call wait until somebody looks."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from engine.scheduler.output import RequestOutput


class ResultBox:
    """Results of the requests of one API call; what comes while nobody looks is kept together.

    A client that does not read makes it grow, by what its requests may still say and no further.

    Args:
        request_id: the API call's.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self._pending: list[RequestOutput] = []
        self._has_pending = asyncio.Event()

    def put(self, result: RequestOutput) -> None:
        """Appends a result."""
        self._pending.append(result)
        self._has_pending.set()

    async def peek(self) -> list[RequestOutput]:
        """Returns what `take` would, waiting for some, and leaves it there."""
        await self._has_pending.wait()
        return list(self._pending)

    async def take(self) -> list[RequestOutput]:
        """Returns what has come since the last call, one result a request, waiting for some."""
        await self._has_pending.wait()
        results, self._pending = self._pending, []
        self._has_pending.clear()
        if len(results) == 1:
            return results
        merged: dict[str, RequestOutput] = {}
        for result in results:
            before = merged.get(result.request_id)
            if before is not None:
                result = replace(
                    result,
                    new_token_ids=before.new_token_ids + result.new_token_ids,
                    logprobs=before.logprobs + result.logprobs,
                )
            merged[result.request_id] = result
        return list(merged.values())
