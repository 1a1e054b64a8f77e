"""What a replayed step would have been, in the features that step times are learned from."""

from __future__ import annotations

from collections.abc import Sequence

from engine.scheduler import Scheduler, SchedulerOutput


def features_of(scheduler: Scheduler, output: SchedulerOutput) -> Sequence[float]:
    """Returns the features of a step that was decided, in the order of `step_times.FEATURES`."""
    num_decodes = 0 if output.decodes is None else len(output.decodes)
    num_prefills = num_prefill_tokens = num_drafts = 0
    drafts = output.scheduled_spec_decode_tokens
    for name, count in output.other_scheduled_tokens.items():
        own = len(drafts[name]) if name in drafts else 0
        num_drafts += own
        if count - own == 1 and scheduler.requests[name].num_output_tokens:
            num_decodes += 1
        else:
            num_prefills += 1
            num_prefill_tokens += count - own
    pool = scheduler.kv.pool
    return (
        1.0,
        float(num_decodes),
        float(num_prefill_tokens),
        float(num_prefills),
        num_prefill_tokens * num_prefill_tokens / num_prefills if num_prefills else 0.0,
        float((pool.num_usable - pool.num_free) * scheduler.kv.block_size),
        float(len(output.num_prefix_hit_tokens)),
        float(num_drafts),
        float(_num_embeds(scheduler, output)) if output.scheduled_encoder_inputs else 0.0,
        float(sum(output.num_external_tokens.values())),
    )


def _num_embeds(scheduler: Scheduler, output: SchedulerOutput) -> int:
    return sum(
        scheduler.requests[name].encoder_items[item].num_embeds
        for name, items in output.scheduled_encoder_inputs.items()
        for item in items
    )
