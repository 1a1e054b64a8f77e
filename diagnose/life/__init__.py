"""The life of findings: told once when something changes, and never lost in between.

Its tour: `look` is what one evaluation of the rules saw; `machine` turns looks into changes,
purely; `rows` are changes as rows of the table `findings`, and the way back; `state` reads what
stands now (with who acknowledged or silenced it), for commands, `watch` and the dashboard;
`ends` is how the record of an engine ended under what was open; `shares` and `sharing` are what
made a finding's preemptions, as it is stored, and by replays between two evaluations; `sayings` are
what a person says of findings, `said` what is stored and said of those of a diagnosis, `table` the
same for a page and a report, and `commands` are `findings`, `ack`, `silence` and `unsilence`.

Not responsible for evaluating (`diagnose.analyst` does, again and again) nor for storing
(`telemetry.store.posting`).
"""

from __future__ import annotations

from diagnose.life.state import (
    FindingState,
    Silence,
    StoredChange,
    is_closed,
    read_changes,
    read_silences,
    read_states,
)

__all__ = [
    "FindingState",
    "Silence",
    "StoredChange",
    "is_closed",
    "read_changes",
    "read_silences",
    "read_states",
]
