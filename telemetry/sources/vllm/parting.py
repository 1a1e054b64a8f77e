"""Says good-bye in time: before an engine core takes itself apart, not after.

An engine core that was asked to end stops its workers first and its scheduler last, and it is
killed as soon as `--shutdown-timeout` (0 s) is over. So the recorder hears of the end as its
shutdown begins. There it can be told, too, whether the engine was asked to end or has failed.

Source: vLLM 0.32, vllm/v1/engine/core.py, `EngineCoreProc.run_engine_core`.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

_log = logging.getLogger("stepscope")
_MARK = "_stepscope_parts"


def part_in_time(engine_core: Any) -> None:
    """Has engine cores of a class tell the recorder of their scheduler that they end.

    Does nothing where it does so already.
    """
    original = engine_core.shutdown
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        _say_good_bye(getattr(self, "scheduler", None), sys.exc_info()[1])
        return original(self, *args, **kwargs)

    setattr(shutdown, _MARK, True)
    engine_core.shutdown = shutdown


def _say_good_bye(scheduler: Any, error: BaseException | None) -> None:
    """Tells the recorder of a scheduler, if it has one; `error` is what the engine ends with.

    Of the error only its kind is told: its words may quote a prompt.
    """
    try:
        hooks = getattr(scheduler, "_stepscope", None)
        if hooks is None:
            return
        if error is None or isinstance(error, SystemExit | KeyboardInterrupt):
            hooks.before_shutdown()
        else:
            hooks.failed(type(error).__name__)
    except Exception as problem:  # the telemetry edge
        _log.warning("stepscope: the end of the engine was not recorded: %r", problem)
