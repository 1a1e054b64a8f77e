"""A subclass of vLLM's scheduler that records what the scheduler does.

Whatever class vLLM chose is subclassed: its own, the asynchronous one, a user's. A method of the
subclass calls the original with what it was given and returns what that returned. Before it, or
after, the journal hears of it: `before_schedule` before vLLM's `schedule`, with its arguments;
`after_schedule` after it, with the result and the arguments. The journal reads and changes nothing.

Not responsible for what is written down (`journal`), nor for errors in that (`guard`).
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol

from telemetry.recorder import Recorder
from telemetry.records import RunClock
from telemetry.sources.vllm.compatibility import Features
from telemetry.sources.vllm.guard import Guard
from telemetry.sources.vllm.journal import Journal

METHODS: dict[str, str] = {
    "schedule": "step_rows",
    "_update_after_schedule": "step_rows",
    "update_from_output": "step_rows",
    "add_request": "request_events",
    "finish_requests": "request_events",
    "_free_request": "request_events",
    "_handle_stopped_request": "request_events",
    "_update_request_as_session": "request_events",
    "_preempt_request": "preemptions",
    "_handle_blocked_waiting_request": "waiting_reasons",
    "_ec_transfer_pending": "waiting_reasons",
    "_allocate_encoder_inputs": "encoder",
    "_update_from_kv_xfer_finished": "connector_stages",
    "_handle_failed_recving": "connector_stages",
    "_update_requests_with_invalid_blocks": "connector_stages",
    "update_draft_token_ids": "drafts",
    "set_pause_state": "pauses",
    "reset_prefix_cache": "pauses",
    "reset_encoder_cache": "pauses",
    "shutdown": "step_rows",
}
"""Methods of vLLM's scheduler that are hooked, each with the feature that needs it."""

INSTANCE_METHODS: dict[tuple[str, str], str] = {
    ("kv_cache_manager", "allocate_slots"): "allocation_failures",
    ("connector", "get_num_new_matched_tokens"): "connector_stages",
    ("encoder_cache_manager", "can_allocate"): "encoder",
    ("ec_connector", "ensure_cache_available"): "encoder",
}
"""Methods of the scheduler's parts that are hooked on the one object that it has."""

_log = logging.getLogger("stepscope")


class OpenRecorder(Protocol):
    """Opens the recorder of the engine whose scheduler was just made, on the engine's clock."""

    def __call__(self, scheduler: Any, clock: RunClock) -> Recorder: ...


def recording_class(base: type, features: Features, open_recorder: OpenRecorder) -> type:
    """Returns a subclass of a scheduler class whose schedulers are recorded.

    The recorder is opened when a scheduler is made. Where that fails, or the recorder has no room,
    the scheduler works as `base` does.
    """
    namespace: dict[str, Any] = {
        "_stepscope": None,
        "_stepscope_hooks": None,
        "__doc__": base.__doc__,
    }
    for name, feature in METHODS.items():
        original = getattr(base, name, None)
        if original is not None and getattr(features, feature):
            namespace[name] = _hooked_method(original, name)
    namespace["__init__"] = _recorded_init(base, features, open_recorder)
    return type(f"Recorded{base.__name__}", (base,), namespace)


def _recorded_init(base: Any, features: Features, open_recorder: OpenRecorder) -> Any:
    original = base.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        try:
            self._stepscope = _attach(self, features, open_recorder)
        except Exception as error:  # the telemetry edge: vLLM must start all the same
            what = type(error).__name__
            _log.warning("stepscope: vLLM runs unrecorded, attaching failed: %s", what)

    return __init__


def _attach(
    scheduler: Any, features: Features, open_recorder: OpenRecorder
) -> SimpleNamespace | None:
    """Starts a journal of a scheduler; returns its handle, or None where nothing is recorded.

    The handle is for whoever ends the engine: `before_shutdown()`, and `failed(kind)`.
    """
    clock = RunClock.start()
    recorder = open_recorder(scheduler, clock)
    if not recorder.is_recording:
        return None
    journal = Journal(scheduler, recorder, clock.now, features)

    def give_up(what: str) -> None:
        scheduler._stepscope_hooks = None
        journal.give_up(what)

    guard = Guard(journal.note_error, give_up)
    try:
        _hook_parts(scheduler, features, journal, guard)
    except BaseException:
        guard.is_on = False
        raise
    guard.protect(journal.started)()
    scheduler._stepscope_hooks = Hooks(journal, guard)
    return SimpleNamespace(
        guard=guard,
        before_shutdown=guard.protect(journal.before_shutdown),
        failed=guard.protect(journal.failed),
    )


def _hook_parts(scheduler: Any, features: Features, journal: Journal, guard: Guard) -> None:
    """Has the journal hear of what the scheduler's parts answer."""
    for (part, name), feature in INSTANCE_METHODS.items():
        owner = getattr(scheduler, part, None)
        original = getattr(owner, name, None)
        if original is None or not getattr(features, feature):
            continue
        hook = getattr(journal, f"after_{name}")
        if name == "allocate_slots":
            journal.listen_to_allocations(hook, guard)
        else:
            _replace(owner, name, guard.listen(original, hook))
    if features.kv_blocks:
        journal.blocks.watch_free_list(guard)


def _replace(owner: Any, name: str, method: Callable[..., Any]) -> None:
    """Gives one object a method of its own, where it can have one."""
    try:
        setattr(owner, name, method)
    except (AttributeError, TypeError) as error:
        kind = type(owner).__name__
        _log.warning("stepscope: %s.%s() cannot be listened to: %s", kind, name, error)


class Hooks(dict[str, Callable[..., None]]):
    """The journal's hooks by name, and the guard that takes what they raise."""

    def __init__(self, journal: Journal, guard: Guard) -> None:
        names = (name for name in dir(journal) if name.startswith(("before_", "after_")))
        super().__init__({name: getattr(journal, name) for name in names})
        self.failed = guard.failed


def _hooked_method(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Returns a method that answers as `original` does, with the journal's hooks around it."""
    stem = name.lstrip("_")
    before, after = f"before_{stem}", f"after_{stem}"
    has_before, has_after = hasattr(Journal, before), hasattr(Journal, after)

    if has_after and not has_before and _takes_a_request(original):
        return _listening_to_a_request(original, after)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks = self._stepscope_hooks
        if has_before and hooks is not None:
            try:
                hooks[before](*args, **kwargs)
            except Exception as error:  # the telemetry edge
                hooks.failed(before, error)
        result = original(self, *args, **kwargs)
        if has_after and hooks is not None:
            try:
                hooks[after](result, *args, **kwargs)
            except Exception as error:  # the telemetry edge
                hooks.failed(after, error)
        return result

    return method


def _takes_a_request(method: Callable[..., Any]) -> bool:
    return list(inspect.signature(method).parameters) == ["self", "request"]


def _listening_to_a_request(original: Callable[..., Any], after: str) -> Callable[..., Any]:
    """Returns the same for a method of a request alone: one is called for each that waits."""

    @functools.wraps(original)
    def method(self: Any, request: Any) -> Any:
        result = original(self, request)
        hooks = self._stepscope_hooks
        if hooks is not None:
            try:
                hooks[after](result, request)
            except Exception as error:  # the telemetry edge
                hooks.failed(after, error)
        return result

    return method
