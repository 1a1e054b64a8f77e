"""The sentences of the recorder's page: can it be believed, do counters agree, what is not known.

Facts in, words out: no log and no Streamlit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.untrusted import in_markdown
from diagnose.diagnosis import EngineDiagnosis
from diagnose.report import parts_not_in_use
from diagnose.words import NOT_MEASURED, count, duration, percent, plural
from telemetry.rendering import bytes_text

Row = Mapping[str, Any]
"""A row of a query; what is NULL is None."""

SCRAPES_CANNOT = (
    ("cause, victim, beneficiary of a preemption", "step records"),
    ("tokens lost and recomputed", "step records; vLLM has no counter for them"),
    ("why each request waited, and its story", "step records"),
    ("what happened between two scrapes", "step records"),
    ("replay, what-if", "requests with lengths and times"),
)
"""What scrapes alone cannot tell, and what would."""


def headline(cover: Row, engine: EngineDiagnosis | None) -> str:
    """Returns whether the record of the window is whole, in a sentence."""
    if not cover["num_rows"]:
        metrics = None if engine is None else engine.metrics
        if metrics is None:
            return "No step is recorded in this window."
        return f"No step is recorded: {plural(metrics.num_scrapes, metrics.noun)} are all there is."
    steps = int(cover["num_steps"])
    dropped = 0 if engine is None else engine.quality.num_records_dropped
    missing = int(cover["num_missing"]) if engine is None else engine.steps.num_steps_missing
    if not missing and not dropped:
        return f"The record is whole: {steps:,} of {steps:,} steps, 0 records dropped."
    if not missing:
        return f"Every step is here, but {plural(dropped, 'record')} beside them were dropped."
    share = percent(missing / (steps + missing))
    gaps = f" in {plural(int(cover['num_gaps']), 'gap')}" if cover["num_gaps"] else ""
    return f"{share} of steps are missing{gaps}: counts are lower bounds."


def totals(cover: Row, engine: EngineDiagnosis | None) -> list[tuple[str, str]]:
    """Returns the window's numbers: value and name."""
    missing = int(cover["num_missing"]) if engine is None else engine.steps.num_steps_missing
    quality = None if engine is None else engine.quality
    return [
        (count(int(cover["num_steps"])), "steps recorded"),
        (count(missing), "steps missing"),
        (count(int(cover["num_gaps"])), "gaps"),
        (NOT_MEASURED if quality is None else count(quality.num_records_dropped), "rows dropped"),
        (_number(cover["num_errors"]), "recorder errors"),
    ]


# ----------------------------------------------------------------------------------- the counters


@dataclass(frozen=True, slots=True)
class Agreement:
    """A counter as it was recorded and as others counted it, with the verdict."""

    name: str
    recorded: str
    own: str
    scraped: str
    verdict: str


def agreement(row: Row, *, is_recorded: bool) -> Agreement:
    """Returns whether a counter agrees with the engine's own and with the scraped one."""
    recorded = row["recorded"] if is_recorded else None
    return Agreement(
        name=row["counter"],
        recorded=_number(recorded),
        own=_number(row["own"]),
        scraped=_number(row["scraped"]),
        verdict=_verdict(recorded, row["own"], row["scraped"]),
    )


def _number(value: int | float | None) -> str:
    return NOT_MEASURED if value is None else f"{int(value):,}"


def _verdict(recorded: float | None, own: float | None, scraped: float | None) -> str:
    if recorded is None:
        return f":gray[{NOT_MEASURED} nothing recorded to compare with]"
    if own is not None and own > recorded:
        return f":orange[▲] {int(own - recorded):,} are not in the record"
    if own is not None and own < recorded:
        return f":orange[▲] {int(recorded - own):,} more recorded than the engine counts"
    if own is None and scraped is None:
        return f":gray[{NOT_MEASURED} nobody else counts it]"
    if scraped is None or scraped == recorded:
        return ":green[✓] equal"
    if scraped < recorded:
        said = f"{int(recorded - scraped):,} behind at the last scrape"
        return f":green[✓] the scraped counter lags: {said}"
    return f":orange[▲] {int(scraped - recorded):,} scraped that are not in the record"


# --------------------------------------------------------------------------------------- the cost


def disk_line(num_bytes: int, num_steps: int) -> str:
    """Returns what the log takes on disk, and for a step where it holds some."""
    size = f"{bytes_text(num_bytes)} on disk"
    if not num_steps:
        return size
    return f"{size}, all of this log: {bytes_text(round(num_bytes / num_steps))} a step"


def cost_line(p50_ns: int, p99_ns: int, num_requests: int, usual_ns: int | None) -> str:
    """Returns the cost of writing a step down, and its share of a usual step."""
    said = (
        f"**{duration(p50_ns)}** ᵈ a step of {plural(num_requests, 'request')} "
        f"(p50; p99 {duration(p99_ns)})"
    )
    if usual_ns:
        said += (
            f", {percent(p50_ns / usual_ns)} of this engine's usual step of {duration(usual_ns)}"
        )
    return said


# ------------------------------------------------------------------------------ what is not known


def not_known(engine: EngineDiagnosis) -> list[tuple[str, str]]:
    """Returns what this source cannot tell, and what would: each a pair."""
    if engine.metrics is not None:
        return list(SCRAPES_CANNOT)
    quality, settings = engine.quality, engine.settings
    lines = []
    if not quality.has_received_times:
        needs = in_markdown("request_arrivals.received_ts")
        lines.append(("time before the engine: tokeniser, HTTP", needs))
    if not engine.steps.token_budget_recorded:
        lines.append(("the token budget of a step", in_markdown("steps.token_budget")))
    if settings.settings is None:
        lines.append(("the engine's settings", "engines.settings"))
    for said in engine.not_measured:
        missing = in_markdown(", ".join(said.missing[:3]), 160)
        lines.append((f"rule {in_markdown(said.rule)}", missing or in_markdown(said.why, 160)))
    return lines


def not_in_use(engine: EngineDiagnosis) -> str:
    """Returns what this engine does not use, in a line; empty where it uses all."""
    unused = parts_not_in_use(engine)
    return f"{NOT_MEASURED} not in use: {', '.join(unused)}" if unused else ""


# ------------------------------------------------------------------------------------ the scrapes


def scrape_line(row: Row) -> dict[str, str]:
    """Returns a source of samples as a line of a table."""
    usual = row["usual_ns"]
    return {
        "source": in_markdown(str(row["source"])),
        "read": f"{int(row['num_scrapes']):,}",
        "apart": duration(usual),
        "longest pause": duration(row["longest_ns"]),
        "gaps": f"{int(row['num_gaps']):,}",
        "counters reset": f"{int(row['num_resets']):,}",
    }
