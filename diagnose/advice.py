"""Actions that a preempting engine can take, worked out from its own run.

Never what is already set, never a flag that the record does not show the engine to have, and no
predicted effect: only a replay may give one. `gpu_memory_utilization` is not among them: it is
0.92 by default already, and what is left is needed by graphs, communication and temporaries.
"""

from __future__ import annotations

import math

from diagnose.capacity import Capacity
from diagnose.facts import EngineSettings
from diagnose.finding import Action, Applies

VERIFY = "stepscope diagnose --since 10m"
WATERMARK = 0.05
"""Upper end of what a published sweep found useful (0.02 to 0.05); 0.1 only cost throughput."""
LEAST_WATERMARK = 0.02
"""From here on the setting counts as made."""


def advise(
    what: str,
    *,
    trade_off: str,
    applies: Applies = "restart",
    flag: str | None = None,
    old: object = None,
    new: object = None,
    revert: str | None = None,
) -> Action:
    """Returns an action; `old` and `new` are what its flag is set to, and should be."""
    if revert is None:
        revert = "as it was" if flag is None else f"{flag} {old}"
    return Action(
        what=what,
        flag=flag,
        old=None if flag is None else str(old),
        new=None if flag is None else str(new),
        applies=applies,
        trade_off=trade_off,
        verify=VERIFY,
        revert=revert,
    )


def fewer_slots(settings: EngineSettings, capacity: Capacity) -> Action | None:
    """Lets in only as many requests as the pool holds to their end."""
    holds, slots = capacity.holds, settings.max_num_seqs
    limit = capacity.slots
    if holds is None or slots is None or limit is None or not 1 <= holds < limit:
        return None
    return Action(
        what="let in as many as the pool holds to their end",
        flag="--max-num-seqs",
        old=str(slots),
        new=str(holds),
        applies="restart",
        trade_off="the others queue: first tokens come later",
        verify=VERIFY,
        revert=f"--max-num-seqs {slots}",
    )


def larger_pool(settings: EngineSettings, capacity: Capacity) -> Action | None:
    """Makes the pool hold all that ran at once to their end."""
    pool, blocks, old = capacity.pool, capacity.peak_blocks, settings.num_gpu_blocks
    if pool is None or blocks is None or old is None or blocks <= pool:
        return None
    new = old + blocks - pool
    return Action(
        what=f"give the pool room for {capacity.peak_running} requests at full length",
        flag="--num-gpu-blocks-override",
        old=str(old),
        new=str(new),
        applies="restart",
        trade_off=f"{new / old:.1f} x the KV memory; it has to be there",
        verify=VERIFY,
        revert=f"--num-gpu-blocks-override {old}",
    )


def watermark(settings: EngineSettings) -> Action | None:
    """Keeps a few blocks from admissions, for those that run to grow into."""
    old, blocks = settings.watermark, settings.num_gpu_blocks
    if old is None or blocks is None or old >= LEAST_WATERMARK:
        return None
    if int(WATERMARK * blocks) <= int(old * blocks):
        return None
    return Action(
        what=f"keep {math.floor(WATERMARK * blocks)} blocks from admissions, to grow into",
        flag="--watermark",
        old=f"{old:g}",
        new=f"{WATERMARK:g}",
        applies="restart",
        trade_off="first tokens wait; 0.1 only costs throughput",
        verify=VERIFY,
        revert=f"--watermark {old:g}",
    )


def whole_prompt(settings: EngineSettings) -> Action | None:
    """Admits a request only when all its known tokens fit."""
    if settings.reserve_full_prompt is not False:
        return None
    return Action(
        what="admit a request only when all its known tokens fit",
        flag="--scheduler-reserve-full-isl",
        old="off",
        new="on",
        applies="restart",
        trade_off="long requests wait longer to be admitted",
        verify=VERIFY,
        revert="--no-scheduler-reserve-full-isl",
    )


def prefix_cache(settings: EngineSettings) -> Action | None:
    """Lets an evicted request find its own blocks again."""
    if settings.enable_prefix_caching is not False:
        return None
    return Action(
        what="let an evicted request find its own blocks again",
        flag="--enable-prefix-caching",
        old="off",
        new="on",
        applies="restart",
        trade_off="hashing costs a little time per block",
        verify=VERIFY,
        revert="--no-enable-prefix-caching",
    )


def against_preemption(settings: EngineSettings, capacity: Capacity) -> tuple[Action, ...]:
    """Returns what this engine can do against preemptions, most direct first."""
    actions = (
        whole_prompt(settings),
        fewer_slots(settings, capacity),
        larger_pool(settings, capacity),
        watermark(settings),
    )
    return tuple(action for action in actions if action is not None)
