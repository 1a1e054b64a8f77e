"""Puts together what records a scheduler class: what may be hooked, the hooks, and the ring."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from telemetry.recorder import Recorder
from telemetry.records import EngineRow, RunClock
from telemetry.ring import RingRecorder, open_recorder
from telemetry.sources.vllm.compatibility import Compatibility, compatibility_of
from telemetry.sources.vllm.description import bare_row, engine_row
from telemetry.sources.vllm.hooking import hooks_of
from telemetry.sources.vllm.journal import Journal
from telemetry.sources.vllm.parting import part_in_time
from telemetry.sources.vllm.recording import INSTANCE_METHODS, METHODS, recording_class

_log = logging.getLogger("stepscope")
_vllm_log = logging.getLogger("vllm.stepscope")
"""Below vLLM's own logger, which shows good news as well; ours shows warnings alone."""


def recording_subclass(scheduler: type) -> type:
    """Returns a subclass of a scheduler class that records, or the class where none can be made.

    Warns, once, of all that cannot be recorded.
    """
    compatibility = look_at(scheduler)
    if warning := compatibility.warning():
        _log.warning("stepscope: %s", warning)
    if not compatibility.can_record:
        return scheduler
    _part_in_time()
    return recording_class(scheduler, compatibility.features, RingOpener(compatibility))


def look_at(scheduler: type) -> Compatibility:
    """Returns what can be recorded of a scheduler class in the vLLM that is installed here."""
    hooks = hooks_of(Journal, METHODS, INSTANCE_METHODS)
    return compatibility_of(scheduler, vllm_version(), hooks)


def _part_in_time() -> None:
    """Has engine cores say good-bye early; where there is no such place, their scheduler does."""
    try:
        from vllm.v1.engine.core import EngineCore

        part_in_time(EngineCore)
    except (ImportError, AttributeError) as error:
        _log.debug("stepscope: the end of an engine is recorded late: %r", error)


def vllm_version() -> str | None:
    """Returns what vLLM says of its own version."""
    try:
        from vllm.version import __version__
    except ImportError:
        return None
    return str(__version__)


@dataclass(frozen=True, slots=True)
class RingOpener:
    """Opens the ring of an engine, and writes into it what the engine is.

    It never raises: where there is no room, the recorder records nothing and has said so.
    """

    compatibility: Compatibility
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def __call__(self, scheduler: Any, clock: RunClock) -> Recorder:
        log = self.environ.get("STEPSCOPE_LOG")
        place = Path(log) if log else None
        recorder = open_recorder(place, clock, source="vllm", environ=self.environ)
        recorder.describe_engine(self._row(scheduler, clock.wall_anchor_ns))
        if isinstance(recorder, RingRecorder):
            _vllm_log.info("Stepscope records engine %016x in %s", recorder.engine, recorder.path)
        return recorder

    def _row(self, scheduler: Any, started_ts: int) -> EngineRow:
        try:
            return engine_row(scheduler, self.compatibility, started_ts=started_ts)
        except Exception as error:  # the telemetry edge
            _log.warning("stepscope: the engine's settings are not recorded: %r", error)
            return bare_row(self.compatibility, started_ts=started_ts)
