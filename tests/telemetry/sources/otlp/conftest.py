"""A real listener on free ports of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from telemetry.sources.otlp.grpc_server import GrpcServer
from telemetry.sources.otlp.http_server import HttpServer
from telemetry.sources.otlp.intake import Intake
from tests.telemetry.sources.waiting_rows import WaitingRows

CLIENT_SECONDS = 0.5


@dataclass
class Listening:
    """Both servers, and what they took."""

    rows: WaitingRows = field(default_factory=WaitingRows)

    def __post_init__(self) -> None:
        self.intake = Intake(self.rows)
        self.grpc = GrpcServer("127.0.0.1", 0, self.intake, client_seconds=CLIENT_SECONDS)
        self.http = HttpServer("127.0.0.1", 0, self.intake, client_seconds=CLIENT_SECONDS)

    def close(self) -> None:
        self.grpc.close()
        self.http.close()


@pytest.fixture
def listening() -> Iterator[Listening]:
    servers = Listening()
    yield servers
    servers.close()
