"""Runs with whatever a scenario needs: connectors, an encoder, a clock that the scenario moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from engine.config import (
    EncoderConfig,
    EngineConfig,
    KVConnectorConfig,
    SpeculationConfig,
)
from engine.encoder_cache import EncoderItem
from engine.request import Request
from engine.scheduler import ModelRunnerOutput, Scheduler, SchedulerOutput
from telemetry.vocabulary import FinishReason
from tests.engine.builders import Run, config

SECOND = 1_000_000_000


@dataclass(slots=True)
class Elsewhere:
    """Both connectors: tokens of requests (None: it cannot tell), and encoder outputs by key."""

    tokens: dict[str, int | None] = field(default_factory=dict)
    is_async: bool = True
    sends: bool = False
    keys: frozenset[str] = frozenset()

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        tokens = self.tokens.get(request.request_id, 0)
        return None if tokens is None else max(0, tokens - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        return self.is_async

    def delays_free(self, request: Request) -> bool:
        return self.sends

    def has(self, key: str) -> bool:
        return key in self.keys


@dataclass(slots=True)
class Stage:
    """A run, and the clock and the connectors that it lives with."""

    run: Run
    elsewhere: Elsewhere
    now: int = 1_000 * SECOND

    def step(
        self,
        sampled: Iterable[str] | None = None,
        *,
        throttle: bool = False,
        **reports: object,
    ) -> SchedulerOutput:
        """Runs a step; who reaches its newest token gets token 7, or only those named."""
        scheduler = self.run.scheduler
        output = scheduler.schedule(throttle_prefills=throttle)
        if sampled is None:
            scheduler.settle()
            requests = scheduler.requests
            names = output.num_scheduled_tokens
            sampled = [name for name in names if not requests[name].is_prefill_chunk]
        result = ModelRunnerOutput(
            sampled_token_ids={name: [7] for name in sampled},
            **reports,  # type: ignore[arg-type]
        )
        self.run.results += scheduler.update_from_output(output, result)
        scheduler.check_integrity()
        return output

    def steps(self, count: int) -> None:
        """Runs several steps."""
        for _ in range(count):
            self.step()

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += int(seconds * SECOND)

    def ended(self) -> Run:
        """Ends whoever is left, which hands the last row over, and returns the run."""
        names = tuple(self.run.scheduler.requests)
        self.run.scheduler.finish_requests(names, FinishReason.abort_client)
        return self.run


def stage(
    *,
    elsewhere: Elsewhere | None = None,
    connector: KVConnectorConfig | None = None,
    encoder: EncoderConfig | None = None,
    speculation: SpeculationConfig | None = None,
    chunk_alignment: int | None = None,
    **scheduler: object,
) -> Stage:
    """Returns a run with a small pool. A KV connector is there where `connector` is."""
    settings = _settings(config(**scheduler), connector, encoder, speculation, chunk_alignment)
    made = Stage(Run(settings), elsewhere or Elsewhere())
    made.run.scheduler = Scheduler(
        settings,
        recorder=made.run.recorder,
        clock=lambda: made.now,
        connector=made.elsewhere if connector is not None else None,
        ec_connector=made.elsewhere if made.elsewhere.keys else None,
    )
    return made


def _settings(
    plain: EngineConfig,
    connector: KVConnectorConfig | None,
    encoder: EncoderConfig | None,
    speculation: SpeculationConfig | None,
    chunk_alignment: int | None,
) -> EngineConfig:
    return replace(
        plain,
        kv_connector=connector,
        encoder=encoder,
        speculation=speculation or plain.speculation,
        cache=replace(plain.cache, chunk_alignment=chunk_alignment),
    )


def item(key: str, position: int, num_embeds: int = 8) -> tuple[EncoderItem, ...]:
    """Returns the encoder items of a request with one."""
    return (EncoderItem(key, position, num_embeds),)


ENCODER = EncoderConfig(compute_budget=8, cache_size=16)
"""Room for one item of 8 embeddings a step, and for two in the cache."""
