"""The vLLM of all these tests, and the plug-in as it is installed into it once."""

from __future__ import annotations

import pytest

from tests.vllm_venv import VllmNotInstallableError, vllm_python
from tests.whole_line.vllm import plugin
from tests.whole_line.vllm.recording import Installed

MINUTES_FOR_ALL = 25 * 60
"""Limit of the first test, which may have to install vLLM, and of each that starts a server."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives these tests the time that an installation and a start take on a busy machine."""
    for item in items:
        if item.path.is_relative_to(plugin.INSIDE.parent):
            item.add_marker(pytest.mark.timeout(MINUTES_FOR_ALL))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Returns the vLLM and the plug-in; skips where there can be no vLLM."""
    try:
        python = vllm_python()
    except VllmNotInstallableError as error:
        pytest.skip(f"NO REAL VLLM WAS TESTED: {error}")
    folder = tmp_path_factory.mktemp("plugin")
    wheel = plugin.build_wheel(python, folder)
    site = folder / "site"
    plugin.install(python, wheel, site)
    return Installed(python, wheel, site)
