"""Where KV events come from: ZeroMQ addresses as the flags of `collect` write them.

vLLM binds an endpoint with a wildcard (`tcp://*:5557`), and then the collector connects to it; to
any other endpoint vLLM connects, and then the collector binds it. The replay endpoint, if there is
one, vLLM always binds. A data-parallel rank adds its number to the port of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.errors import StepscopeError

CONNECT_FLAG, BIND_FLAG = "--kv-events", "--kv-events-bind"
MOST_ENDPOINTS = 256
_TCP = re.compile(r"(?P<host>tcp://[^,\s]+):(?P<first>\d+)(?:-(?P<last>\d+))?")
_WILDCARDS = ("tcp://*", "tcp://0.0.0.0", "tcp://[::]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address to take events at, and one to ask for lost messages at, if there is one."""

    address: str
    binds: bool
    replay: str | None = None


def read_endpoints(flag: str, texts: Sequence[str]) -> list[Endpoint]:
    """Returns the endpoints of a flag: `ADDRESS`, or `ADDRESS,REPLAY`; ports may be a range.

    Raises:
        StepscopeError: One of them is none.
    """
    found = [endpoint for text in texts for endpoint in _endpoints(flag, text)]
    if len(found) > MOST_ENDPOINTS:
        raise StepscopeError(f"{flag} names {len(found)} addresses: {MOST_ENDPOINTS} at most")
    return found


def _endpoints(flag: str, text: str) -> list[Endpoint]:
    address, _, replay = text.partition(",")
    addresses = _addresses(flag, address)
    replays: Sequence[str | None] = _addresses(flag, replay) if replay else [None] * len(addresses)
    if len(replays) != len(addresses):
        raise StepscopeError(
            f"{flag} is {text!r}: {len(addresses)} ports and {len(replays)} to replay from: "
            "write as many of both"
        )
    for each in (*replays, *(() if flag == BIND_FLAG else addresses)):
        if each is not None and each.startswith(_WILDCARDS):
            raise StepscopeError(
                f"{each} is no address to connect to: write tcp://HOST:PORT of the engine's host, "
                f"or {BIND_FLAG} if the engine connects to this machine"
            )
    return [
        Endpoint(address=each, binds=flag == BIND_FLAG, replay=other)
        for each, other in zip(addresses, replays, strict=True)
    ]


def _addresses(flag: str, text: str) -> list[str]:
    if text.startswith("ipc://") and len(text) > len("ipc://"):
        return [text]
    match = _TCP.fullmatch(text)
    first = int(match["first"]) if match else -1
    last = int(match["last"]) if match and match["last"] else first
    if match is None or not 0 <= first <= last <= 65_535:
        raise StepscopeError(
            f"{flag} is {text!r}: write tcp://HOST:PORT, tcp://HOST:PORT-PORT for a port a "
            "data-parallel rank, or ipc://PATH"
        )
    return [f"{match['host']}:{port}" for port in range(first, last + 1)]
