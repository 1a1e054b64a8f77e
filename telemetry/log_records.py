"""Rows that the collector itself writes into the step log: no engine does.

Column types and rules are those of `telemetry.records`. This module is a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.records import I8, U1, U4, U8, Flag, Text, column


@dataclass(slots=True, kw_only=True)
class HeartbeatRow:
    """What the ring's header said about a living engine, once a second."""

    ts: I8 = column("when the engine last beat", 0)
    step: U8 | None = column("step it was in")
    phase: U1 | None = column("Phase it was in")
    phase_age_ns: I8 | None = column("since when, at the beat")
    rss_bytes: U8 | None = column("resident memory of the process")
    num_steps: U8 | None = column("steps published to the ring")
    num_events: U8 | None = column("events published to the ring")
    num_preemptions: U8 | None = column("the scheduler's own counter")
    num_recorder_errors: U4 | None = column("errors the recorder swallowed")


@dataclass(slots=True, kw_only=True)
class ClockAnchorRow:
    """The two clocks side by side, every 60 s."""

    ts: I8 = column("the run's clock", 0)
    monotonic_ns: I8 = column("monotonic clock", 0)
    wall_ns: I8 = column("wall clock", 0)


@dataclass(slots=True, kw_only=True)
class DrainRow:
    """How far a ring has been read, written with the rows that were read."""

    ts: I8 = column("when the collector wrote", 0)
    num_commits: U8 = column("commits read", 0)
    num_steps: U8 = column("rows of `steps` read", 0)
    num_events: U8 = column("rows of `events` read", 0)
    num_step_requests: U8 = column("rows of `step_requests` read", 0)
    description: U4 = column("version of the engine's description read", 0)
    closed: Flag = column("the ring was drained to its end and removed", False)


@dataclass(slots=True, kw_only=True)
class FindingRow:
    """A change in the life of a finding, or what a person said of some."""

    finding: Text | None = column("stable id: a rule and an engine; NULL for a silence")
    ts: I8 = column("when it was posted, wall clock", 0)
    event: Text | None = column("what changed (docs/findings.md); NULL before version 5")
    status: Text | None = column("open, flapping, cleared or ended; NULL for what a person said")
    rule: Text | None = column("rule; NULL for a silence of all rules")
    rule_version: U4 | None = column("version of the rule; NULL for what a person said")
    severity: Text | None = column("info, medium, high or critical; NULL for what a person said")
    opened_ts: I8 | None = column("when it opened; NULL for what a person said")
    cleared_ts: I8 | None = column("when it cleared; NULL while open")
    num_openings: U4 | None = column("how often it has opened so far")
    reason: Text | None = column("why it changed, where there is more to say")
    author: Text | None = column("person who acknowledged or silenced; NULL for a change")
    note: Text | None = column("what that person wrote")
    until_ts: I8 | None = column("end of a silence; NULL for anything else")
    body: Text | None = column("the whole finding, JSON")


@dataclass(slots=True, kw_only=True)
class RemovedDayRow:
    """A day's file that the collector has removed, as its retention says."""

    ts: I8 = column("when it was removed", 0)
    day: Text = column("the UTC day", "")
    is_dense: Flag = column("whether it held the day's dense rows, and not its others", False)
    size_bytes: U8 = column("size of the file", 0)
    limit_name: Text = column("the limit: keep_days, keep_dense_days or max_bytes", "")


@dataclass(slots=True, kw_only=True)
class BundleInfoRow:
    """What a bundle says about itself."""

    from_ts: I8 = column("begin of its window", 0)
    until_ts: I8 = column("end of its window", 0)
    made_ts: I8 = column("when it was made", 0)
    is_salted: Flag = column("whether names are replaced", False)


@dataclass(slots=True, kw_only=True)
class ExportRow:
    """How far an engine has been exported as spans; written once the receiver has acknowledged."""

    ts: I8 = column("when the collector wrote", 0)
    next_event: U8 = column("requests that ended in an earlier event have been exported", 0)
    next_step: U8 = column("earlier steps have been exported, as far as they are sampled", 0)
