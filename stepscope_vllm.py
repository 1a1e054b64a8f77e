"""The entry point through which vLLM finds Stepscope's plug-in (group `vllm.general_plugins`).

A module of its own, with a name that nobody else has, because vLLM runs in its user's folders: a
folder `telemetry/` there could be found in place of ours. So this module looks first. It is called
in every process of vLLM's, an exception in it would stop the server, and most processes are not
recorded: it catches everything, and without one of the two variables it does nothing at all.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping
from pathlib import Path

SWITCHES = ("STEPSCOPE_LOG", "STEPSCOPE_RING_DIR")
"""Variables of which one has to be set for an engine to be recorded."""

_log = logging.getLogger("stepscope")


def register() -> None:
    """Has this process's engine cores recorded, where that is wanted. Never raises."""
    try:
        if is_wanted(os.environ):
            _register()
    except Exception as error:  # the telemetry edge: the server must start all the same
        _log.warning("stepscope: vLLM runs unrecorded, the plug-in has failed: %r", error)


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Returns whether this process was told to record."""
    return any(environ.get(name) for name in SWITCHES)


def shadow() -> str | None:
    """Returns the file of another package `telemetry` that is found in place of ours, or None."""
    ours = Path(__file__).resolve().parent / "telemetry" / "__init__.py"
    spec = importlib.util.find_spec("telemetry")
    if spec is None:
        return "nothing"
    if spec.origin is not None and Path(spec.origin).resolve() == ours:
        return None
    return spec.origin or ", ".join(spec.submodule_search_locations or ["nothing"])


def _register() -> None:
    found = shadow()
    if found is not None:
        _log.warning(
            "stepscope: vLLM runs unrecorded: `import telemetry` finds %s, not the package that "
            "belongs to %s; start vLLM in another folder, or rename that one",
            found,
            __file__,
        )
        return
    import telemetry.sources.vllm

    telemetry.sources.vllm.register()
