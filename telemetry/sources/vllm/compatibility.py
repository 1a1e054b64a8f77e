"""What of a vLLM can be recorded, found by looking at it and not by believing its version.

Each feature of the record needs a handful of vLLM's private names (`needs`), and methods whose
parameters its hooks can take (`hooking`). Before anything is hooked, the classes that this vLLM has
are looked through for them. A feature with something missing is switched off and the reason kept;
without step rows nothing can be recorded at all, and vLLM runs as if we were not there.

An attribute counts as present where the class, one of its bases or their `__init__` sets it: the
looking is done on classes, before the first scheduler is made.

Not responsible for features that the user's settings leave without work (no KV connector, no
prefix cache): that is no incompatibility.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from types import FunctionType
from typing import Any

from telemetry.sources.vllm.hooking import Hook
from telemetry.sources.vllm.needs import CLASSES, NEEDS

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
    content_hashes: bool = True
    trace_context: bool = True


TITLES: Mapping[str, str] = {
    "step_rows": "steps",
    "request_events": "arrivals and ends of requests",
    "dense_rows": "requests in each step",
    "kv_blocks": "KV blocks by state",
    "waiting_reasons": "why requests wait",
    "preemptions": "preemptions",
    "allocation_failures": "admissions and the beneficiaries of preemptions",
    "connector_stages": "stages of KV loads",
    "encoder": "encoder items",
    "grammar": "grammars being compiled",
    "drafts": "draft tokens",
    "pauses": "pauses and cache resets",
    "prefix_hashes": "shared prefixes",
    "content_hashes": "text that repeats under other keys",
    "trace_context": "the caller's trace",
}
"""Each feature in the words of a person."""

GIVEN_UP = "Nothing is recorded any more"
"""How the plug-in ends what it says when it gives up after errors (`guard`)."""

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
        minor = re.match(r"\d+\.\d+(?!\d)", self.version or "")
        return minor is not None and minor[0] in TESTED_VERSIONS

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
    scheduler: type,
    version: str | None,
    hooks: Iterable[Hook],
    classes: Mapping[str, type | None] | None = None,
) -> Compatibility:
    """Returns what can be recorded of `scheduler`, the class that vLLM is about to make.

    Args:
        version: what vLLM says of itself.
        hooks: what would be hooked.
        classes: the other classes to look through, by the names of `CLASSES`; None stands for one
            that this vLLM does not have. Without it, they are vLLM's.
    """
    found = {**(vllm_classes() if classes is None else classes), "Scheduler": scheduler}
    missing = {name: list(_missing(needs, found)) for name, needs in NEEDS.items()}
    for hook in hooks:
        cls = found.get(hook.owner)
        lack = f"no class {hook.owner}" if cls is None else hook.lack_of(cls)
        if lack is not None and lack not in missing[hook.feature]:
            missing[hook.feature].append(lack)
    lacking = {name: ", ".join(lacks) for name, lacks in missing.items() if lacks}
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
