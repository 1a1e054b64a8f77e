"""All that a collector exports, behind four calls: `start`, `after_drain`, `save`, `close`.

The collector's loop hands over what it saw and goes on: nothing here waits for a receiver or raises
into it. Reading and sending are done by threads of their own, on connections that the collector
lends like those of any reader.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from telemetry.exporters.settings import ExportSettings
from telemetry.exporters.sights import Ring, RingSights
from telemetry.exporters.status import ExportStatus, SignalStatus, remove_status
from telemetry.store.files import day_of

if TYPE_CHECKING:
    import pyarrow as pa

    from telemetry.exporters.courier import Courier
    from telemetry.exporters.metric_push import MetricPush
    from telemetry.exporters.metrics import Metric, Sample
    from telemetry.exporters.metrics_server import MetricsServer
    from telemetry.exporters.numbers import Numbers
    from telemetry.exporters.otlp import Destination, LastWords, Signal
    from telemetry.exporters.span_export import SpanExport

GOODBYE_SECONDS = 4.0
"""What a receiver is given at the end to take what is left."""

_log = logging.getLogger("stepscope.collector")

Lend = Callable[[], AbstractContextManager[Any]]
"""Lends a connection to the step log for one query."""


class Writer(Protocol):
    """The collector's hand in the log: `telemetry.store.writer.LogWriter` is one."""

    def new_rows(self, dense: bool) -> Any: ...
    def prepare(self, day: str) -> None: ...
    def write(self, day: str, rows: Any, *, dense: bool) -> None: ...


class Exports:
    """What a collector exports. One that is not started, or wants nothing, does nothing."""

    def __init__(self, log: Path, lend: Lend, settings: ExportSettings) -> None:
        self._log = log
        self._reader = LentLog(lend)
        self._settings = settings
        self._problems = list(settings.problems)
        self._sights = RingSights()
        self._server: MetricsServer | None = None
        self._numbers: Numbers | None = None
        self._spans: SpanExport | None = None
        self._push: MetricPush | None = None
        self._couriers: list[Courier] = []
        self._interrupts: list[Callable[[], None]] = []
        self._errors: dict[Signal, str | None] = {}
        self._words: LastWords | None = None
        self._publishing = threading.Lock()
        self._last_failure = ""
        self._made_ns = time.time_ns()

    # ------------------------------------------------------------------ the collector's calls

    def start(self) -> None:
        """Starts what the settings ask for. What cannot start is told, and left aside."""
        if not self._settings.wants_anything:
            return
        for what, begin in (
            (f"the metrics page at port {self._settings.metrics_port}", self._serve_page),
            ("traces", self._send_spans),
            ("metrics", self._push_metrics),
        ):
            try:
                begin()
            except ModuleNotFoundError as error:
                remedy = "pip install 'stepscope[otlp]'"
                self._problems.append(f"{what}: {error.name} is not installed: {remedy}")
            except Exception as error:  # the telemetry edge: the record goes on without
                self._problems.append(f"{what}: {error}")
        for problem in self._problems:
            _log.warning("not exported: %s", problem)
        self._publish()

    def after_drain(self, rings: Iterable[Ring]) -> None:
        """Looks at the rings' headers, for numbers that are not in the log."""
        if self._numbers is not None:
            self._guarded(lambda: self._sights.observe(rings))

    def save(self, writer: Writer | None) -> None:
        """Writes into the log how far spans have been sent. What fails is written next time."""
        if self._spans is None or writer is None or not (rows := self._spans.unsaved()):
            return
        self._guarded(lambda: self._save(writer, rows))

    def close(self, writer: Writer | None) -> None:
        """Sends what is left, for a few seconds, and ends."""
        if self._server is not None:
            self._server.close()
        for courier in self._couriers:
            courier.stop()
        deadline = time.monotonic() + GOODBYE_SECONDS
        has_ended = [courier.join(deadline - time.monotonic()) for courier in self._couriers]
        for interrupt in self._interrupts:
            self._guarded(interrupt)
        if not all(has_ended):
            _log.warning("a receiver did not take what is left: it is sent by the next collector")
            for courier in self._couriers:
                courier.join(1.0)
        self.save(writer)
        remove_status(self._log)

    def _save(self, writer: Writer, rows: list[dict[str, Any]]) -> None:
        assert self._spans is not None
        day = day_of(time.time_ns())
        writer.prepare(day)
        buffer = writer.new_rows(dense=False)
        buffer.add_rows("exports", rows)
        writer.write(day, buffer, dense=False)
        self._spans.saved(rows)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # the telemetry edge: told once
            if repr(error) != self._last_failure:
                _log.warning("an export failed: %r", error)
            self._last_failure = repr(error)

    # ------------------------------------------------------------------------ what is exported

    def _serve_page(self) -> None:
        if self._settings.metrics_port is None:
            return
        from telemetry.exporters.metrics_server import MetricsServer
        from telemetry.exporters.page import render_page

        numbers = self._shared_numbers()
        self._server = MetricsServer(
            self._settings.metrics_host,
            self._settings.metrics_port,
            lambda: render_page(numbers.read()),
        )

    def _send_spans(self) -> None:
        destination = self._settings.traces
        if destination is None:
            return
        from opentelemetry.sdk.trace.export import SpanExportResult

        from telemetry.exporters.otlp import span_exporter
        from telemetry.exporters.span_export import SpanExport

        exporter = span_exporter(destination.protocol)
        self._spans = spans = SpanExport(
            self._reader,
            lambda made: exporter.export(made) is SpanExportResult.SUCCESS,
            step_ratio=self._settings.step_ratio,
        )
        self._interrupts.append(exporter.shutdown)
        self._carry(destination, spans.work)

    def _push_metrics(self) -> None:
        destination = self._settings.metrics
        if destination is None:
            return
        from telemetry.exporters.metric_push import MetricPush
        from telemetry.exporters.otlp import metric_exporter
        from telemetry.exporters.sdk_spans import SERVICE_NAME, resource_of

        numbers = self._shared_numbers()
        self._push = MetricPush(
            numbers.read,
            lambda: numbers.started_ns,
            metric_exporter(destination.protocol),
            resource_of({"service.name": SERVICE_NAME, "service.version": _version()}),
        )
        self._interrupts.append(self._push.close)
        self._carry(destination, self._push.work)

    def _shared_numbers(self) -> Numbers:
        """Returns the numbers, read once for the page and for the push."""
        from telemetry.exporters.numbers import Numbers

        if self._numbers is None:
            self._numbers = Numbers(
                self._reader, self._sights, self._own_numbers, version=_version()
            )
        return self._numbers

    def _carry(self, destination: Destination, work: Callable[[], bool]) -> None:
        from telemetry.exporters.courier import Courier
        from telemetry.exporters.otlp import LastWords

        signal = destination.signal
        words = self._words = self._words or LastWords()
        words.listen()

        def carry() -> bool:
            got_through = work()
            error = None if got_through else words.of_this_thread()
            if error is not None and self._errors.get(signal) is None:
                _log.warning("%s are not taken by their receiver: %s", signal, error)
            self._errors[signal] = error
            self._publish()
            return got_through

        self._couriers.append(Courier(signal, carry, destination.seconds))

    # ------------------------------------------------------------------- what is told of itself

    def _own_numbers(self) -> Iterator[tuple[Metric, Sample]]:
        from telemetry.exporters import metrics
        from telemetry.exporters.analyst import analyst_age_seconds

        yield metrics.COLLECTOR_CPU, metrics.Sample((), time.process_time())
        age = analyst_age_seconds(self._log, time.time_ns(), since_ns=self._made_ns)
        if age is not None:
            yield metrics.ANALYST_AGE, metrics.Sample((), age)
        if self._spans is not None:
            yield metrics.SPANS_EXPORTED, metrics.Sample((), self._spans.num_spans)
            yield metrics.PASSED_OVER, metrics.Sample((), self._spans.num_passed_over)
            yield metrics.EXPORT_FAILURES, metrics.Sample(("traces",), self._spans.num_failures)
        if self._push is not None:
            yield metrics.EXPORT_FAILURES, metrics.Sample(("metrics",), self._push.num_failures)

    def _publish(self) -> None:
        with self._publishing:
            ExportStatus(
                pid=os.getpid(),
                metrics_url=None if self._server is None else self._server.url,
                signals=tuple(self._signals()),
                problems=tuple(self._problems),
            ).publish(self._log)

    def _signals(self) -> Iterator[SignalStatus]:
        if self._spans is not None and self._settings.traces is not None:
            yield SignalStatus(
                signal="traces",
                endpoint=self._settings.traces.endpoint,
                protocol=self._settings.traces.protocol,
                num_sent=self._spans.num_spans,
                num_failures=self._spans.num_failures,
                num_passed_over=self._spans.num_passed_over,
                last_sent_ts=self._spans.last_sent_ns,
                error=self._errors.get("traces"),
            )
        if self._push is not None and self._settings.metrics is not None:
            yield SignalStatus(
                signal="metrics",
                endpoint=self._settings.metrics.endpoint,
                protocol=self._settings.metrics.protocol,
                num_sent=self._push.num_pushes,
                num_failures=self._push.num_failures,
                num_passed_over=0,
                last_sent_ts=self._push.last_sent_ns,
                error=self._errors.get("metrics"),
            )


def _version() -> str:
    """Returns the version of this distribution."""
    try:
        return metadata.version("stepscope")
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        return "unknown"


class LentLog:
    """The collector's own log as a reader: each query on a connection that is lent for it."""

    def __init__(self, lend: Lend) -> None:
        self._lend = lend

    def query(self, sql: str) -> pa.Table:
        """Returns the rows of a statement of ours.

        Raises:
            StepscopeError: The log is being opened.
            duckdb.Error: It was closed meanwhile.
        """
        from telemetry.exporters.excerpt import arrow_table

        with self._lend() as connection:
            return arrow_table(connection, sql)
