"""The name of a log, which with a rank is the identity of an engine.

A log is turned over, packed and copied, and is still the same engine's: `vllm.log.2.gz` and
`/tmp/vllm.log` are both `vllm.log`. Kubernetes names a container's files by a number only; there
the folders above name pod and container.
"""

from __future__ import annotations

import re
from pathlib import Path

_TURNED = re.compile(r"(?:\.gz|\.\d{1,4}|[-.]\d{8}(?:-\d{4,6})?)+$")
_ONLY_NUMBER = re.compile(r"\d+\.log")


def log_name(path: Path) -> str:
    """Returns the name of the log that a file is a part of."""
    name = path.name.removesuffix(".gz")
    name = _TURNED.sub("", name) or name
    if _ONLY_NUMBER.fullmatch(name):
        folders = path.absolute().parts[-3:-1]
        return "/".join((*folders, "log")) if folders else name
    return name
