"""A stock vLLM with the plug-in beside it, run as `served.serving_ours` runs our engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.runner.tiny_llama import tiny_llama
from telemetry.collector import start_collector
from tests.vllm_venv import only_one, vllm_python
from tests.whole_line.vllm import plugin
from tests.whole_line.vllm.server import serving


@contextlib.contextmanager
def serving_vllm(folder: Path, flags: Sequence[str]) -> Iterator[str]:
    """Runs a vLLM and a collector of its rings, and yields its address; the vLLM ends in order.

    The plug-in is installed beside the folder, by the first run of several.
    """
    python, site = vllm_python(), folder.parent / "vllm-site"
    with only_one(site.with_suffix(".lock")):
        if not site.exists():
            plugin.install(python, plugin.build_wheel(python, folder), site)
    log, rings = folder / "log", folder / "rings"
    for directory in (log, rings):
        directory.mkdir()
    recording = {"STEPSCOPE_LOG": str(log), "STEPSCOPE_RING_DIR": str(rings)}
    inherited = dict(os.environ)
    os.environ |= recording
    try:
        start_collector(log, linger_seconds=600)
        environment = recording | {"PYTHONPATH": str(site)}
        with serving(python, tiny_llama(), folder / "vllm.log", flags, environment) as server:
            yield server.url
    finally:
        for name in recording:
            os.environ.pop(name)
        os.environ |= inherited
