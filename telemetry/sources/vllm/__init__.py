"""The plug-in that records a stock vLLM, from inside its engine core.

vLLM finds it through an entry point (`stepscope_vllm`, which first makes sure that this is the
package it means). It needs numpy and the standard library; vLLM is imported inside functions only.

Its tour: `registration` gets it in, by the scheduler class that an engine core asks for;
`compatibility` finds out what may be hooked there (by `needs`), `subclassing` puts it together;
`recording` is the subclass that records; `description` and `settings` tell the record what engine
it is; `parting` has it say good-bye in time.

Behind `recording` stands the `journal`, with a `guard` between it and vLLM. Its hooks are named
after vLLM's methods: `step_hooks`, `scan_hooks`, `request_hooks`, `load_hooks`, on top of `parts`.
The parts keep what is going on: `steps` in flight, `lives` of requests, the scans of the `running`
and the `waiting` requests and why they ended (`stop_reasons`, `block_needs`), `preemptions`,
`loads`, items of the `encoder`, `token_times`; `allocations` listens no more than it must. And they
write it down: `step_rows`, `dense_rows`, `arrivals`, `endings`, with `blocks` by state, `keys` that
say nothing of what they are keys of, and the caller's `trace_context`.
"""

from __future__ import annotations


def register() -> None:
    """Has the engine cores of this process recorded, if there will be any.

    Raises:
        Exception: this vLLM has no such scheduler configuration. The caller stands between that
            and vLLM (`stepscope_vllm.register`).
    """
    from vllm.config import SchedulerConfig

    from telemetry.sources.vllm.registration import attach

    attach(SchedulerConfig)
