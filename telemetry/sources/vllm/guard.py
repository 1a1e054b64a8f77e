"""Keeps the recorder's own errors away from vLLM.

Whatever vLLM calls of ours stands in a `try` that hands what was raised to a `Guard`. It is counted
and dropped, with the step it happened in; after `MAX_ERRORS` of them the guard is off: nothing of
ours is called any more, and vLLM runs as if it were not recorded.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

MAX_ERRORS = 5
"""Errors of the recorder after which it gives up for good."""

_log = logging.getLogger("stepscope")


class Guard:
    """Counts errors of ours, and says when to stop.

    Args:
        on_error: told of each error, in a sentence.
        on_end: told once, in a sentence, that nothing is recorded from now on.
    """

    def __init__(self, on_error: Callable[[str], None], on_end: Callable[[str], None]) -> None:
        self.is_on = True
        self.num_errors = 0
        self._on_error = on_error
        self._on_end = on_end

    def failed(self, name: str, error: Exception) -> None:
        """Counts an error; its own words are not repeated, they may quote a prompt."""
        if not self.is_on:
            return
        self.num_errors += 1
        what = f"{name} of the vLLM recorder failed with {type(error).__name__}"
        _log.debug("stepscope: %s", what, exc_info=error)
        self._try(self._on_error, what)
        if self.num_errors >= MAX_ERRORS:
            self.is_on = False
            what = f"{self.num_errors} errors, the last: {what}. Nothing is recorded any more"
            _log.warning("stepscope: %s; vLLM itself is not affected", what)
            self._try(self._on_end, what)

    def protect(self, hook: Callable[..., None]) -> Callable[..., None]:
        """Returns a function that never raises, and does nothing once the guard is off."""

        @functools.wraps(hook)
        def protected(*args: Any, **kwargs: Any) -> None:
            if self.is_on:
                try:
                    hook(*args, **kwargs)
                except Exception as error:  # the telemetry edge
                    self.failed(getattr(hook, "__name__", "a hook"), error)

        return protected

    def listen(
        self, original: Callable[..., Any], after: Callable[..., None]
    ) -> Callable[..., Any]:
        """Returns a function that answers as `original` does, and tells `after` of each call.

        `after` is given the answer and the arguments.
        """

        @functools.wraps(original)
        def listening(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self.is_on:
                try:
                    after(result, *args, **kwargs)
                except Exception as error:  # the telemetry edge
                    self.failed(getattr(after, "__name__", "a hook"), error)
            return result

        return listening

    @staticmethod
    def _try(tell: Callable[[str], None], what: str) -> None:
        try:
            tell(what)
        except Exception as error:  # the telemetry edge
            _log.debug("stepscope: an error could not be told", exc_info=error)
