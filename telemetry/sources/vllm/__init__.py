"""The plug-in that records a stock vLLM, from inside its engine core.

vLLM finds it through an entry point (`stepscope_vllm`, which first makes sure that this is the
package it means). It needs numpy and the standard library; vLLM is imported inside functions only.

Its tour: `registration` gets it in, by the scheduler class that an engine core asks for;
`compatibility` finds out what may be hooked there (by `needs`), `subclassing` puts it together;
`recording` is the subclass that records; `description` and `settings` tell the record what engine
it is; `parting` has it say good-bye in time.
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
