"""Which flags an engine has, so that no advice names one that it lacks or a value that is set.

`engine_flags.json` lists the flags of our engine and of the vLLM that this was made with. Of other
versions it is not known: an action then says so.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from diagnose.facts import EngineSettings
from diagnose.finding import Action

FLAGS_FILE = Path(__file__).parent / "engine_flags.json"


@cache
def _known() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(FLAGS_FILE.read_text(encoding="utf-8"))
    return known


def has_flag(settings: EngineSettings, flag: str) -> bool | None:
    """Returns whether an engine has a flag; `None` where its version is not known."""
    source = settings.source or "stepscope"
    known = _known().get(source)
    if known is None:
        return None
    if flag in known["flags"]:
        return True
    same_version = known["version"] is None or known["version"] == settings.version
    return False if same_version else None


def applicable(settings: EngineSettings, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Returns the actions that this engine can take.

    What is set already is left out. A flag that it lacks is taken out of its action, which says so.
    """
    useful = [action for action in actions if action.flag is None or action.old != action.new]
    return tuple(_checked(settings, action) for action in useful)


def _checked(settings: EngineSettings, action: Action) -> Action:
    if action.flag is None or has_flag(settings, action.flag):
        return action
    version = settings.version or "of unknown version"
    if has_flag(settings, action.flag) is None:
        note = f"whether {settings.source} {version} has {action.flag} is not known"
        return replace(action, trade_off=f"{action.trade_off}; {note}")
    return replace(
        action,
        what=f"{action.what} ({settings.source} {version} has no {action.flag})",
        flag=None,
        old=None,
        new=None,
        revert="as it was",
    )
