"""Replay: a recorded run, scheduled again: as it was, or under other settings.

As it was, call by call. Its tour: `inputs` is all that reached the scheduler, from the `rows` of
its log: `settings`, `requests`, `texts` and the `tokens` that are made up for them, `answers` of
connectors, and the `calls` in their `order`; `run` gives it all to a fresh scheduler. A run that is
replayed under its own settings takes the same decisions, in every step. What happens between two
steps is not computed: a replay needs no model, and no time.

Under other settings steps are others and come at other times, so a load is replayed by time. Its
tour: `workload` is the load as a value; `recorded_load` reads it, with `recorded_steps`,
`recorded_requests`, `recorded_texts`, `recorded_measures`, and `client_loop`, which tells how
clients behaved; `edits` change it; `simulation` schedules it, with `step_times` learned from the
same log by `step_features`, with what comes on a `timeline`: `simulated_clients` send requests, a
`simulated_runner` knows their texts (in an `arena`) and `simulated_drafts`, `simulated_transfers`
bring and take KV by a `simulated_connector` or `simulated_store`; `outcome` is what became of it,
in the quantities of `measures`. `prediction` compares two loads, `smallest` looks for the least
change of a setting; `settable` is what can be changed, `asked` reads what a command line asks for,
and the modules `whatif_...` say it in words, as a table, as JSON.
"""

from __future__ import annotations

from diagnose.replay.edits import (
    scaled,
    with_clients,
    with_connector_latency,
    with_requests,
    with_settings,
    without,
)
from diagnose.replay.inputs import RunInputs, read_inputs
from diagnose.replay.outcome import Outcome, Preempted
from diagnose.replay.recorded_load import read_workload
from diagnose.replay.rows import ReplayError
from diagnose.replay.run import Decided, Replay, TakenIn
from diagnose.replay.simulation import simulate
from diagnose.replay.workload import Clients, Workload, WorkRequest

__all__ = [
    "Clients",
    "Decided",
    "Outcome",
    "Preempted",
    "Replay",
    "ReplayError",
    "RunInputs",
    "TakenIn",
    "WorkRequest",
    "Workload",
    "read_inputs",
    "read_workload",
    "scaled",
    "simulate",
    "with_clients",
    "with_connector_latency",
    "with_requests",
    "with_settings",
    "without",
]
