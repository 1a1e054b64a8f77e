"""What the hooks take of the methods that they belong to, read off the hooks themselves.

A hook is called with the arguments that vLLM passed. So a method may be hooked only where its
parameters are those that the hook names, in the same order, and no more than it can take.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

OWNERS: Mapping[str, str] = {
    "kv_cache_manager": "KVCacheManager",
    "connector": "KVConnectorBase_V1",
    "encoder_cache_manager": "EncoderCacheManager",
    "ec_connector": "ECConnectorBase",
}
"""The class of each part of a scheduler that is hooked."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A method that is hooked for a feature.

    `parameters` are those that the hook names; `takes_more`: it takes others as well.
    """

    feature: str
    owner: str
    name: str
    parameters: tuple[str, ...]
    takes_more: bool

    def lack_of(self, cls: type) -> str | None:
        """Returns why the method of a class cannot be hooked; None where it can."""
        method = inspect.getattr_static(cls, self.name, None)
        if method is None:
            return f"no {self.owner}.{self.name}()"
        found = list(inspect.signature(getattr(cls, self.name)).parameters.values())
        if not isinstance(method, staticmethod | classmethod):
            found = found[1:]
        if any(parameter.kind in _ANY for parameter in found):
            return None
        return self._lack_of([parameter.name for parameter in found])

    def _lack_of(self, found: list[str]) -> str | None:
        method, named = f"{self.owner}.{self.name}()", list(self.parameters)
        absent = [name for name in named if name not in found]
        if absent:
            return f"{method} has no {', '.join(absent)}"
        if found[: len(named)] != named:
            return f"{method} has its parameters in another order"
        if len(found) > len(named) and not self.takes_more:
            return f"{method} has {', '.join(found[len(named) :])} as well"
        return None


def hooks_of(
    journal: type, methods: Mapping[str, str], part_methods: Mapping[tuple[str, str], str]
) -> Iterator[Hook]:
    """Yields all hooks of a journal class.

    Args:
        methods: the feature of each method of the scheduler's that is hooked.
        part_methods: the same of methods of its parts, by part and name.
    """
    owned = {("Scheduler", name): feature for name, feature in methods.items()}
    owned |= {(OWNERS[part], name): feature for (part, name), feature in part_methods.items()}
    for (owner, name), feature in owned.items():
        for when, num_own in (("before", 1), ("after", 2)):
            hook = getattr(journal, f"{when}_{name.lstrip('_')}", None)
            if hook is not None:
                yield _hook(feature, owner, name, hook, num_own)


def _hook(feature: str, owner: str, name: str, hook: Callable[..., Any], num_own: int) -> Hook:
    """Returns a hook; its first `num_own` parameters are the journal, and what vLLM returned."""
    taken = list(inspect.signature(hook).parameters.values())[num_own:]
    return Hook(
        feature=feature,
        owner=owner,
        name=name,
        parameters=tuple(each.name for each in taken if each.kind in _NAMED),
        takes_more=any(each.kind in _ANY for each in taken),
    )
