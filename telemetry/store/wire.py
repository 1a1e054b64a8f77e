"""How a query travels to a live collector and its answer back, over a Unix socket.

    request   4 bytes of length, JSON  {"sql", "params", "timeout_seconds", "max_rows"}
    answer    4 bytes of length, JSON  {"error", "message"} or {"truncated", "arrow_bytes"},
              then that many bytes of an Arrow stream

Instead of a query, {"ask": "status"} gets {"status": {...}}, and {"post": "findings", "rows": [..]}
gets {"stored": N} once the rows are committed, or an error. Any number of requests may follow each
other on one connection. A query with "background": true counts as nobody's who reads.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa

from telemetry import errors
from telemetry.errors import StepscopeError
from telemetry.store.guard import Answer, Limits, Parameters

MAX_REQUEST_BYTES = 4 << 20
MAX_TOKEN_BYTES = 4096
_LENGTH = struct.Struct("<I")

_BY_NAME = {
    cls.__name__: cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, StepscopeError)
}


@dataclass(frozen=True, slots=True)
class Query:
    """A query as it came. `is_background`: whoever asks does not mind a log some seconds old."""

    sql: str
    params: Parameters
    limits: Limits
    is_background: bool = False


@dataclass(frozen=True, slots=True)
class Post:
    """Rows of `findings` as they came; nothing of them is checked."""

    rows: Any


def send_request(
    to: socket.socket, sql: str, params: Parameters, limits: Limits, *, background: bool = False
) -> None:
    """Sends a query."""
    asked = {"sql": sql, "params": params, **asdict(limits)}
    _send_json(to, asked | {"background": True} if background else asked)


def send_post(to: socket.socket, rows: list[dict[str, Any]]) -> None:
    """Sends rows of `findings` to be stored."""
    _send_json(to, {"post": "findings", "rows": rows})


def send_stored(to: socket.socket, num_rows: int) -> None:
    """Says that rows are committed."""
    _send_json(to, {"stored": num_rows})


def receive_stored(source: socket.socket) -> int:
    """Returns how many rows were committed.

    Raises:
        StepscopeError: They were not; the same error as there.
        ConnectionError: The other side has gone, or is of a version that takes no posts.
    """
    answer = _receive_json(source, MAX_REQUEST_BYTES)
    if answer is None:
        raise ConnectionResetError("it hung up before it answered")
    if "error" in answer:
        raise _BY_NAME.get(answer["error"], StepscopeError)(answer["message"])
    return int(answer["stored"])


def send_token(to: socket.socket, token: str) -> None:
    """Shows a token, which is the first thing that a reader says over TCP."""
    _send_json(to, {"token": token})


def receive_token(source: socket.socket) -> str:
    """Returns the token that a reader shows; an empty one where it shows none.

    Raises:
        ValueError: What came is too long, or no request.
    """
    shown = (_receive_json(source, MAX_TOKEN_BYTES) or {}).get("token")
    return shown if isinstance(shown, str) else ""


def send_welcome(to: socket.socket) -> None:
    """Says that the token was the right one."""
    _send_json(to, {"welcome": True})


def receive_welcome(source: socket.socket) -> None:
    """Waits until the token was found right.

    Raises:
        StepscopeError: It is wrong.
        ConnectionError: The other side has gone.
    """
    answer = _receive_json(source, MAX_REQUEST_BYTES)
    if answer is None:
        raise ConnectionResetError("it hung up")
    if "error" in answer:
        raise _BY_NAME.get(answer["error"], StepscopeError)(answer["message"])


def send_status_request(to: socket.socket) -> None:
    """Asks how the collector fares."""
    _send_json(to, {"ask": "status"})


def send_status(to: socket.socket, status: dict[str, Any]) -> None:
    """Says how the collector fares."""
    _send_json(to, {"status": status})


def receive_status(source: socket.socket) -> dict[str, Any]:
    """Returns how the collector fares.

    Raises:
        KeyError: It does not say.
        ConnectionError: The other side has gone.
    """
    answer = _receive_json(source, MAX_REQUEST_BYTES)
    if answer is None:
        raise ConnectionResetError("the collector hung up before it answered")
    return dict(answer["status"])


def receive_request(source: socket.socket) -> Query | Post | Literal["status"] | None:
    """Returns the next query or post, or that a status is asked for; None after a hang-up.

    Raises:
        ValueError: What came is no query.
    """
    data = _receive_json(source, MAX_REQUEST_BYTES)
    if data is None:
        return None
    if data.get("ask") == "status":
        return "status"
    if data.get("post") == "findings":
        return Post(data.get("rows"))
    try:
        limits = Limits(float(data["timeout_seconds"]), int(data["max_rows"]))
        sql, params = data["sql"], data["params"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"a query needs sql, params, timeout_seconds, max_rows: {error}") from None
    if not isinstance(sql, str) or not isinstance(params, list | dict | None):
        raise ValueError("sql is a text, params a list or an object")
    return Query(sql, params, limits, data.get("background") is True)


def send_answer(to: socket.socket, answer: Answer) -> None:
    """Sends rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answer.table.schema) as stream:
        stream.write_table(answer.table)
    payload = sink.getvalue()
    _send_json(to, {"truncated": answer.truncated, "arrow_bytes": payload.size})
    to.sendall(payload)


def send_error(to: socket.socket, error: StepscopeError) -> None:
    """Sends what went wrong."""
    _send_json(to, {"error": type(error).__name__, "message": str(error)})


def receive_answer(source: socket.socket) -> Answer:
    """Returns rows.

    Raises:
        StepscopeError: The query failed there; the same error as there.
        ConnectionError: The other side has gone.
    """
    header = _receive_json(source, MAX_REQUEST_BYTES)
    if header is None:
        raise ConnectionResetError("the collector hung up before it answered")
    if "error" in header:
        raise _BY_NAME.get(header["error"], StepscopeError)(header["message"])
    payload = _receive(source, header["arrow_bytes"])
    if payload is None:
        raise ConnectionResetError("the collector hung up in the middle of its answer")
    with pa.ipc.open_stream(pa.py_buffer(payload)) as stream:
        return Answer(stream.read_all(), header["truncated"])


def _send_json(to: socket.socket, data: dict[str, Any]) -> None:
    text = json.dumps(data).encode()
    to.sendall(_LENGTH.pack(len(text)) + text)


def _receive_json(source: socket.socket, limit: int) -> dict[str, Any] | None:
    head = _receive(source, _LENGTH.size)
    if head is None:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > limit:
        raise ValueError(f"a message of {size:,} bytes is longer than {limit:,}")
    text = _receive(source, size)
    if text is None:
        return None
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("a message is a JSON object")
    return data


def _receive(source: socket.socket, size: int) -> bytes | None:
    """Returns exactly `size` bytes; None when the other side has hung up."""
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size:
        got = source.recv_into(view[have:])
        if got == 0:
            return None
        have += got
    return bytes(data)
