from collections.abc import Iterator

import pytest

from tests.engine.server.server_process import ServerProcess, serving


@pytest.fixture(scope="package")
def tiny_server() -> Iterator[ServerProcess]:
    """A server with the tiny Llama and a pool of 63 blocks, 1,008 tokens."""
    with serving(
        *("--num-gpu-blocks-override", "64", "--max-model-len", "1500"),
        *("--scheduling-policy", "priority"),
    ) as server:
        yield server
