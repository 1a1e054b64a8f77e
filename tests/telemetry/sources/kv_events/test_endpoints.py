"""What can be written behind the flags, and what is told of what cannot."""

from __future__ import annotations

import pytest

from telemetry.errors import StepscopeError
from telemetry.sources.kv_events.endpoints import (
    BIND_FLAG,
    CONNECT_FLAG,
    Endpoint,
    read_endpoints,
)


def read(flag: str, *texts: str) -> list[tuple[str, str | None]]:
    found = read_endpoints(flag, texts)
    assert all(each.binds == (flag == BIND_FLAG) for each in found)
    return [(each.address, each.replay) for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://a:5557", [("tcp://a:5557", None)]),
        ("tcp://[::1]:5557", [("tcp://[::1]:5557", None)]),
        ("ipc:///tmp/kv", [("ipc:///tmp/kv", None)]),
        ("tcp://a:5557,tcp://a:5558", [("tcp://a:5557", "tcp://a:5558")]),
        (
            "tcp://a:5557-5558,tcp://a:6000-6001",
            [("tcp://a:5557", "tcp://a:6000"), ("tcp://a:5558", "tcp://a:6001")],
        ),
    ],
)
def test_an_address_a_replay_a_range(text: str, expected: list[tuple[str, str | None]]) -> None:
    assert read(CONNECT_FLAG, text) == expected


def test_a_wildcard_can_be_bound() -> None:
    assert read_endpoints(BIND_FLAG, ["tcp://*:5557"]) == [
        Endpoint(address="tcp://*:5557", binds=True)
    ]


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        (CONNECT_FLAG, "tcp://*:5557", f"or {BIND_FLAG} if the engine connects"),
        (CONNECT_FLAG, "tcp://0.0.0.0:5557", "no address to connect to"),
        (BIND_FLAG, "tcp://*:5557,tcp://*:5558", "no address to connect to"),
        (CONNECT_FLAG, "localhost:5557", "write tcp://HOST:PORT"),
        (CONNECT_FLAG, "tcp://a", "write tcp://HOST:PORT"),
        (CONNECT_FLAG, "tcp://a:5558-5557", "write tcp://HOST:PORT"),
        (CONNECT_FLAG, "tcp://a:99999", "write tcp://HOST:PORT"),
        (CONNECT_FLAG, "ipc://", "ipc://PATH"),
        (CONNECT_FLAG, "inproc://x", "write tcp://HOST:PORT"),
        (CONNECT_FLAG, "tcp://a:1-3,tcp://a:5", "3 ports and 1 to replay from"),
        (CONNECT_FLAG, "tcp://a:1-1000", "names 1000 addresses: 256 at most"),
    ],
)
def test_what_cannot_be_is_told(flag: str, text: str, words: str) -> None:
    with pytest.raises(StepscopeError, match=words.replace("*", r"\*")):
        read_endpoints(flag, [text])
