"""The scheduler: which request runs how many tokens in the next step, and who must go.

Its tour: `scheduler` reads as the flow chart (budgets, running scan, preemption on shortage,
admission unless something was preempted, output); `running_scan`, `preemption` and `waiting_scan`
are its named steps, `speculation`, `encoder_inputs`, `kv_loads`, `async_output`, `turns` and
`stopping` what they ask; `pipeline_cadence`, `chunk_alignment`, `input_budget` and `encoder_loads`
where a model or its helpers need that. `load_deadlines` gives up `transfers` that take too long,
`jump_decoding` appends what need not be sampled. `state` is what it knows between two decisions,
`queues` order those who wait, `plan` is one step while it is being decided. `output` is what passes
to the runner and back. `journal` writes each decision down as the `rows` of the record;
`open_steps` keeps them until the step is over. No torch, and nothing of the other rooms of the
engine.
"""

from engine.scheduler.output import (
    CachedRequestData,
    KVSaves,
    ModelRunnerOutput,
    NewRequestData,
    RequestOutput,
    SchedulerOutput,
)
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.state import PauseState

__all__ = [
    "CachedRequestData",
    "KVSaves",
    "ModelRunnerOutput",
    "NewRequestData",
    "PauseState",
    "RequestOutput",
    "Scheduler",
    "SchedulerOutput",
]
