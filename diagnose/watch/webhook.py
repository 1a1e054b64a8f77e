"""Delivers messages to an HTTP receiver: signed, in order, again until they are taken.

Whoever hands a message over never waits: a thread of its own sends, the queue is bounded, and what
cannot be delivered in time is dropped, counted and told.

    X-Stepscope-Delivery    the same whenever a message is sent again
    X-Stepscope-Timestamp   seconds since the epoch, of this attempt
    X-Stepscope-Signature   v1=HEX: HMAC-SHA256 of `timestamp.body` under the shared secret
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import random
import stat
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from telemetry.errors import StepscopeError
from telemetry.rendering import printable

SHORTEST_SECRET = 16
MOST_WAITING = 256
MAX_AGE_SECONDS = 15 * 60.0
"""After so long an alert is history."""
TIMEOUT_SECONDS = 10.0
_MOST_HEARD = 500
_TRY_AGAIN = (408, 425, 429)

Tell = Callable[[str], None]
"""Hears, in a line, what became of messages that were not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait between attempts: doubling, with jitter, so that not all come at once."""

    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    max_age_seconds: float = MAX_AGE_SECONDS

    def pause(self, num_failures: int, rng: random.Random) -> float:
        """Returns the seconds to wait after so many failures in a row."""
        doublings = min(num_failures - 1, 32)
        whole = min(self.first_seconds * (1 << doublings), self.longest_seconds)
        return whole * rng.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Message:
    """Something to deliver."""

    delivery: str
    body: bytes
    made_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt. `wait_seconds` is how long the receiver asks us to wait."""

    is_taken: bool
    may_help_again: bool
    text: str
    wait_seconds: float = 0.0


class Webhook:
    """A receiver at `url`. Close it to wait, for a moment, until all is delivered."""

    def __init__(
        self,
        url: str,
        secret: bytes | None = None,
        *,
        patience: Patience | None = None,
        tell: Tell = lambda text: None,
        rng: random.Random | None = None,
    ) -> None:
        """Begins to deliver, in a thread of its own.

        Raises:
            StepscopeError: `url` is no address that can be posted to.
        """
        check_url(url)
        self._url = url
        self._secret = secret
        self._patience = patience or Patience()
        self._tell = tell
        self._rng = rng or random.Random()
        self._queue: deque[Message] = deque()
        self._changed = threading.Condition()
        self._is_closing = threading.Event()
        self.num_delivered = 0
        self.num_dropped = 0
        self._thread = threading.Thread(target=self._run, name="stepscope-webhook", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The receiver's host: the rest of an address may be a secret."""
        return urlsplit(self._url).netloc

    def post(self, message: Message) -> None:
        """Queues a message; where the queue is full, the oldest one makes room."""
        with self._changed:
            if len(self._queue) >= MOST_WAITING:
                oldest = self._queue.popleft()
                self._drop(oldest, f"{MOST_WAITING} messages are waiting")
            self._queue.append(message)
            self._changed.notify_all()

    def close(self, seconds: float = 5.0) -> bool:
        """Waits until all is delivered, at most so long; returns whether it is."""
        with self._changed:
            done = self._changed.wait_for(lambda: not self._queue, timeout=seconds)
        self._is_closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout=1.0)
        return done

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        num_failures = 0
        while (message := self._next()) is not None:
            outcome = self._attempt(message)
            if outcome.is_taken:
                num_failures = 0
                self.num_delivered += 1
                self._done(message)
                continue
            num_failures += 1
            if num_failures == 1:
                self._tell(f"{self.name} did not take a message: {outcome.text}")
            if not outcome.may_help_again or self._is_old(message):
                self._done(message)
                self._drop(message, outcome.text)
            pause = max(self._patience.pause(num_failures, self._rng), outcome.wait_seconds)
            self._is_closing.wait(pause)

    def _next(self) -> Message | None:
        """Returns the oldest message once there is one; `None` at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closing.is_set())
            return None if self._is_closing.is_set() else self._queue[0]

    def _done(self, message: Message) -> None:
        with self._changed:
            if self._queue and self._queue[0] is message:  # else it had to make room
                self._queue.popleft()
            self._changed.notify_all()

    def _drop(self, message: Message, why: str) -> None:
        self.num_dropped += 1
        self._tell(f"message {message.delivery} to {self.name} is lost: {why}")

    def _is_old(self, message: Message) -> bool:
        return time.monotonic() - message.made_at > self._patience.max_age_seconds

    def _attempt(self, message: Message) -> Outcome:
        request = urllib.request.Request(
            self._url, data=message.body, headers=self._headers(message), method="POST"
        )
        try:
            with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
                answer.read(_MOST_HEARD)
            return Outcome(True, False, "")
        except urllib.error.HTTPError as error:
            return _refused(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Outcome(False, True, printable(str(error) or repr(error)))

    def _headers(self, message: Message) -> dict[str, str]:
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "stepscope",
            "X-Stepscope-Delivery": message.delivery,
            "X-Stepscope-Timestamp": timestamp,
        }
        if self._secret is not None:
            headers["X-Stepscope-Signature"] = signature(self._secret, timestamp, message.body)
        return headers


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Returns the signature of a message that is sent at a time."""
    signed = timestamp.encode() + b"." + body
    return "v1=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would turn a POST into a GET, or carry an alert elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _refused(error: urllib.error.HTTPError) -> Outcome:
    with error:
        heard = error.read(_MOST_HEARD).decode("utf-8", "replace").strip()
    may_help = error.code >= 500 or error.code in _TRY_AGAIN
    wait = error.headers.get("Retry-After", "")
    return Outcome(
        False,
        may_help,
        printable(f"HTTP {error.code} {heard}".strip()),
        min(float(wait), 300.0) if wait.isascii() and wait.isdigit() else 0.0,
    )


def check_url(url: str) -> None:
    """Checks that something can be posted to an address.

    Raises:
        StepscopeError: It cannot.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        is_address = has_port = False
    if not (is_address and has_port and url.isascii() and url.isprintable() and " " not in url):
        raise StepscopeError(f"--webhook is {printable(url)!r}: write http:// or https://, a host")
    if parts.username is not None or parts.password is not None:
        raise StepscopeError("--webhook has a password in it: sign with --secret-file instead")


def read_secret(path: Path) -> bytes:
    """Returns the secret in a file that is its owner's alone.

    Raises:
        StepscopeError: There is none that may be used.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise StepscopeError(f"--secret-file {path} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise StepscopeError(f"--secret-file {path} is readable by others: chmod 600 {path}")
    if len(secret) < SHORTEST_SECRET:
        raise StepscopeError(
            f"the secret in {path} has {len(secret)} bytes: it has {SHORTEST_SECRET} or more"
        )
    return secret
