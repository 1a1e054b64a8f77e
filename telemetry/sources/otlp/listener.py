"""OTLP as a live source: the two servers of a collector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from telemetry.errors import CollectorError
from telemetry.sources.otlp.grpc_server import GrpcServer
from telemetry.sources.otlp.http_server import HttpServer
from telemetry.sources.otlp.intake import Intake
from telemetry.sources.rows import SourceRows

Address: TypeAlias = tuple[str, int]


class _Server(Protocol):
    def close(self) -> None: ...


_Started = TypeVar("_Started", bound=_Server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where to listen; None: not by that protocol. Port 0 takes a free one."""

    grpc: Address | None = None
    http: Address | None = None


class OtlpListener:
    """Takes vLLM's spans while the collector runs."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._servers: list[_Server] = []
        self._places: tuple[str, ...] = ()
        self._intake: Intake | None = None

    def start(self, rows: SourceRows) -> None:
        """Listens.

        Raises:
            CollectorError: An address cannot be listened at.
        """
        intake = Intake(rows)
        places = []
        if self._addresses.grpc is not None:
            host, port = self._addresses.grpc
            grpc = _listening("--otlp-grpc", host, port, lambda: GrpcServer(host, port, intake))
            self._servers.append(grpc)
            places.append(f"grpc {grpc.address}")
        if self._addresses.http is not None:
            web_host, web_port = self._addresses.http
            web = _listening(
                "--otlp-http", web_host, web_port, lambda: HttpServer(web_host, web_port, intake)
            )
            self._servers.append(web)
            places.append(f"http {web.url}")
        self._intake, self._places = intake, tuple(places)

    def close(self) -> None:
        """Stops listening."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    @property
    def is_well(self) -> bool:
        """Whether it listens; when spans come is up to the engines."""
        return self._intake is not None

    def status(self) -> str:
        """Returns where it listens, and what came."""
        if self._intake is None:
            return "OTLP: not listening yet"
        return f"OTLP at {' and '.join(self._places)}: {self._intake.status()}"


def _listening(flag: str, host: str, port: int, start: Callable[[], _Started]) -> _Started:
    try:
        return start()
    except OSError as error:
        raise CollectorError(
            f"cannot listen for OTLP at {host}:{port}: {error.strerror or error}. Another receiver "
            f"may be there: choose another address with {flag} HOST:PORT"
        ) from None
