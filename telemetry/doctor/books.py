"""The books of a live engine as it told them, checked by itself: what `doctor --deep` asks for.

The engine answers between two steps, over HTTP, to callers on its own machine. What comes is read
with care: at that address may be anything.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from telemetry.errors import StepscopeError

PATH = "/stepscope/integrity"
TIMEOUT_SECONDS = 40.0
"""The engine gives itself 30 s."""
MAX_ANSWER_BYTES = 16 << 20

COUNTS = (
    "step",
    "num_running_blocks",
    "num_waiting_blocks",
    "num_kept_blocks",
    "num_running",
    "num_waiting",
    "num_kv_holding_waiting",
    "num_kept",
)
KV_COUNTS = (
    "num_usable_blocks",
    "num_free_unhashed_blocks",
    "num_free_cached_blocks",
    "num_references",
    "num_table_entries",
    "num_cached_blocks",
    "num_blocks_rehashed",
)

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen on that nobody can call, and the one that reaches the same server."""


class NotAskedError(StepscopeError):
    """There is no answer that could be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """An engine's answer. `counts` has every name of COUNTS and KV_COUNTS; None: unreadable books.

    `problems` are the engine's words; `pid` and `started_ts` say which engine it is.
    """

    pid: int
    started_ts: int
    duration_ns: int
    counts: dict[str, int] | None
    problems: tuple[str, ...]


def ask_for_books(url: str) -> Books:
    """Has the engine behind an API check its books and returns what it says.

    Raises:
        NotAskedError: nobody is there, or nobody who knows that question.
        StepscopeError: the URL is none.
    """
    status, body = _post(url)
    if status == 404:
        raise NotAskedError(
            f"{url} has no such check: it is no Stepscope engine of this version, or it takes this "
            "for another machine: run doctor where the engine runs"
        )
    try:
        answer = json.loads(body)
        if status == 200:
            return _books(answer)
        told = answer["error"]["message"]
    except (ValueError, KeyError, TypeError):
        raise NotAskedError(f"{url} gave an answer that cannot be read (HTTP {status})") from None
    raise NotAskedError(f"{url} says: {told}")


def _post(url: str) -> tuple[int, bytes]:
    """Returns status and body. No proxy, no redirect: the engine is on this machine."""
    connection = _connection(url)
    try:
        connection.request("POST", urlsplit(url).path.rstrip("/") + PATH)
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_ANSWER_BYTES)
    except TimeoutError:
        raise NotAskedError(f"{url} has not answered for {TIMEOUT_SECONDS:.0f} s") from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or error or type(error).__name__
        raise NotAskedError(f"{url} cannot be reached: {why}") from None
    finally:
        connection.close()


def _connection(url: str) -> http.client.HTTPConnection:
    wrong = StepscopeError(f"{url!r} is no address: write it like http://127.0.0.1:8000")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if not host or parts.scheme not in ("http", "https"):
        raise wrong
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    return kind(WILDCARDS.get(host, host), port, timeout=TIMEOUT_SECONDS)


def _books(answer: Any) -> Books:
    report, error = answer["report"], answer["error"]
    counts: dict[str, int] | None = None
    problems: list[str] = [f"the books cannot be read: {error}"]
    if report is not None:
        counts = {name: int(report[name]) for name in COUNTS}
        counts |= {name: int(report["kv"][name]) for name in KV_COUNTS}
        problems = [str(problem) for problem in report["problems"]]
    return Books(
        pid=int(answer["pid"]),
        started_ts=int(answer["started_ts"]),
        duration_ns=int(answer["duration_ns"]),
        counts=counts,
        problems=tuple(problems),
    )
