"""Keeps the recorder's own errors away from vLLM.

Everything that vLLM calls of ours goes through a `Guard`. What raises there is counted and dropped,
with the step it happened in; after `MAX_ERRORS` of them the guard lets nothing through any more and
vLLM runs as if it were not recorded.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

MAX_ERRORS = 5
"""Errors of the recorder after which it gives up for good."""

GIVEN_UP = "Nothing is recorded any more"
"""How it says so; `stepscope doctor` knows it by that."""

_log = logging.getLogger("stepscope")


class Guard:
    """Calls hooks so that none of them can raise.

    Args:
        on_error: told of each error, in a sentence.
        on_end: told once, in a sentence, that nothing is recorded from now on.
    """

    def __init__(self, on_error: Callable[[str], None], on_end: Callable[[str], None]) -> None:
        self.is_on = True
        self.num_errors = 0
        self._on_error = on_error
        self._on_end = on_end

    def protect(self, hook: Callable[..., None]) -> Callable[..., None]:
        """Returns a hook that never raises, and does nothing once the guard has given up."""

        @functools.wraps(hook)
        def protected(*args: Any, **kwargs: Any) -> None:
            if not self.is_on:
                return
            try:
                hook(*args, **kwargs)
            except Exception as error:  # the telemetry edge
                self._failed(getattr(hook, "__name__", "a hook"), error)

        return protected

    def _failed(self, name: str, error: Exception) -> None:
        """Counts an error; its own words are not repeated, they may quote a prompt."""
        self.num_errors += 1
        what = f"{name} of the vLLM recorder failed with {type(error).__name__}"
        _log.debug("stepscope: %s", what, exc_info=error)
        self._try(self._on_error, what)
        if self.num_errors >= MAX_ERRORS and self.is_on:
            self.is_on = False
            what = f"{self.num_errors} errors, the last: {what}. {GIVEN_UP}"
            _log.warning("stepscope: %s; vLLM itself is not affected", what)
            self._try(self._on_end, what)

    @staticmethod
    def _try(tell: Callable[[str], None], what: str) -> None:
        try:
            tell(what)
        except Exception as error:  # the telemetry edge
            _log.debug("stepscope: an error could not be told", exc_info=error)
