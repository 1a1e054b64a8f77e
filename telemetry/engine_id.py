"""An engine's number as people write it: 16 hex digits, since JavaScript would round the number."""

from __future__ import annotations

import re

from telemetry.errors import StepscopeError


def parse_engine(text: str) -> int:
    """Returns an engine's number from up to 16 hex digits.

    Raises:
        StepscopeError: It is no such number.
    """
    if not re.fullmatch("[0-9a-fA-F]{1,16}", text):
        raise StepscopeError(
            f"--engine is {text!r}: write its 16 hex digits, as `stepscope doctor` shows them"
        )
    return int(text, 16)
