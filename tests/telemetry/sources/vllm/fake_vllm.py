"""Classes that have every name which the plug-in looks for, made from the lists of these names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from telemetry.sources.vllm.hooking import Hook, hooks_of
from telemetry.sources.vllm.journal import Journal
from telemetry.sources.vllm.needs import CLASSES, NEEDS
from telemetry.sources.vllm.recording import INSTANCE_METHODS, METHODS

HOOKS: tuple[Hook, ...] = tuple(hooks_of(Journal, METHODS, INSTANCE_METHODS))
"""Those that the plug-in has."""


def fake_class(owner: str, without: tuple[str, ...] = ()) -> type:
    """Returns a class with all that any feature needs of `owner`, but for some names."""
    wanted = {need for needs in NEEDS.values() for need in needs.get(owner, ())} - set(without)
    methods = {need.partition("(")[0]: need for need in wanted if "(" in need}
    hooked = {name: need for name, need in _hooked(owner) if name not in without}
    namespace: dict[str, Any] = {n: _method(need) for n, need in {**methods, **hooked}.items()}
    namespace["__init__"] = _initialiser(sorted(wanted - set(methods.values())))
    return type(owner, (), namespace)


def fake_classes() -> dict[str, type | None]:
    """Returns a fake of each class besides the scheduler's."""
    return {name: fake_class(name) for name in CLASSES}


def _hooked(owner: str) -> Iterator[tuple[str, str]]:
    """Yields each method of a class that is hooked, with the most parameters a hook names."""
    hooks = sorted((hook for hook in HOOKS if hook.owner == owner), key=lambda h: len(h.parameters))
    return ((hook.name, f"{hook.name}({', '.join(hook.parameters)})") for hook in hooks)


def _method(need: str) -> Callable[..., Any]:
    name, _, parameters = need.rstrip(")").partition("(")
    return _compiled(name, f"def {name}(self, {parameters}): ...")


def _initialiser(attributes: list[str]) -> Callable[..., Any]:
    lines = [f"    self.{name} = None" for name in attributes] or ["    pass"]
    return _compiled("__init__", "\n".join(["def __init__(self):", *lines]))


def _compiled(name: str, source: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    made: Callable[..., Any] = namespace[name]
    return made


FakeScheduler: Any = fake_class("Scheduler")
