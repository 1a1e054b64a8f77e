"""How the recorder gets into vLLM's engine core: through the scheduler class that it asks for.

vLLM calls `register()` in each of its processes: API servers, engine cores, workers, and short
ones that inspect models. Which of these it is cannot be told at that time (an offline `LLM`
without multiprocessing is all of them at once). But only an engine core calls
`SchedulerConfig.get_scheduler_cls`, just before it makes its scheduler. So that method is wrapped
everywhere, and answers with a recording subclass of whatever class it would have answered: vLLM's
own, the asynchronous one, or a user's. Until it is called nothing else is imported or touched.

Invariants:
    Nothing here raises into vLLM. What goes wrong is warned of once, and vLLM gets the class that
    it would have got.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

_log = logging.getLogger("stepscope")
_MARK = "_stepscope_records"


def attach(config: Any) -> None:
    """Has `config`, vLLM's SchedulerConfig, answer with recording scheduler classes.

    Does nothing where it does so already.
    """
    original = config.get_scheduler_cls
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def get_scheduler_cls(self: Any) -> type:
        return recording(original(self))

    setattr(get_scheduler_cls, _MARK, True)
    config.get_scheduler_cls = get_scheduler_cls


@functools.cache
def recording(scheduler: type) -> type:
    """Returns a recording subclass of a scheduler class, or the class itself with one warning."""
    if hasattr(scheduler, _MARK):
        return scheduler
    try:
        from telemetry.sources.vllm.subclassing import recording_subclass

        made = recording_subclass(scheduler)
        if made is not scheduler:
            setattr(made, _MARK, True)
    except Exception as error:  # the telemetry edge: vLLM must start all the same
        _log.warning("stepscope: vLLM runs unrecorded, the plug-in has failed: %r", error)
        return scheduler
    return made
