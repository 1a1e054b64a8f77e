"""Flags of `vllm serve` that bring more into the record, by the versions that have them.

No flag is named to somebody whose vLLM may not have it: what is not in this list is not known.

Source: `vllm serve --help=all` of each version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

FLAGS: Mapping[str, frozenset[str]] = {
    "0.32": frozenset(
        {
            "--disable-log-stats",
            "--enable-prefix-caching",
            "--kv-events-config",
            "--otlp-traces-endpoint",
            "--shutdown-timeout",
        }
    ),
}
"""Of each version, major and minor, the flags that matter here."""


def has_flag(version: str | None, flag: str) -> bool:
    """Returns whether a vLLM is known to have a flag."""
    minor = re.match(r"\d+\.\d+(?!\d)", version or "")
    return minor is not None and flag in FLAGS.get(minor[0], frozenset())
