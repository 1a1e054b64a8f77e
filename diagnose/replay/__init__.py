"""Replay: a recorded run, scheduled again.

Its tour: `inputs` is all that reached the scheduler, from the `rows` of its log: `settings`,
`requests`, `texts` and the `tokens` that are made up for them, `answers` of connectors, and the
`calls` in their `order`; `run` gives it all to a fresh scheduler. A run that is replayed under its
own settings takes the same decisions, in every step.

What happens between two steps is not computed: a replay needs no model, and no time.
"""

from __future__ import annotations

from diagnose.replay.inputs import RunInputs, read_inputs
from diagnose.replay.rows import ReplayError
from diagnose.replay.run import Decided, Replay, TakenIn

__all__ = ["Decided", "Replay", "ReplayError", "RunInputs", "TakenIn", "read_inputs"]
