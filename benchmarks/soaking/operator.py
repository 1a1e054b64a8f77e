"""An operator who cannot leave a soaked engine alone: pauses, resets, and checks of the books."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx


@dataclass(slots=True)
class Operator:
    """What has been done so far, and what the books said that was wrong."""

    url: str
    random: Random
    deeds: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Interferes every few seconds; leaves the engine as it should be."""
        task = asyncio.ensure_future(self._interfere())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self.do("/resume")

    async def check_books(self) -> dict[str, Any]:
        """Returns what the engine counted; notes what is wrong."""
        answer = await self.do("/stepscope/integrity")
        if answer["error"]:
            self.problems.append(answer["error"])
            return {}
        self.problems += answer["report"]["problems"]
        report: dict[str, Any] = answer["report"]
        return report

    async def do(self, path: str, **query: Any) -> dict[str, Any]:
        """Posts to one of the operator's paths and returns the answer."""
        async with httpx.AsyncClient(base_url=self.url, timeout=60, trust_env=False) as http:
            answer = await http.post(path, params=query)
        answer.raise_for_status()
        self.deeds[" ".join([path, *(f"{name}={value}" for name, value in query.items())])] += 1
        body: dict[str, Any] = answer.json()
        return body

    async def _interfere(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 4.0))
            match self.random.randrange(5):
                case 0:
                    await self._pause(self.random.choice(["keep", "new"]))
                case 1:
                    running = self.random.random() < 0.5
                    await self.do("/reset_prefix_cache", reset_running_requests=running)
                case 2 if self.random.random() < 0.1:
                    await self._pause("abort")
                case _:
                    await self.check_books()

    async def _pause(self, mode: str) -> None:
        await self.do("/pause", mode=mode)
        await asyncio.sleep(self.random.uniform(0.05, 0.6))
        await self.do("/resume")
