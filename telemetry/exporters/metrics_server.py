"""Serves the collector's page at `/metrics`, to this machine alone unless told otherwise.

Reading only, one path, no request ids on it. A page that cannot be read is a 503 with the reason:
old numbers would look like an engine at rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from telemetry.exporters.attributes import bounded
from telemetry.small_server import SmallServer, ThreadedServer

PATH = "/metrics"
MOST_AT_ONCE = 8
CLIENT_SECONDS = 10.0
"""A client that says nothing for so long is hung up on."""


class MetricsServer(SmallServer):
    """An HTTP server in threads of its own, until it is closed."""

    def __init__(self, host: str, port: int, read: Callable[[], bytes]) -> None:
        """Listens at `host` and `port`; port 0 takes a free one. `read` makes the page.

        Raises:
            OSError: The address cannot be listened at.
        """
        server = ThreadedServer((host, port), _handler(read))
        super().__init__(server, name="stepscope-metrics", path=PATH)


def _handler(read: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    slots = threading.Semaphore(MOST_AT_ONCE)

    class Handler(BaseHTTPRequestHandler):
        server_version = "stepscope"
        sys_version = ""
        timeout = CLIENT_SECONDS

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                return self._answer(404, f"there is one page here: {PATH}\n".encode())
            if not slots.acquire(blocking=False):
                return self._answer(503, f"# {MOST_AT_ONCE} scrapes are running\n".encode())
            try:
                status, body = 200, read()
            except Exception as error:  # the scraper is told; the collector goes on
                status, body = 503, f"# {bounded(str(error))}\n".encode()
            finally:
                slots.release()
            return self._answer(status, body)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            kind = CONTENT_TYPE_LATEST if status == 200 else "text/plain; charset=utf-8"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A scrape every few seconds is not worth a line."""

    return Handler
