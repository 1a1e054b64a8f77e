"""What installing the plug-in does to an environment that has a vLLM."""

from __future__ import annotations

from tests.whole_line.vllm import plugin
from tests.whole_line.vllm.recording import Installed


def test_nothing_but_the_plugin_itself_would_change(installed: Installed) -> None:
    assert plugin.would_install(installed.python, installed.wheel) == ["stepscope"]
