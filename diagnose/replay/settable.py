"""What a what-if can change, how each is written, and what it takes to make the change for real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagnose.replay.edits import (
    scaled,
    with_connector_latency,
    with_requests,
    with_settings,
    without,
)
from diagnose.replay.workload import Workload, WorkRequest

Changes = Mapping[str, Any]
"""Names of `SETTINGS` and their new values; `without` has a tuple of filters."""

_TRUE, _FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")
_ALIASES = {"num_gpu_blocks_override": "num_gpu_blocks", "scheduling_policy": "policy"}


def _whole(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


def _flag(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def _optional(text: str) -> int | None:
    return None if text.lower() == "none" else _whole(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Something that can be changed.

    `flag` is vLLM's and this engine's; None for what is no setting but the load itself. `wants`
    says which values it takes, `needs` what the change takes in production.
    """

    name: str
    parse: Callable[[str], Any]
    wants: str
    flag: str | None = None
    needs: str = "restart"


_LOAD = "other traffic"
SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(name="max_num_seqs", parse=_whole, wants="1 or more", flag="--max-num-seqs"),
        Setting(
            name="max_num_active_seqs",
            parse=_optional,
            wants="1 to max_num_seqs, or none",
            flag="--max-num-active-seqs",
        ),
        Setting(
            name="max_num_batched_tokens",
            parse=_whole,
            wants="1 or more",
            flag="--max-num-batched-tokens",
        ),
        Setting(
            name="max_num_scheduled_tokens",
            parse=_optional,
            wants="1 to max_num_batched_tokens, or none",
            flag="--max-num-scheduled-tokens",
        ),
        Setting(
            name="num_gpu_blocks",
            parse=_whole,
            wants="2 or more, the null block counted",
            flag="--num-gpu-blocks-override",
        ),
        Setting(
            name="block_size",
            parse=_whole,
            wants="1 or more; the KV memory stays",
            flag="--block-size",
        ),
        Setting(name="watermark", parse=float, wants="0 to below 1", flag="--watermark"),
        Setting(
            name="scheduler_reserve_full_isl",
            parse=_flag,
            wants="on or off",
            flag="--scheduler-reserve-full-isl",
        ),
        Setting(
            name="long_prefill_token_threshold",
            parse=_whole,
            wants="0 (off) or more",
            flag="--long-prefill-token-threshold",
        ),
        Setting(
            name="enable_chunked_prefill",
            parse=_flag,
            wants="on or off",
            flag="--enable-chunked-prefill",
        ),
        Setting(
            name="enable_prefix_caching",
            parse=_flag,
            wants="on or off",
            flag="--enable-prefix-caching",
        ),
        Setting(name="policy", parse=str, wants="fcfs or priority", flag="--scheduling-policy"),
        Setting(name="max_loras", parse=_optional, wants="1 or more, or none", flag="--max-loras"),
        Setting(
            name="num_speculative_tokens",
            parse=_whole,
            wants="0 (none) or more, where the record has drafts",
            flag="--speculative-config",
        ),
        Setting(
            name="connector_latency",
            parse=float,
            wants="a factor, 1 as recorded",
            needs="a faster or slower KV store",
        ),
        Setting(name="rate", parse=float, wants="a factor above 0, 1 as recorded", needs=_LOAD),
        Setting(name="priorities", parse=str, wants="equal or recorded", needs=_LOAD),
    )
}


class ChangeError(ValueError):
    """A change that cannot be made; the message says what can."""


def parse_setting(text: str) -> tuple[str, Any]:
    """Returns the name and the value of `NAME=VALUE`.

    Raises:
        ChangeError: there is no such setting, or it does not take this value.
    """
    written, sign, value = text.partition("=")
    name = normal_name(written)
    setting = SETTINGS[name]
    if not sign:
        raise ChangeError(f"{text!r} has no value: write {name}=VALUE ({setting.wants})")
    return name, parse_value(name, value)


def normal_name(written: str) -> str:
    """Returns a setting's name as it stands in `SETTINGS`; `--max-num-seqs` will do.

    Raises:
        ChangeError: there is no such setting.
    """
    name = written.strip().lstrip("-").replace("-", "_")
    name = _ALIASES.get(name, name)
    if name not in SETTINGS:
        raise ChangeError(f"{written!r} cannot be changed: choose {', '.join(SETTINGS)}")
    return name


def parse_value(name: str, text: str) -> Any:
    """Returns a setting's value.

    Raises:
        ChangeError: it does not take this value.
    """
    try:
        return SETTINGS[name].parse(text.strip())
    except ValueError:
        raise ChangeError(f"{name} is {text!r}: it takes {SETTINGS[name].wants}") from None


def changed(workload: Workload, changes: Changes) -> Workload:
    """Returns the load with these changes.

    Raises:
        ChangeError: a change is unknown, or says nothing in this load.
        ConfigError: a value is not possible; the message says why.
    """
    settings = {}
    for name, value in changes.items():
        match name:
            case "without":
                for text in value:
                    workload = _filtered(workload, text)
            case "rate":
                workload = scaled(workload, value)
            case "connector_latency":
                workload = with_connector_latency(workload, value)
            case "priorities":
                workload = _with_priorities(workload, value)
            case _:
                settings[normal_name(name)] = value
    _check(workload, settings)
    return with_settings(workload, **settings) if settings else workload


def value_now(workload: Workload, name: str) -> Any:
    """Returns the value of a setting in a load."""
    match name:
        case "rate":
            return workload.rate_factor
        case "connector_latency":
            return workload.latency_factor
        case "priorities":
            return "recorded"
    config = workload.config
    for part in (config.scheduler, config.cache, config.speculation):
        if hasattr(part, name):
            return getattr(part, name)
    raise ChangeError(f"{name!r} cannot be changed: choose {', '.join(SETTINGS)}")


def _check(workload: Workload, settings: Mapping[str, Any]) -> None:
    if settings.get("num_speculative_tokens") and workload.drafts.acceptance is None:
        raise ChangeError(
            "num_speculative_tokens cannot be changed: the record has no drafts, so nobody knows "
            "how many would be right"
        )
    policy = settings.get("policy")
    if policy == "priority" and len({each.priority for each in workload.requests}) < 2:
        raise ChangeError("policy=priority changes nothing: all recorded requests have one")


def _with_priorities(workload: Workload, value: str) -> Workload:
    if value not in ("equal", "recorded"):
        raise ChangeError(f"priorities is {value!r}: it takes equal or recorded")
    if value == "recorded":
        return workload
    return with_requests(workload, [replace(each, priority=0) for each in workload.requests])


# ----------------------------------------------------------------------------------------- filters

FILTERS = (
    "adapter=NAME, priority=N, tenant=KEY (cache salt), prefix=REQUEST (who shares its beginning), "
    "prompt>=N, prompt<=N, output>=N, output<=N"
)


def _filtered(workload: Workload, text: str) -> Workload:
    predicate = _predicate(workload.requests, text)
    left = without(workload, predicate)
    if left.num_requests in (0, workload.num_requests):
        who = "no recorded request is" if left.num_requests else "all recorded requests are"
        raise ChangeError(f"--without {text}: {who} such")
    return left


def _predicate(requests: Sequence[WorkRequest], text: str) -> Callable[[WorkRequest], bool]:
    for sign in (">=", "<=", "="):
        name, found, value = text.partition(sign)
        if found:
            break
    if not found or not value:
        raise ChangeError(f"--without is {text!r}: it takes {FILTERS}")
    match name.strip(), sign:
        case "adapter", "=":
            return lambda request: request.adapter == value
        case "tenant", "=":
            return lambda request: request.salt_key == value
        case (("priority" | "prefix" | "prompt" | "output"), _) if value.isdecimal():
            return _by_number(requests, name.strip(), sign, int(value))
    raise ChangeError(f"--without is {text!r}: it takes {FILTERS}")


def _by_number(
    requests: Sequence[WorkRequest], name: str, sign: str, value: int
) -> Callable[[WorkRequest], bool]:
    match name, sign:
        case "priority", "=":
            return lambda request: request.priority == value
        case "prefix", "=":
            family = _sharing(requests, value)
            return lambda request: request.number in family
        case "prompt", ">=":
            return lambda request: request.num_prompt_tokens >= value
        case "prompt", "<=":
            return lambda request: request.num_prompt_tokens <= value
        case "output", ">=":
            return lambda request: request.num_output_tokens >= value
        case "output", "<=":
            return lambda request: request.num_output_tokens <= value
    raise ChangeError(f"--without is {name}{sign}{value}: it takes {FILTERS}")


def _sharing(requests: Sequence[WorkRequest], first: int) -> set[int]:
    """Returns a request and all that begin as it does, at whatever remove."""
    family = {first}
    for request in sorted(requests, key=lambda each: each.number):
        if request.prefix_request in family:
            family.add(request.number)
    return family
