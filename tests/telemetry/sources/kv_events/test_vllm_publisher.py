"""vLLM's own publisher, in its own environment, tells the listener of its events."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from telemetry.sources.kv_events.endpoints import Endpoint
from telemetry.sources.kv_events.hashes import BlockHasher, key_of
from tests.telemetry.sources.kv_events.test_subscriber import listening
from tests.vllm_venv import VllmNotInstallableError, vllm_python

PUBLISHES = """
import sys, time
from vllm.distributed.kv_events import (
    AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, ZmqEventPublisher,
)
publisher = ZmqEventPublisher(1, endpoint=sys.argv[1], topic="kv")
stored = BlockStored(
    block_hashes=[b"a" * 32, 1 << 63], parent_block_hash=b"p" * 32, token_ids=list(range(32)),
    block_size=16, lora_id=3, medium="GPU", lora_name="sql", extra_keys=[("salt",), None],
    group_idx=0, session_id="session",
)
removed = BlockRemoved(block_hashes=[1 << 63], medium="GPU", group_idx=0)
for line in sys.stdin:
    events = [stored, removed, AllBlocksCleared()]
    publisher.publish(KVEventBatch(ts=time.time(), events=events))
publisher.shutdown()
"""


@contextmanager
def publishing(endpoint: str) -> Iterator[subprocess.Popen[str]]:
    """Runs vLLM's publisher as rank 1; each line that it is sent is a message that it sends."""
    try:
        python = vllm_python()
    except VllmNotInstallableError as error:
        pytest.skip(str(error))
    command = [str(python), "-c", PUBLISHES, endpoint]
    environ = {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def test_its_events_are_understood(tmp_path: Path) -> None:
    with listening(tmp_path, Endpoint(address="tcp://127.0.0.1:*", binds=True)) as (listener, rows):
        bound = listener.addresses[0]
        host, _, port = bound.rpartition(":")
        with publishing(f"{host}:{int(port) - 1}") as vllm:  # rank 1 adds 1 to the port
            assert vllm.stdin is not None
            while not rows.taken:  # what it sends before it is connected is lost
                vllm.stdin.write("\n")
                vllm.stdin.flush()
                rows.wait_for_some(1.0)
            told = rows.wait_for(3)[:3]
    hasher = BlockHasher(key_of(tmp_path))
    assert [row["kind"] for row in told] == ["stored", "removed", "cleared"]
    stored = told[0]
    assert (stored["num_blocks"], stored["block_size"], stored["adapter"]) == (2, 16, "sql")
    assert stored["parent_hash"] == hasher.text(b"p" * 32)
    assert stored["block_hashes"] == hasher.texts([b"a" * 32, 1 << 63])
    assert told[1]["block_hashes"] == hasher.text(1 << 63)
    assert "lost" not in listener.status()
