"""Where the results of an API call wait until somebody looks."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from engine.scheduler.output import RequestOutput


class ResultBox:
    """Results of the requests of one API call; what comes while nobody looks is kept together."""

    def __init__(self) -> None:
        self._pending: list[RequestOutput] = []
        self._has_pending = asyncio.Event()

    def put(self, result: RequestOutput) -> None:
        """Appends a result."""
        self._pending.append(result)
        self._has_pending.set()

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
                tokens = before.new_token_ids + result.new_token_ids
                result = replace(result, new_token_ids=tokens)
            merged[result.request_id] = result
        return list(merged.values())
