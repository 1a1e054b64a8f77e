"""Asks a publisher for messages that did not arrive.

It keeps the newest ones (vLLM: `buffer_steps`, 10,000) and sends all from a number on, then an end
mark. What it has no more stays lost.
"""

from __future__ import annotations

import time
from typing import Any

import zmq

from telemetry.sources.kv_events.messages import MOST_BYTES

PATIENCE_SECONDS = 2.0
_END = (-1).to_bytes(8, "big", signed=True)
_NUMBER_BYTES = 8


def fetch(context: zmq.Context[Any], address: str, wanted: range) -> dict[int, bytes]:
    """Returns the payloads of `wanted` messages by number, as far as they come in time."""
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    with context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        socket.connect(address)
        socket.send_multipart([b"", wanted.start.to_bytes(_NUMBER_BYTES, "big")])
        while socket.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            frames = socket.recv_multipart()
            if len(frames) < 3 or len(frames[-2]) != _NUMBER_BYTES or frames[-2] == _END:
                break
            number = int.from_bytes(frames[-2], "big")
            if number in wanted:
                found[number] = frames[-1]
            if number >= wanted.stop - 1:
                break  # what follows has arrived
    return found
