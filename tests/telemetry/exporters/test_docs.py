"""What docs/metrics.md and docs/opentelemetry.md say is what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from telemetry.exporters.metrics import METRICS
from telemetry.exporters.otlp import span_exporter
from telemetry.exporters.prometheus import render
from telemetry.vocabulary import EventKind, SkipReason
from tests.telemetry.exporters.receiver import grpc_receiver, tree_text
from tests.telemetry.exporters.test_prometheus import Adapters, Drafts, Numbers, families
from tests.telemetry.exporters.traced import Traced
from tests.telemetry.log_builder import LogBuilder

DOCS = Path(__file__).parents[3] / "docs"
SHOWN = [
    f"stepscope.{name}" for name in ("wait_reason", "connector", "outcome", "cause", "beneficiary")
] + ["stepscope.num_computed_tokens_lost"]


def rows_of(page: str, prefix: str) -> list[list[str]]:
    """Returns the cells of the table rows whose metric begins with a prefix."""
    lines = (DOCS / page).read_text().splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith(f"| `{prefix}")
    ]


def test_every_metric_of_the_collector_is_listed_with_all_that_it_is() -> None:
    assert rows_of("metrics.md", "stepscope_") == [
        [
            f"`{metric.prometheus_name}`",
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels) or "-",
            metric.counted_in,
            metric.polarity,
            metric.doc,
        ]
        for metric in METRICS
    ]


def test_every_metric_of_the_engine_is_listed_with_type_and_labels() -> None:
    page = {
        name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for name, family in families(
            render(Numbers(cache_config={}, adapters=Adapters(), drafts=Drafts()))
        ).items()
        if not name.endswith("_created")
    }
    listed = {
        name.strip("`"): (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, *_ in rows_of("metrics.md", "vllm:")
    }
    assert listed == page


def test_every_metric_has_a_unit_a_polarity_and_a_meaning() -> None:
    for prefix in ("stepscope_", "vllm:"):
        for _, _, _, unit, polarity, doc in rows_of("metrics.md", prefix):
            assert re.fullmatch(r"[a-z, 0-9]+|-", unit)
            assert polarity in ("higher", "lower", "-")
            assert doc.endswith(".")


def test_names_are_unique_and_follow_the_rules() -> None:
    names = [metric.prometheus_name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"stepscope(\.[a-z_]+)+", metric.name)
        assert metric.prometheus_name.endswith("_total") == (metric.kind == "counter")


def story() -> LogBuilder:
    """One request with a caller, a load, an eviction and a recomputation."""
    log = LogBuilder(engine=7).described()
    log.arrived(
        0, trace_id="4bf92f3577b34da6a3ce929d0e0e4736", parent_span_id="00f067aa0ba902b7"
    ).arrived(1)
    log.step().skipped(0, SkipReason.load_started)
    log.event(EventKind.load_started, 0, connector="lmcache", num_tokens=48, tier=1)
    log.advance(7_250_000).event(EventKind.load_finished, 0, connector="lmcache", num_tokens=48)
    log.step().admitted(0).admitted(1).advance(3_100_000).first_token(0)
    log.step().preempted(0, lost=64, beneficiary=1).step().finished(1)
    log.step().resumed(0, hit=48).advance(900_000).caught_up(0)
    return log.step().finished(0)


def test_the_tree_of_the_page_is_what_a_receiver_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    with grpc_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        exporter = span_exporter("grpc")
        traced = Traced(story())
        assert traced.export.work()
        exporter.export(traced.spans)
        exporter.shutdown()
        (root,) = [s for s in receiver.spans if s.attributes.get("stepscope.request") == 0]
        trace = [span for span in receiver.spans if span.trace_id == root.trace_id]
        told = tree_text(trace, shown=SHOWN)
    assert told in (DOCS / "opentelemetry.md").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER",
        "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER",
        "OTEL_BSP_SCHEDULE_DELAY", "OTEL_METRIC_EXPORT_INTERVAL", "STEPSCOPE_OTEL_STEPS",
    ],
)  # fmt: skip
def test_every_variable_is_explained(name: str) -> None:
    assert f"`{name}`" in (DOCS / "opentelemetry.md").read_text()
