"""Gets pages over HTTP, from one server, within limits of time and size.

The standard library's client, which follows no redirect and no proxy setting by itself: a redirect
to another path of the same server is followed, one to another server is told. A timer cuts off
whatever takes longer than it may in all, however slowly a server dribbles.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from telemetry.errors import StepscopeError

MOST_REDIRECTS = 3
MOST_ERROR_BYTES = 64 << 10
_REDIRECTS = (301, 302, 303, 307, 308)


class FetchError(StepscopeError):
    """A page did not come; the message says why, without the address."""

    def __init__(self, message: str, *, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class TooLargeError(FetchError):
    """A page is larger than it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a server wants to see, and how it is trusted."""

    token_file: Path | None = None
    """Holds a bearer token; read anew for each page, since such tokens are renewed."""
    ca_file: Path | None = None
    """Certificates that are trusted, instead of the system's."""
    verify: bool = True

    def headers(self) -> dict[str, str]:
        """Returns the headers of a request.

        Raises:
            FetchError: The token cannot be read.
        """
        if self.token_file is None:
            return {}
        try:
            token = self.token_file.read_text("ascii", "strict").strip()
        except (OSError, ValueError) as error:
            raise FetchError(f"the token file {self.token_file} cannot be read: {error}") from None
        if not token or not token.isprintable() or " " in token:
            raise FetchError(f"the token file {self.token_file} holds no token: put one line there")
        return {"Authorization": f"Bearer {token}"}

    def context(self) -> ssl.SSLContext:
        """Returns how a server's certificate is checked.

        Raises:
            StepscopeError: The certificates cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise StepscopeError(
                f"the certificates in {self.ca_file} cannot be read: {error}"
            ) from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def read_url(flag: str, text: str) -> SplitResult:
    """Returns the parts of an address.

    Raises:
        StepscopeError: It is no address of HTTP, or holds a password.
    """
    try:
        url = urlsplit(text)
        is_good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_good = False
    if not is_good or not text.isprintable() or " " in text:
        raise StepscopeError(f"{flag} is {text!r}: write an address, like http://127.0.0.1:8000")
    if url.username is not None or url.password is not None:
        raise StepscopeError(
            f"{flag} holds a user or a password, which would stand in the log: put a token into a "
            "file and name that"
        )
    return url


class Client:
    """Gets pages of one server, one at a time. May be closed from another thread."""

    def __init__(
        self, url: SplitResult, access: Access, *, timeout_seconds: float, most_bytes: int
    ) -> None:
        """Prepares; nothing is asked yet.

        Raises:
            StepscopeError: The certificates cannot be read.
        """
        self._url = url
        self._access = access
        self._timeout = timeout_seconds
        self._most_bytes = most_bytes
        self._context = access.context() if url.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._answer: http.client.HTTPResponse | None = None
        self._is_late = False

    def get(self, path: str, *, accept: str) -> bytes:
        """Returns what lies at a path, with its query.

        Raises:
            FetchError: It does not come, or not all of it.
            TooLargeError: It is larger than it may be.
        """
        self._is_late = False
        timer = threading.Timer(self._timeout, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            return self._follow(path, {"Accept": accept, **self._access.headers()})
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, FetchError):
                raise
            raise FetchError(self._reason(error)) from None
        finally:
            timer.cancel()
            self._let_go()

    def _follow(self, path: str, headers: dict[str, str]) -> bytes:
        base = urlunsplit((self._url.scheme, self._url.netloc, "", "", ""))
        for _ in range(1 + MOST_REDIRECTS):
            answer = self._ask(path, headers)
            if answer.status not in _REDIRECTS:
                return self._body(answer)
            place = urlsplit(urljoin(base + path, answer.getheader("Location") or ""))
            if (place.scheme, place.netloc) != (self._url.scheme, self._url.netloc):
                raise FetchError(
                    f"it sends on to another server, {place.scheme}://{place.netloc}: name that one"
                )
            path = place.path + (f"?{place.query}" if place.query else "")
            self._let_go()
        raise FetchError("it sends on in a circle")

    def _ask(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection = connection = self._connect()
        connection.connect()
        self._socket = connection.sock  # the connection forgets it while an answer is read
        connection.request("GET", path or "/", headers=headers)
        self._answer = connection.getresponse()
        return self._answer

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._context is None:
            return http.client.HTTPConnection(host, port or 80, timeout=self._timeout)
        return http.client.HTTPSConnection(
            host, port or 443, timeout=self._timeout, context=self._context
        )

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        if answer.status != 200:
            body = answer.read(MOST_ERROR_BYTES)
            raise FetchError(
                f"it answers {answer.status} {answer.reason}".rstrip(),
                status=answer.status,
                body=body,
            )
        body = answer.read(self._most_bytes + 1)
        if len(body) > self._most_bytes:
            raise TooLargeError(f"it answers with more than {self._most_bytes >> 20} MiB")
        if self._is_late or answer.length:
            raise http.client.IncompleteRead(body, answer.length)
        return body

    def _reason(self, error: Exception) -> str:
        if self._is_late or isinstance(error, TimeoutError):
            return f"no whole answer in {self._timeout:g} s"
        if isinstance(error, http.client.IncompleteRead):
            return "the answer broke off"
        if isinstance(error, ssl.SSLError):
            return f"its certificate is not accepted: {error.reason or error}"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror.lower()
        return f"{type(error).__name__}: {error}".rstrip(": ")

    def _give_up(self) -> None:
        self._is_late = True
        self.close()

    def close(self) -> None:
        """Ends the request under way, if there is one; the thread that asked lets go of it."""
        with suppress(OSError):  # the server was quicker
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def _let_go(self) -> None:
        for part in (self._answer, self._connection):
            if part is not None:
                part.close()
        self._answer = self._connection = self._socket = None
