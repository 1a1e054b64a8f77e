"""Readings as OpenTelemetry metrics: the numbers of the Prometheus page, pushed.

The instruments are observable: a push takes one reading, and the SDK's own pipeline makes data of
it. A counter of an engine says that it counts since that engine started, also when the collector
has been restarted in between.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    Sum,
)
from opentelemetry.sdk.resources import Resource

from telemetry.exporters.metrics import METRICS, Metric, Reading


class MetricPush:
    """Pushes a reading each time it is asked to."""

    def __init__(
        self,
        read: Callable[[], Reading],
        started_ns: Callable[[], Mapping[str, int]],
        exporter: MetricExporter,
        resource: Resource,
    ) -> None:
        """`started_ns` says when each engine started, by its label."""
        self._read = read
        self._reading: Reading = {}
        self._noting = _Noting(exporter, started_ns)
        self._reader = PeriodicExportingMetricReader(self._noting, export_interval_millis=math.inf)
        self._provider = MeterProvider(
            metric_readers=[self._reader], resource=resource, shutdown_on_exit=False
        )
        self._has_begun = False
        self.num_pushes = 0
        """Pushes acknowledged."""
        self.num_failures = 0
        """Pushes not acknowledged; the next one brings newer numbers."""
        self.last_sent_ns: int | None = None
        self._make_instruments()

    def _make_instruments(self) -> None:
        meter = self._provider.get_meter("stepscope")
        for metric in METRICS:
            make = (
                meter.create_observable_counter
                if metric.kind == "counter"
                else meter.create_observable_gauge
            )
            make(metric.name, [self._observer(metric)], unit=metric.unit, description=metric.doc)

    def _observer(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for sample in self._reading.get(metric.name, ()):
                yield Observation(
                    sample.value, dict(zip(metric.labels, sample.labels, strict=True))
                )

        return observe

    def work(self) -> bool:
        """Reads and pushes; returns whether the receiver took it.

        The first reading is pushed only where counters are cumulative: as a difference to nothing
        it would tell again what an earlier collector has told.

        Raises:
            StepscopeError: The log cannot be read now.
        """
        self._reading = self._read()
        self._noting.is_baseline = not self._has_begun
        self._noting.result = MetricExportResult.FAILURE
        self._reader.collect()
        self._has_begun = True
        got_through = self._noting.result is MetricExportResult.SUCCESS
        self.num_pushes += got_through
        self.num_failures += not got_through
        self.last_sent_ns = time.time_ns() if got_through else self.last_sent_ns
        return got_through

    def close(self) -> None:
        """Interrupts a push that is under way."""
        self._noting.interrupt()


class _Noting(MetricExporter):
    """Hands on to the real exporter, and notes how that went."""

    def __init__(
        self, exporter: MetricExporter, started_ns: Callable[[], Mapping[str, int]]
    ) -> None:
        # The SDK's own readers ask an exporter for these two in the same way.
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._started_ns = started_ns
        self.is_baseline = False
        self.result = MetricExportResult.FAILURE

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        started = self._started_ns()
        data = _mapped(metrics_data, lambda point: _since_start(point, started))
        if self.is_baseline and _has_deltas(data):
            self.result = MetricExportResult.SUCCESS
        else:
            self.result = self._exporter.export(data, timeout_millis=timeout_millis, **kwargs)
        return self.result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self.interrupt()

    def interrupt(self) -> None:
        """Ends the real exporter, also in the middle of a retry."""
        self._exporter.shutdown()


def _since_start(point: NumberDataPoint, started: Mapping[str, int]) -> NumberDataPoint:
    """Returns a counter's point that says since when its engine counts."""
    engine = str((point.attributes or {}).get("engine"))
    start = started.get(engine)
    return point if start is None else replace(point, start_time_unix_nano=start)


def _mapped(data: MetricsData, change: Callable[[NumberDataPoint], NumberDataPoint]) -> MetricsData:
    """Returns the same data with every point of a cumulative counter changed."""

    def metric_of(metric: Any) -> Any:
        if not _is_sum(metric, AggregationTemporality.CUMULATIVE):
            return metric
        points = [change(point) for point in metric.data.data_points]
        return replace(metric, data=replace(metric.data, data_points=points))

    return MetricsData(
        resource_metrics=[
            replace(
                resource,
                scope_metrics=[
                    replace(scope, metrics=[metric_of(metric) for metric in scope.metrics])
                    for scope in resource.scope_metrics
                ],
            )
            for resource in data.resource_metrics
        ]
    )


def _has_deltas(data: MetricsData) -> bool:
    return any(
        _is_sum(metric, AggregationTemporality.DELTA)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def _is_sum(metric: Any, temporality: AggregationTemporality) -> bool:
    return isinstance(metric.data, Sum) and metric.data.aggregation_temporality == temporality
