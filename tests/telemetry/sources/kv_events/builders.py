"""KV events for tests, encoded as vLLM encodes them, and a publisher that waits for subscribers."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zmq

CAPTURED = Path(__file__).parents[3] / "data" / "vllm" / "kv_events"
TOKENS = [31_337] * 16
PATIENCE_MS = 120_000


def stored(*hashes: bytes | int, **more: Any) -> dict[str, Any]:
    """Returns what vLLM 0.32 tells of blocks that entered."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": None,
        "token_ids": TOKENS * len(hashes),
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "group_idx": 0,
        **more,
    }


def removed(*hashes: bytes | int, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", **more}


def payload(*events: Any, ts: float | None = None, rank: int | None = 0) -> bytes:
    """Returns a message of events."""
    return msgspec.msgpack.encode([time.time() if ts is None else ts, list(events), rank])


def raw(*messages: tuple[int, bytes]) -> bytes:
    """Returns a raw capture of messages, each with its number."""
    return b"".join(struct.pack("<I", len(p)) + n.to_bytes(8, "big") + p for n, p in messages)


class Publisher:
    """Publishes as vLLM does, and knows when somebody listens."""

    def __init__(self, address: str, *, binds: bool) -> None:
        self._socket = zmq.Context.instance().socket(zmq.XPUB)
        (self._socket.bind if binds else self._socket.connect)(address)
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def wait_for_listener(self) -> None:
        assert self._socket.poll(PATIENCE_MS)
        assert self._socket.recv() == b"\x01"

    def wait_for_goodbye(self) -> None:
        assert self._socket.poll(PATIENCE_MS)
        assert self._socket.recv() == b"\x00"

    def send(self, number: int, content: bytes, topic: bytes = b"") -> None:
        self._socket.send_multipart((topic, number.to_bytes(8, "big"), content))

    def send_frames(self, *frames: bytes) -> None:
        self._socket.send_multipart(frames)

    def close(self) -> None:
        self._socket.close(linger=0)


@contextmanager
def publisher(address: str = "tcp://127.0.0.1:*", *, binds: bool = True) -> Iterator[Publisher]:
    made = Publisher(address, binds=binds)
    try:
        yield made
    finally:
        made.close()
