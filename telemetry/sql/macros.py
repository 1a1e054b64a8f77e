"""The macros that come with the views: what each gives, and an example.

A macro that makes rows stands in FROM; the others are functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.vocabulary import VOCABULARIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """A macro: how it is called, what it gives in which unit, a statement that uses it."""

    signature: str
    doc: str
    unit: str
    example: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.signature.partition("(")[0]


def _vocabulary_macros(enum: str) -> tuple[Macro, Macro]:
    first = next(iter(VOCABULARIES[enum]))
    words = f"{'an' if enum[0] in 'aeiou' else 'a'} {enum.replace('_', ' ')}"
    return (
        Macro(
            signature=f"{enum}(name)",
            doc=f"The code of {words}; an error for a name that is none.",
            unit="code",
            example=f"SELECT {enum}('{first.name}') AS code",
        ),
        Macro(
            signature=f"{enum}_name(code)",
            doc=f"The name of {words}; NULL for a code that is none.",
            unit="-",
            example=f"SELECT {enum}_name({int(first)}) AS name",
        ),
    )


_OTHERS = (
    Macro(
        signature="utc(ts)",
        doc="A moment in ns since the Unix epoch as a UTC TIMESTAMP, for reading.",
        unit="UTC",
        example="SELECT utc(max(ts)) AS newest FROM steps",
    ),
    Macro(
        signature="wait_reasons_between(from_ns, until_ns)",
        doc="The rows of the view wait_reasons in a stretch of ts, both ends within it.",
        unit="rows",
        example="SELECT request, wait_reason, count(*) AS num_steps\n"
        "FROM wait_reasons_between(\n"
        "  (SELECT max(ts) FROM steps) - 60000000000, (SELECT max(ts) FROM steps)\n"
        ")\n"
        "GROUP BY ALL ORDER BY ALL",
    ),
    Macro(
        signature="queue_scans_between(from_ns, until_ns)",
        doc="The steps of a stretch of ts, with the head of the queue when it was last scanned; "
        "what wait_reasons and queue_by_reason are made of.",
        unit="rows",
        example="SELECT step, chain, head FROM queue_scans_between(NULL::BIGINT, NULL::BIGINT)\n"
        "WHERE NOT has_scanned ORDER BY ALL",
    ),
    Macro(
        signature="waits_between(from_ns, until_ns)",
        doc="Stretches of steps in which a request of a stretch of ts waited for one thing; what "
        "wait_reasons and queue_by_reason are made of.",
        unit="rows",
        example="SELECT request, skip_reason_name(reason) AS reason, from_step, until_step\n"
        "FROM waits_between(NULL::BIGINT, NULL::BIGINT) ORDER BY ALL",
    ),
    Macro(
        signature="queue_by_reason_between(from_ns, until_ns)",
        doc="The rows of the view queue_by_reason in a stretch of ts, both ends within it, in time "
        "that grows with the stretch.",
        unit="rows",
        example="SELECT wait_reason, sum(num_requests) AS num_request_steps\n"
        "FROM queue_by_reason_between(\n"
        "  (SELECT min(ts) FROM steps), (SELECT min(ts) + 1000000000 FROM steps)\n"
        ")\n"
        "GROUP BY wait_reason ORDER BY num_request_steps DESC, wait_reason",
    ),
    Macro(
        signature="wait_reasons_between(from_ns, until_ns)",
        doc="The rows of the view wait_reasons in a stretch of ts, both ends within it.",
        unit="rows",
        example="SELECT count(*) AS num_waits FROM wait_reasons_between(\n"
        "  (SELECT min(ts) FROM steps), (SELECT min(ts) + 1000000000 FROM steps)\n"
        ")",
    ),
    Macro(
        signature="waits_between(from_ns, until_ns)",
        doc="One row a stretch of steps in which a request waited for one thing: from_step up to, "
        "not with, until_step. For wait_reasons and queue_by_reason; ask those.",
        unit="rows",
        example="SELECT count(*) > 0 AS somebody_waited FROM waits_between(NULL, NULL)",
    ),
    Macro(
        signature="queue_scans_between(from_ns, until_ns)",
        doc="One row a step: who was the head of the queue, and why, when it was last scanned. For "
        "wait_reasons and queue_by_reason; ask those.",
        unit="rows",
        example="SELECT count(*) > 0 AS there_are_steps FROM queue_scans_between(NULL, NULL)",
    ),
    Macro(
        signature="metric_names()",
        doc="How engines and their versions spell what metric_intervals has as columns: the name "
        "of a sample, the column, whether it is a gauge, a counter or a rate, which name counts "
        "first (the lowest rank), and the label that it must have.",
        unit="rows",
        example="SELECT metric, rank FROM metric_names()\n"
        "WHERE canonical = 'kv_cache_usage_ratio' ORDER BY rank LIMIT 3",
    ),
    Macro(
        signature="histogram_names()",
        doc="How engines and their versions spell the histograms of metric_buckets.",
        unit="rows",
        example="SELECT metric, rank FROM histogram_names()\n"
        "WHERE canonical = 'ttft' ORDER BY rank LIMIT 3",
    ),
    Macro(
        signature="metric_intervals_between(from_ns, until_ns)",
        doc="The rows of the view metric_intervals in a stretch of ts, both ends within it, in "
        "time that grows with the stretch; the scrape before the first is looked for within an "
        "hour.",
        unit="rows",
        example="SELECT count(*) AS num_scrapes FROM metric_intervals_between(\n"
        "  (SELECT min(ts) FROM samples), (SELECT max(ts) FROM samples)\n"
        ")",
    ),
    Macro(
        signature="metric_buckets_between(from_ns, until_ns)",
        doc="The rows of the view metric_buckets in a stretch of ts, both ends within it, in time "
        "that grows with the stretch; the scrape before the first is looked for within an hour.",
        unit="rows",
        example="SELECT count(DISTINCT histogram) AS num_histograms FROM metric_buckets_between(\n"
        "  (SELECT min(ts) FROM samples), (SELECT max(ts) FROM samples)\n"
        ")",
    ),
    Macro(
        signature="counter_rise(more, was_reset, rate, covered_ns)",
        doc="What a counter rose by between two scrapes: the difference, or a rate a second times "
        "the time it covers; NULL after a reset. For metric_intervals; ask that.",
        unit="-",
        example="SELECT counter_rise(3, false, NULL, NULL) AS more,\n"
        "  counter_rise(NULL, false, 20.0, 10000000000) AS from_rate,\n"
        "  counter_rise(-3, true, NULL, NULL) AS after_reset",
    ),
    Macro(
        signature="present(attributes)",
        doc="A JSON object without the members that are null.",
        unit="JSON",
        example="""SELECT present('{"a": 1, "b": null}') AS attributes""",
    ),
    Macro(
        signature="callers_id(id, num_digits)",
        doc="A trace or span id as its caller sent it, in small letters; NULL where it is not well "
        "formed.",
        unit="hex digits",
        example="SELECT callers_id('00F067AA0BA902B7', 16) AS span_id, "
        "callers_id('not an id', 16) AS malformed",
    ),
    Macro(
        signature="request_trace_id(engine, request, trace_id)",
        doc="The trace of a request: its caller's where that is well formed, else a hash of engine "
        "and request.",
        unit="hex digits",
        example="SELECT request_trace_id(1, 2, NULL) AS trace_id",
    ),
    Macro(
        signature="request_span_id(engine, request)",
        doc="The span of a request: a hash of engine and request.",
        unit="hex digits",
        example="SELECT request_span_id(1, 2) AS span_id",
    ),
    Macro(
        signature="step_span_id(engine, step)",
        doc="The span of a step: a hash of engine and step.",
        unit="hex digits",
        example="SELECT step_span_id(1, 2) AS span_id",
    ),
)

MACRO_DOCS: dict[str, Macro] = {
    macro.name: macro
    for macro in (*_OTHERS, *(each for enum in VOCABULARIES for each in _vocabulary_macros(enum)))
}
"""Every macro of the library by name."""
