"""Pipeline cadence: a model that is cut into stages has as many steps in flight as stages.

    pp_size 3    step    0    1    2    3
        stage 0         s0   s1   s2   s3      the token of step 0 leaves the last stage with
        stage 1              s0   s1   s2      step 2: its request decodes again in step 3,
        stage 2                   s0   s1      and is passed over in steps 1 and 2

A chunk of a prompt needs no output of the step before, so chunks of one prompt follow each other
step by step; only a decode has to wait for its token. With asynchronous scheduling the token's
place is taken by a placeholder, and the cadence is the same: the stages hand sampled tokens on in
turns, one turn a step.
"""

from __future__ import annotations

from engine.request import Request


def is_in_pipeline(request: Request, step: int) -> bool:
    """Whether a request's last decode has not left the pipeline when a step is decided."""
    return step < request.next_decode_step


def enter_pipeline(request: Request, step: int, pp_size: int) -> None:
    """Notes that a request decodes in a step: the next time is `pp_size` steps later."""
    request.next_decode_step = step + pp_size
