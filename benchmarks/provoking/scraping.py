"""The metrics page of a simulated engine, again and again: what there is without a recorder.

The numbers are counted by the engine's own `EngineStats`, rendered as its server renders them, and
read back as an import of scrapes reads them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from diagnose.reading import NS
from engine.config import EngineConfig
from engine.request import Request
from engine.scheduler import Scheduler, SchedulerOutput
from engine.scheduler.output import ModelRunnerOutput, RequestOutput
from engine.stats import EngineStats, StatsSnapshot
from telemetry.exporters.prometheus import render
from tests.diagnose.scrapes import read_scrapes
from tests.telemetry.log_builder import LogBuilder

EVERY_NS = 5 * NS
"""Time between two pages."""


class Scrapes:
    """Counts as the engine core does, and keeps what the page says every few seconds."""

    def __init__(self, config: EngineConfig, scheduler: Scheduler, started_ts: int) -> None:
        self.pages: list[tuple[int, StatsSnapshot]] = []
        """When a page was read (ns), and what it said."""
        self.flags = _flags(config)
        self._scheduler = scheduler
        self._stats = EngineStats(config, started_ts)
        self._requests: dict[str, Request] = {}
        self._next_ts = started_ts + EVERY_NS

    def arrived(self, request: Request) -> None:
        """A request has come."""
        self._requests[request.request_id] = request

    def stepped(
        self,
        output: SchedulerOutput,
        result: ModelRunnerOutput,
        results: list[RequestOutput],
        now: int,
    ) -> None:
        """A step has been taken in."""
        if self._stats.drafts is not None:
            self._stats.drafts.verified(
                output.scheduled_spec_decode_tokens, result.sampled_token_ids
            )
        self._stats.step_done(output, results, self._requests, now)
        self._let_go((told.request_id for told in results), now)

    def pass_until(self, ts: int) -> None:
        """Lets time pass: the pages that are due meanwhile say what is so now."""
        while self._next_ts <= ts:
            self._let_go(list(self._requests), self._next_ts)
            snapshot = self._stats.snapshot(
                self._scheduler, model_name="scripted", now=self._next_ts
            )
            self.pages.append((self._next_ts, snapshot))
            self._next_ts += EVERY_NS

    def _let_go(self, request_ids: Iterable[str], now: int) -> None:
        """Counts the requests among these that have ended."""
        for name in request_ids:
            request = self._requests[name]
            if request.finish_reason is not None:
                self._stats.finished(request, request.finish_reason, now)
                del self._requests[name]


def scraped_rows(
    name: str, starts: Iterable[Scrapes], flags: Mapping[str, object]
) -> list[LogBuilder]:
    """Returns what an import makes of one server's pages, over all of its starts.

    Args:
        flags: launch flags that are known besides.
    """
    with tempfile.TemporaryDirectory(prefix="stepscope-pages-") as parent:
        folder = Path(parent) / name
        folder.mkdir()
        for scrapes in starts:
            (folder / "config.json").write_text(json.dumps(scrapes.flags | dict(flags)))
            for ts, snapshot in scrapes.pages:
                (folder / f"metrics_{ts / NS:.3f}.prom").write_bytes(render(snapshot))
        return read_scrapes(folder)


def _flags(config: EngineConfig) -> dict[str, Any]:
    """Returns the launch flags that an operator would have written down."""
    limits = config.scheduler
    flags: dict[str, Any] = {
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_model_len": limits.max_model_len,
        "scheduling_policy": limits.policy,
    }
    if config.kv_connector is not None:
        name, role = config.kv_connector.connector, config.kv_connector.role
        flags["kv_transfer_config"] = {"kv_connector": name, "kv_role": role}
    return flags
