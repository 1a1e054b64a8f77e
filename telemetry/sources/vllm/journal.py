"""The journal of one vLLM scheduler: all that it hears, and its own beginning and end.

A hook has the name of the method of vLLM's that it belongs to, and is called before that method
with its arguments, or after it with its result and its arguments. `recording` sees to that, and to
nothing that a hook does ever reaching vLLM.
"""

from __future__ import annotations

from telemetry.sources.vllm.load_hooks import LoadHooks
from telemetry.sources.vllm.request_hooks import RequestHooks
from telemetry.sources.vllm.scan_hooks import ScanHooks
from telemetry.sources.vllm.step_hooks import StepHooks
from telemetry.vocabulary import EventKind, Phase


class Journal(StepHooks, ScanHooks, LoadHooks, RequestHooks):
    """Writes down what one scheduler does."""

    _has_ended = False

    def started(self) -> None:
        """The scheduler was made: the engine is about to take requests."""
        event = self.note(EventKind.engine_started, None)
        event.num_steps_in_flight = None
        self.steps.tell(event)

    def before_shutdown(self) -> None:
        """The engine was asked to end."""
        self._end_with(EventKind.engine_stopped, None)

    def failed(self, kind: str) -> None:
        """The engine cannot go on; `kind` is the name of the error's class, and no more of it."""
        self._end_with(EventKind.engine_failed, kind)

    def _end_with(self, kind: EventKind, text: str | None) -> None:
        """Tells how the engine ends, and lets the recorder go; only the first end counts."""
        if self._has_ended:
            return
        self._has_ended = True
        event = self.note(kind, None)
        event.num_steps_in_flight, event.text = None, text
        self.steps.flush()
        self.recorder.record_events([event])
        self.recorder.close()

    def note_error(self, what: str) -> None:
        """Something of ours failed: the step it happened in is dropped and the error counted."""
        self.drop_update()
        self.steps.abandon()
        self.recorder.count_error(what)

    def give_up(self, what: str) -> None:
        """Too much failed: says so. No phase is told from now on, and none must seem to last."""
        event = self.note(EventKind.recorder_degraded, None)
        event.text = what
        self.recorder.record_events([event])
        self.recorder.enter_phase(self.steps.step, Phase.idle)
