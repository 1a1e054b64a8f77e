"""Shares of a stored finding: what each change accounts for, as they stand in its document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXPLAINED = (
    "shares", "shared_ts", "cause", "confidence", "confidence_why", "sentence", "chain",
    "rejected", "missing", "actions", "prediction",
)  # fmt: skip
"""Keys of a document that are told by replays. They belong together: a look without replays may see
another cause, and must not put its own beside the shares."""


def shares_in(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the shares in a finding's document; none where they were not worked out."""
    shares = document.get("shares")
    return [share for share in shares if _is_share(share)] if isinstance(shares, list) else []


def _is_share(share: object) -> bool:
    """Whether it is one: a document may come from anybody who may write to the log."""
    if not isinstance(share, dict) or not isinstance(share.get("name"), str):
        return False
    numbers = (share.get("num"), share.get("ratio"))
    return all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)


def shares_words(shares: list[dict[str, Any]]) -> str:
    """Returns what each change accounts for, of how many; empty without shares."""
    if not shares:
        return ""
    total = round(sum(share["num"] for share in shares))
    parts = [f"{share['name']} {round(100 * share['ratio'])} %" for share in shares]
    return f"{', '.join(parts)} of {total:,}"


def explained_part(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what replays told in a document; empty where nothing was worked out."""
    if not shares_in(document):
        return {}
    return {name: document[name] for name in EXPLAINED if name in document}
