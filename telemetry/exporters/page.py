"""A reading of the collector's numbers as a Prometheus page."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest

from telemetry.exporters.metrics import METRICS, Metric, Reading


class ReadingCollector:
    """A prometheus_client collector over one reading."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Family]:
        """Yields every metric that has a sample."""
        for metric in METRICS:
            if samples := self._reading.get(metric.name):
                family = _family(metric)
                for sample in samples:
                    family.add_metric(sample.labels, sample.value)
                yield family


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.prometheus_name, metric.doc, labels=metric.labels)


def render_page(reading: Reading) -> bytes:
    """Returns the page, in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ReadingCollector(reading))
    return generate_latest(registry)
