"""From settings to a core that takes requests, told to the record: for a server and for `LLM`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from engine.core import EngineCore
from engine.identity import LifeEvents, describe, introduce
from engine.loading import LoadedEngine, load_engine
from engine.settings import EngineSettings
from telemetry.recorder import Recorder
from telemetry.records import RunClock
from telemetry.vocabulary import Phase


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """A core that takes requests, and what it was made of."""

    core: EngineCore
    loaded: LoadedEngine


def start_engine(
    settings: EngineSettings,
    recorder: Recorder,
    life: LifeEvents,
    clock: RunClock,
    *,
    api_url: str | None = None,
) -> StartedEngine:
    """Loads what the settings ask for.

    Args:
        clock: the run's; the recorder's too.
        api_url: where its API listens, for the record; None without one.

    Raises:
        Exception: it cannot be loaded, which the record knows then; `ValueError` where a person's
            setting is to blame.
    """
    row = introduce(
        started_ts=clock.wall_anchor_ns,
        model=settings.model_name,
        version=_version(),
        api_url=api_url,
    )
    recorder.describe_engine(row)
    life.starting("loading the model")
    core: EngineCore | None = None

    def enter_phase(phase: Phase) -> None:
        recorder.enter_phase(0 if core is None else core.num_steps, phase)

    try:
        loaded = load_engine(settings, phase_hook=enter_phase)
    except Exception as error:
        life.failed(f"{type(error).__name__}: {error}")
        raise
    core = EngineCore(
        loaded.config,
        loaded.runner,
        recorder=recorder,
        clock=clock.now,
        model_name=settings.model_name,
        eos_token_ids=loaded.eos_token_ids,
        structured_outputs=loaded.structured_outputs(),
        transfers=loaded.transfers,
    )
    recorder.describe_engine(
        describe(row, loaded.config, device=loaded.device, memory=loaded.memory)
    )
    life.started()
    return StartedEngine(core, loaded)


def _version() -> str | None:
    try:
        return metadata.version("stepscope")
    except metadata.PackageNotFoundError:
        return None
