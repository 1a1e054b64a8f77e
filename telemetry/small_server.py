"""A small HTTP server in threads of its own, as the collector has for its page and for traces."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer


class ThreadedServer(ThreadingHTTPServer):
    """Answers each client in a thread; none of them keeps the process alive."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Binds, and asks no name server what this machine is called."""
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nobody's error."""


class SmallServer:
    """Serves until it is closed."""

    def __init__(self, server: ThreadedServer, *, name: str, path: str) -> None:
        """Begins to serve in a thread of that name; `path` is what its address ends in."""
        self._server = server
        self._path = path
        self._thread = threading.Thread(target=server.serve_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = str(self._server.server_address[0]), self._server.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{self._path}"

    def close(self) -> None:
        """Stops listening. What is being answered is not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)
