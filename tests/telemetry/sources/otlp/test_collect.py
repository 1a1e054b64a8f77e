"""`stepscope collect --otlp-...`, a real exporter, `doctor` and `query`: as a user has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

from stepscope import build_parser, main
from telemetry.sources.commands import from_flags
from tests.telemetry.collector.builders import wait_until
from tests.telemetry.sources.collecting import answers, collecting, source_lines, stepscope
from tests.telemetry.sources.otlp.test_exporters import spans


def test_spans_reach_the_log_and_doctor_tells_of_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with collecting(log, "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0"):
        (line,) = source_lines(log)
        grpc, http = re.findall(r"grpc (\S+) and http (\S+):", line)[0]
        for sender in (
            GrpcExporter(endpoint=f"http://{grpc}", insecure=True),
            HttpExporter(endpoint=http),
        ):
            sender.export(spans(3))
            sender.shutdown()
        wait_until(lambda: answers(log, "SELECT count(*) AS n FROM engine_spans") == [{"n": 6}])
        doctor = stepscope("doctor", "--log", str(log)).stdout
        assert re.search(r"✓ source +OTLP at grpc \S+ and http \S+: 6 spans of vLLM, the", doctor)
    assert answers(log, "SELECT DISTINCT service, queue_ns FROM engine_spans") == [
        {"service": "chat", "queue_ns": 250_000_000}
    ]


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], None),
        (["--otlp-listen"], "grpc=('127.0.0.1', 4317), http=('127.0.0.1', 4318)"),
        (["--otlp-http", "[::1]:5"], "grpc=None, http=('::1', 5)"),
        (["--otlp-listen", "--otlp-grpc", "0.0.0.0:7"], "grpc=('0.0.0.0', 7), http=('127.0.0.1',"),
    ],
)
def test_flags_say_where_to_listen(flags: list[str], line: str | None) -> None:
    sources = from_flags(build_parser().parse_args(["collect", *flags]))
    if line is None:
        assert sources == []
    else:
        assert line in str(sources[0]._addresses)  # type: ignore[attr-defined]


@pytest.mark.parametrize("address", ["4317", "localhost", "a:b", ":5", "a:99999", "a:-1"])
def test_an_address_that_is_none_stops_collect(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", f"--otlp-grpc={address}", "--log", str(tmp_path)]) == 2
    assert "write HOST:PORT, like 127.0.0.1:4317" in capsys.readouterr().err
