"""What of a vLLM can be recorded, found by looking at it and not by believing its version.

Each feature of the record needs a handful of vLLM's private names. Before anything is hooked, the
classes that this vLLM has are looked through for them: methods with the parameters that a hook
passes on or reads, and attributes. A feature with a name missing is switched off and the reason
kept; without step rows nothing can be recorded at all, and vLLM runs as if we were not there.

An attribute counts as present where the class, one of its bases or their `__init__` sets it: the
looking is done on classes, before the first scheduler is made.

Not responsible for features that the user's settings leave without work (no KV connector, no
prefix cache): that is no incompatibility.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from types import FunctionType
from typing import Any

TESTED_VERSIONS = ("0.32",)
"""Major and minor versions whose behaviour the hooks are tested against, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What the plug-in records of an engine. All of it, unless something says otherwise."""

    step_rows: bool = True
    request_events: bool = True
    dense_rows: bool = True
    kv_blocks: bool = True
    waiting_reasons: bool = True
    preemptions: bool = True
    allocation_failures: bool = True
    connector_stages: bool = True
    encoder: bool = True
    grammar: bool = True
    drafts: bool = True
    pauses: bool = True
    prefix_hashes: bool = True
    trace_context: bool = True


TITLES: Mapping[str, str] = {
    "step_rows": "steps",
    "request_events": "arrivals and ends of requests",
    "dense_rows": "requests in each step",
    "kv_blocks": "KV blocks by state",
    "waiting_reasons": "why requests wait",
    "preemptions": "preemptions",
    "allocation_failures": "failed KV allocations (whom a preemption was for)",
    "connector_stages": "stages of KV loads",
    "encoder": "encoder items",
    "grammar": "grammars being compiled",
    "drafts": "draft tokens",
    "pauses": "pauses and cache resets",
    "prefix_hashes": "shared prefixes",
    "trace_context": "the caller's trace",
}
"""Each feature in the words of a person."""

CLASSES: Mapping[str, str] = {
    "KVCacheManager": "vllm.v1.core.kv_cache_manager",
    "BlockPool": "vllm.v1.core.block_pool",
    "SchedulerOutput": "vllm.v1.core.sched.output",
    "CachedRequestData": "vllm.v1.core.sched.output",
    "NewRequestData": "vllm.v1.core.sched.output",
    "ModelRunnerOutput": "vllm.v1.outputs",
    "KVConnectorOutput": "vllm.v1.outputs",
    "DraftTokenIds": "vllm.v1.outputs",
    "Request": "vllm.v1.request",
    "RequestStatus": "vllm.v1.request",
}
"""Where vLLM keeps the classes that are looked through, besides the scheduler's own."""

NEEDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "step_rows": {
        "Scheduler": (
            "schedule()",
            "update_from_output(scheduler_output, model_runner_output)",
            "vllm_config",
            "kv_cache_config",
            "requests",
            "running",
            "waiting",
        ),
        "SchedulerOutput": ("num_scheduled_tokens", "total_num_scheduled_tokens"),
        "Request": ("request_id", "num_computed_tokens", "num_tokens", "num_prompt_tokens"),
    },
    "request_events": {
        "Scheduler": (
            "add_request(request)",
            "finish_requests(request_ids, finished_status)",
            "_free_request(request)",
        ),
        "Request": ("status", "max_tokens", "priority", "arrival_time", "num_output_tokens"),
        "RequestStatus": ("RUNNING", "PREEMPTED", "FINISHED_STOPPED", "FINISHED_ABORTED"),
    },
    "dense_rows": {"Request": ("num_tokens_with_spec", "spec_token_ids")},
    "kv_blocks": {
        "Scheduler": ("kv_cache_manager",),
        "KVCacheManager": ("block_pool", "get_blocks(request_id)"),
        "BlockPool": ("num_gpu_blocks", "null_block", "get_num_free_blocks()"),
    },
    "waiting_reasons": {
        "Scheduler": (
            "deferred_waiting",
            "kv_holding_waiting",
            "_handle_blocked_waiting_request(request)",
        ),
        "RequestStatus": (
            "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
            "WAITING_FOR_REMOTE_KVS",
            "WAITING_FOR_STREAMING_REQ",
        ),
    },
    "preemptions": {
        "Scheduler": ("_preempt_request(request, timestamp)",),
        "Request": ("num_preemptions", "num_in_flight_tokens"),
    },
    "allocation_failures": {
        "Scheduler": ("kv_cache_manager",),
        "KVCacheManager": ("allocate_slots(request, num_new_tokens)",),
    },
    "connector_stages": {
        "Scheduler": ("connector", "finished_recving_kv_req_ids", "failed_recving_kv_req_ids"),
        "ModelRunnerOutput": ("kv_connector_output",),
        "KVConnectorOutput": ("finished_recving", "finished_sending", "invalid_block_ids"),
    },
    "encoder": {
        "Scheduler": ("encoder_cache_manager", "_ec_transfer_pending(request)"),
        "SchedulerOutput": ("scheduled_encoder_inputs",),
        "Request": ("mm_features",),
    },
    "grammar": {
        "Scheduler": ("get_grammar_bitmask(scheduler_output)",),
        "Request": ("structured_output_request",),
    },
    "drafts": {
        "Scheduler": ("update_draft_token_ids(draft_token_ids)",),
        "SchedulerOutput": ("scheduled_spec_decode_tokens",),
    },
    "pauses": {
        "Scheduler": ("set_pause_state(pause_state)", "reset_prefix_cache()"),
    },
    "prefix_hashes": {"Scheduler": ("hash_block_size",), "Request": ("block_hashes",)},
    "trace_context": {"Request": ("trace_headers",)},
}
"""The names that each feature stands on: `name`, or `name(parameter, ...)` for a method."""

_NEED = re.compile(r"(\w+)(?:\(([\w, ]*)\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """What can be recorded of one vLLM and one scheduler class.

    `lacking` says of each feature that is off what is missing; `version` is vLLM's own word.
    """

    version: str | None
    scheduler: str
    features: Features
    lacking: Mapping[str, str]

    @property
    def can_record(self) -> bool:
        """Whether anything can be recorded."""
        return self.features.step_rows

    @property
    def is_tested(self) -> bool:
        """Whether the hooks are tested against this version."""
        return (self.version or "").split("+")[0].rsplit(".", 1)[0] in TESTED_VERSIONS

    def warning(self) -> str | None:
        """Returns what an operator should know of it, in one sentence; None if all is well."""
        version = f"vLLM {self.version or 'of unknown version'}"
        tested = f" (tested: {', '.join(TESTED_VERSIONS)})"
        if not self.can_record:
            return (
                f"{version} with {self.scheduler} cannot be recorded, it runs as without "
                f"Stepscope: {self.lacking['step_rows']}{tested}"
            )
        lacks = [f"{TITLES[name]} ({why})" for name, why in self.lacking.items()]
        if lacks:
            return f"{version} is recorded in part, without {'; '.join(lacks)}{tested}"
        if not self.is_tested:
            return f"{version} is recorded, but has not been tested{tested}"
        return None


def compatibility_of(
    scheduler: type, version: str | None, classes: Mapping[str, type | None] | None = None
) -> Compatibility:
    """Returns what can be recorded of `scheduler`, the class that vLLM is about to make.

    Args:
        version: what vLLM says of itself.
        classes: the other classes to look through, by the names of `CLASSES`; None stands for one
            that this vLLM does not have. Without it, they are vLLM's.
    """
    found = {**(vllm_classes() if classes is None else classes), "Scheduler": scheduler}
    lacking = {}
    for name, needs in NEEDS.items():
        if missing := list(_missing(needs, found)):
            lacking[name] = ", ".join(missing)
    if "step_rows" in lacking:
        lacking = {name: lacking.get(name, "no step rows") for name in NEEDS}
    return Compatibility(
        version=version,
        scheduler=scheduler.__name__,
        features=Features(**{f.name: f.name not in lacking for f in fields(Features)}),
        lacking=lacking,
    )


def vllm_classes() -> dict[str, type | None]:
    """Returns the classes of `CLASSES` that this vLLM has."""
    return {name: _imported(module, name) for name, module in CLASSES.items()}


def _imported(module: str, name: str) -> type | None:
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, type) else None


def _missing(
    needs: Mapping[str, tuple[str, ...]], classes: Mapping[str, type | None]
) -> Iterator[str]:
    for owner, wanted in needs.items():
        cls = classes.get(owner)
        if cls is None:
            yield f"no class {owner}"
            continue
        for need in wanted:
            yield from _lack_of(cls, owner, need)


def _lack_of(cls: type, owner: str, need: str) -> Iterator[str]:
    """Yields what of one need a class does not have."""
    match = _NEED.fullmatch(need)
    if match is None:
        raise ValueError(f"{need!r} is no need: write a name, or a method with its parameters")
    name, listed = match.groups()
    if listed is None:
        if not _has_attribute(cls, name):
            yield f"no {owner}.{name}"
        return
    method = getattr(cls, name, None)
    if not callable(method):
        yield f"no {owner}.{name}()"
        return
    wanted = [parameter.strip() for parameter in listed.split(",") if parameter.strip()]
    taken = _parameters(method)
    absent = [parameter for parameter in wanted if taken is not None and parameter not in taken]
    if absent:
        yield f"{owner}.{name}() has no {', '.join(absent)}"


def _has_attribute(cls: type, name: str) -> bool:
    """Returns whether a class or one of its bases has an attribute, or its `__init__` sets it."""
    for base in cls.__mro__:
        if name in vars(base) or name in vars(base).get("__annotations__", {}):
            return True
        made = inspect.unwrap(vars(base).get("__init__", object.__init__))
        if isinstance(made, FunctionType) and name in _stored_by(made):
            return True
    return False


def _stored_by(function: FunctionType) -> set[Any]:
    stores = (step for step in dis.get_instructions(function) if step.opname == "STORE_ATTR")
    return {step.argval for step in stores}


def _parameters(method: Any) -> set[str] | None:
    """Returns the names of a method's parameters; None where it takes any."""
    parameters = inspect.signature(method).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds:
        return None
    return set(parameters)
