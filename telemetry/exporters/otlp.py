"""OpenTelemetry's standard environment variables, and the SDK's exporters that they ask for.

A signal is exported where an endpoint is named for it, or its exporter is `otlp`; else it is not.
What concerns the wire (endpoint, headers, time-out, compression, certificates) the SDK's exporters
read by themselves; here is only what the SDK leaves to whoever wires it up.

Source: OpenTelemetry specification, "Environment Variable Specification" and "OpenTelemetry
Protocol Exporter".
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

from telemetry.errors import StepscopeError
from telemetry.exporters.attributes import bounded

Signal: TypeAlias = Literal["traces", "metrics"]
Protocol: TypeAlias = Literal["grpc", "http/protobuf"]

SIGNALS: tuple[Signal, ...] = get_args(Signal)
_EXPORTERS = "opentelemetry.exporter"
"""What the names of the exporters' loggers begin with."""
_INTERVALS: dict[Signal, tuple[str, float]] = {
    "traces": ("OTEL_BSP_SCHEDULE_DELAY", 5.0),
    "metrics": ("OTEL_METRIC_EXPORT_INTERVAL", 60.0),
}
"""The variable that sets the time between two exports, and the standard's default in seconds."""


class OtlpError(StepscopeError):
    """A variable of the environment cannot be followed; the message says which."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a signal goes. `endpoint` is for people to read: without user, password and query."""

    signal: Signal
    protocol: Protocol
    endpoint: str
    seconds: float
    """Between two exports."""


def find_destination(signal: Signal, environ: Mapping[str, str]) -> Destination | None:
    """Returns where the environment sends a signal; None where it does not.

    Raises:
        OtlpError: It asks for something that is not there.
    """
    exporter = _variable(environ, f"OTEL_{signal.upper()}_EXPORTER").lower()
    endpoint = _of_signal(environ, signal, "ENDPOINT")
    is_disabled = _variable(environ, "OTEL_SDK_DISABLED").lower() == "true"
    if is_disabled or exporter == "none" or not (endpoint or exporter):
        return None
    if exporter not in ("", "otlp"):
        raise OtlpError(
            f"OTEL_{signal.upper()}_EXPORTER is {exporter!r}: {signal} can be exported by otlp, "
            "or none"
        )
    protocol = _of_signal(environ, signal, "PROTOCOL") or "grpc"
    if protocol not in get_args(Protocol):
        raise OtlpError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}: write grpc or http/protobuf")
    port = 4317 if protocol == "grpc" else 4318
    shown = _shown(endpoint or f"http://localhost:{port}")
    seconds = seconds_between(signal, environ)
    return Destination(signal, cast("Protocol", protocol), shown, seconds)


def seconds_between(signal: Signal, environ: Mapping[str, str]) -> float:
    """Returns the seconds between two exports of a signal.

    Raises:
        OtlpError: The variable is no number of milliseconds above 0.
    """
    name, otherwise = _INTERVALS[signal]
    text = _variable(environ, name)
    try:
        seconds = float(text) / 1000 if text else otherwise
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise OtlpError(f"{name} is {text!r}: write milliseconds, more than 0")
    return seconds


def span_exporter(protocol: Protocol) -> SpanExporter:
    """Returns the SDK's exporter of spans, as the environment sets it up."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

    return Http()


def metric_exporter(protocol: Protocol) -> MetricExporter:
    """Returns the SDK's exporter of metrics, as the environment sets it up."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
            OTLPMetricExporter as Grpc,
        )

        return Grpc()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http

    return Http()


class LastWords(logging.Handler):
    """Keeps what the SDK's exporters said last, a thread each, in place of logging every attempt.

    They return no reason, they log it; a receiver that is down would fill the collector's log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._words: dict[int | None, str] = {}

    def listen(self) -> None:
        """Has the exporters that exist by now talk to this handler, and to nobody else.

        Their own filters against repetition go: what they would leave out may be what is asked for.
        """
        top = logging.getLogger(_EXPORTERS)
        top.handlers, top.propagate = [self], False
        for name in list(logging.root.manager.loggerDict):
            if name.startswith(_EXPORTERS):
                logging.getLogger(name).filters.clear()

    def emit(self, record: logging.LogRecord) -> None:
        self._words[record.thread] = bounded(record.getMessage())

    def of_this_thread(self) -> str:
        """Returns the last words of this thread's exporter."""
        return self._words.get(threading.get_ident(), "no reason given")


def _of_signal(environ: Mapping[str, str], signal: Signal, name: str) -> str:
    own = _variable(environ, f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}")
    return own or _variable(environ, f"OTEL_EXPORTER_OTLP_{name}")


def _variable(environ: Mapping[str, str], name: str) -> str:
    """Returns a variable; an empty one is as good as none."""
    return environ.get(name, "").strip()


def _shown(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        return bounded(endpoint.rpartition("@")[2])
    if not parts.netloc:
        return bounded(endpoint.rpartition("@")[2])
    host = parts.netloc.rpartition("@")[2]
    return bounded(parts._replace(netloc=host, query="", fragment="").geturl())
