"""Metrics over OTLP: the numbers of the Prometheus page, decoded by a real receiver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from telemetry.errors import LogBusy
from telemetry.exporters import metrics
from telemetry.exporters.metric_push import MetricPush
from telemetry.exporters.metrics import METRICS, Reading, Sample
from telemetry.exporters.numbers import Numbers
from telemetry.exporters.otlp import metric_exporter
from telemetry.exporters.sdk_spans import resource_of
from telemetry.exporters.sights import RingSights
from tests.telemetry.exporters.receiver import Receiver, attributes, grpc_receiver, http_receiver
from tests.telemetry.exporters.traced import ConnectionLog, storm_log
from tests.telemetry.log_builder import START, connect

PROTOCOLS: dict[str, Callable[[], AbstractContextManager[Receiver]]] = {
    "grpc": grpc_receiver,
    "http/protobuf": http_receiver,
}
ENGINE = f"{1:016x}"


@pytest.fixture(params=PROTOCOLS)
def receiver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with PROTOCOLS[request.param]() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        receiver.protocol = request.param
        yield receiver


def push_of(receiver: Receiver, read: Callable[[], Reading]) -> MetricPush:
    exporter = metric_exporter(receiver.protocol)  # type: ignore[arg-type]
    resource = resource_of({"service.name": "stepscope"})
    return MetricPush(read, lambda: {ENGINE: START}, exporter, resource)


def storm_numbers() -> Numbers:
    connection = connect(storm_log())
    connection.execute(
        "INSERT INTO drains BY NAME SELECT 1::UBIGINT AS engine, ?::BIGINT AS ts, 0 AS num_commits,"
        " 0 AS num_steps, 0 AS num_events, 0 AS num_step_requests, 0 AS description, "
        "true AS closed",
        [time.time_ns()],
    )
    return Numbers(ConnectionLog(connection), RingSights(), lambda: (), version="1")


def test_every_sample_of_the_page_is_a_point_on_the_wire(receiver: Receiver) -> None:
    numbers = storm_numbers()
    push = push_of(receiver, numbers.read)
    assert push.work()
    push.close()
    told = {
        (metric.name, tuple(attributes(point.attributes).values())): point.as_double
        or float(point.as_int)
        for metric in receiver.metrics()
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points
    }
    own = {
        (name, sample.labels): float(sample.value)
        for name, samples in numbers.read().items()
        for sample in samples
    }
    assert told == own
    assert told["stepscope.preemptions", (ENGINE, "kv_full")] > 5


def test_kind_unit_and_meaning_are_those_of_the_catalogue(receiver: Receiver) -> None:
    push = push_of(receiver, storm_numbers().read)
    push.work()
    push.close()
    known = {metric.name: metric for metric in METRICS}
    for metric in receiver.metrics():
        own = known[metric.name]
        assert (metric.unit, metric.description) == (own.unit, own.doc)
        assert metric.HasField("sum") == (own.kind == "counter")
        if own.kind == "counter":
            assert metric.sum.is_monotonic


def test_a_counter_counts_since_its_engine_started(receiver: Receiver) -> None:
    push = push_of(receiver, lambda: {"stepscope.preemptions": [Sample((ENGINE, "kv_full"), 7)]})
    assert push.work()
    push.close()
    (point,) = receiver.points("stepscope.preemptions").values()
    assert point.start_time_unix_nano == START
    assert point.as_int == 7


def test_as_differences_a_first_push_does_not_tell_again_what_an_earlier_one_told(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "DELTA")
    values = iter([100, 103])
    push = push_of(
        receiver, lambda: {"stepscope.preemptions": [Sample((ENGINE, "kv_full"), next(values))]}
    )
    assert push.work()
    assert receiver.requests == []
    assert push.work()
    push.close()
    (metric,) = receiver.metrics()
    assert metric.sum.aggregation_temporality == (
        AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    )
    assert [point.as_int for point in metric.sum.data_points] == [3]


def test_a_receiver_that_refuses_is_counted_and_gets_newer_numbers(receiver: Receiver) -> None:
    values = iter([1.0, 2.0])
    push = push_of(receiver, lambda: {"stepscope.engine.up": [Sample((ENGINE,), next(values))]})
    receiver.is_refusing = True
    assert not push.work()
    receiver.is_refusing = False
    assert push.work()
    push.close()
    assert (push.num_pushes, push.num_failures) == (1, 1)
    assert [point.as_double for point in receiver.points("stepscope.engine.up").values()] == [2.0]


def test_a_log_that_cannot_be_read_pushes_nothing(receiver: Receiver) -> None:
    def busy() -> Reading:
        raise LogBusy("it is being opened")

    push = push_of(receiver, busy)
    with pytest.raises(LogBusy):
        push.work()
    push.close()
    assert receiver.requests == []


def test_an_engine_that_is_gone_has_no_point_any_more(receiver: Receiver) -> None:
    readings: list[Reading] = [{metrics.UP.name: [Sample((ENGINE,), 1)]}, {}]
    push = push_of(receiver, lambda: readings.pop(0))
    assert push.work()
    push.work()
    push.close()
    assert len(list(receiver.metrics())) == 1
