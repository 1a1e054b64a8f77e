"""The standard environment variables, and our own flags and variables beside them."""

from __future__ import annotations

import logging
import threading

import pytest

from telemetry.errors import StepscopeError
from telemetry.exporters.otlp import Destination, LastWords, OtlpError, find_destination
from telemetry.exporters.settings import ExportSettings, read_settings

ENDPOINT = "http://otel:4317"


def destination(signal: str = "traces", **environ: str) -> Destination | None:
    return find_destination(signal, environ)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ENDPOINT},
        {"OTEL_SERVICE_NAME": "chat", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"},
    ],
)
def test_spans_are_not_exported_unless_the_environment_says_so(environ: dict[str, str]) -> None:
    assert destination(**environ) is None


@pytest.mark.parametrize(
    ("environ", "protocol", "endpoint"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}, "grpc", ENDPOINT),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ENDPOINT}, "grpc", ENDPOINT),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "grpc", "http://localhost:4317"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            "http/protobuf",
            "http://localhost:4318",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://other",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://u:secret@otel/v1/traces?key=secret",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            "http/protobuf",
            "http://otel/v1/traces",
        ),
    ],
)
def test_a_signals_own_variable_counts_for_more(
    environ: dict[str, str], protocol: str, endpoint: str
) -> None:
    found = destination(**environ)
    assert found is not None
    assert (found.protocol, found.endpoint) == (protocol, endpoint)


def test_the_time_between_exports_is_the_standards() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}
    found = [destination(signal, **environ) for signal in ("traces", "metrics")]
    assert [each.seconds for each in found if each] == [5.0, 60.0]
    slow = destination("metrics", OTEL_METRIC_EXPORT_INTERVAL="1500", **environ)
    assert slow is not None
    assert slow.seconds == 1.5


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "write grpc or http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "can be exported by otlp, or none"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon", "write milliseconds, more than 0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "nan", "write milliseconds, more than 0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0", "write milliseconds, more than 0"),
    ],
)
def test_what_cannot_be_followed_is_told(name: str, value: str, told: str) -> None:
    with pytest.raises(OtlpError, match=told):
        destination(**{"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, name: value})


def test_without_any_variable_nothing_is_exported() -> None:
    assert read_settings({}) == ExportSettings()
    assert not read_settings({}).wants_anything


def test_a_flag_counts_for_more_than_its_variable() -> None:
    environ = {
        "STEPSCOPE_METRICS_PORT": "9464",
        "STEPSCOPE_METRICS_HOST": "0.0.0.0",
        "STEPSCOPE_OTEL_STEPS": "0.5",
    }
    own = read_settings(environ)
    assert (own.metrics_port, own.metrics_host, own.step_ratio) == (9464, "0.0.0.0", 0.5)
    flags = read_settings(environ, metrics_port=0, metrics_host="::1", step_ratio=0.0)
    assert (flags.metrics_port, flags.metrics_host, flags.step_ratio) == (0, "::1", 0.0)


def test_the_page_is_for_this_machine_alone_unless_told_otherwise() -> None:
    assert read_settings({"STEPSCOPE_METRICS_PORT": "9464"}).metrics_host == "127.0.0.1"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"metrics_port": 65_536}, "--metrics-port is 65536"),
        ({"metrics_port": -1}, "--metrics-port is -1"),
        ({"step_ratio": 1.5}, "--otel-steps is 1.5"),
        ({"step_ratio": float("nan")}, "--otel-steps is nan"),
    ],
)
def test_a_flag_out_of_range_stops_the_command(flags: dict[str, float], told: str) -> None:
    with pytest.raises(StepscopeError, match=told):
        read_settings({}, **flags)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STEPSCOPE_METRICS_PORT", "²"),
        ("STEPSCOPE_METRICS_PORT", "-1"),
        ("STEPSCOPE_METRICS_PORT", "70000"),
        ("STEPSCOPE_OTEL_STEPS", "all"),
        ("STEPSCOPE_OTEL_STEPS", "2"),
        ("OTEL_METRICS_EXPORTER", "console"),
    ],
)
def test_a_variable_that_is_wrong_is_a_problem_and_no_error(name: str, value: str) -> None:
    settings = read_settings({name: value})
    assert settings == ExportSettings(problems=settings.problems)
    (problem,) = settings.problems
    assert name in problem


def test_what_an_exporter_says_is_kept_a_thread_each() -> None:
    words = LastWords()
    log = logging.getLogger("opentelemetry.exporter.test")
    log.addFilter(lambda _: False)
    words.listen()
    other = threading.Thread(target=lambda: log.error("from elsewhere"))
    log.error("refused: %s\x1b", "no")
    other.start()
    other.join()
    assert words.of_this_thread() == "refused: no\\x1b"
