"""A notice as a message: plain JSON for any receiver, or blocks as Slack takes them.

Names and sentences come from outside. In Slack's text `&`, `<` and `>` are escaped, so that none
becomes a mention or a link, and links are not made of what only looks like one.

Source: https://docs.slack.dev/messaging/formatting-message-text, https://docs.slack.dev/block-kit
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote, urlencode

from diagnose.life.listing import state_document
from diagnose.text.lines import SHAPES
from diagnose.watch.news import Notice
from diagnose.watch.telling import summary
from diagnose.words import engine_hex, iso, without_controls

SCHEMA_VERSION = 1
_LONGEST_TEXT = 2900
"""Slack takes 3,000 characters in a section."""


def delivery_id(notice: Notice) -> str:
    """Returns an id that is the same whenever this is delivered: by it a receiver knows it."""
    state, what, ts = notice.state, str(notice.kind), notice.ts
    if notice.kind in ("open", "opened", "reopened"):  # the same, told by another `watch`
        what, ts = "opening", notice.opened_ts
    text = "/".join([engine_hex(state.engine), state.finding, what, str(ts)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def link(base: str, notice: Notice) -> str:
    """Returns where the dashboard shows the finding."""
    engine = engine_hex(notice.state.engine)
    asked = urlencode({"finding": notice.state.finding, "engine": engine}, quote_via=quote)
    return f"{base.rstrip('/')}/findings?{asked}"


def generic(notice: Notice, base: str) -> dict[str, Any]:
    """Returns a notice as plain JSON (docs/watch.md)."""
    return {
        "schema_version": SCHEMA_VERSION,
        "delivery": delivery_id(notice),
        "event": notice.kind,
        "ts": iso(notice.ts),
        "rule": notice.state.rule,
        "finding": notice.state.finding,
        "engine": engine_hex(notice.state.engine),
        "severity": notice.severity.name,
        "opened": iso(notice.opened_ts),
        "cleared": None if notice.cleared_ts is None else iso(notice.cleared_ts),
        "num_openings": notice.num_openings,
        "reason": notice.reason or None,
        "sentence": notice.sentence,
        "shares": notice.state.shares,
        "url": link(base, notice),
        "state": state_document(notice.state, notice.ts),
    }


def slack(notice: Notice, base: str) -> dict[str, Any]:
    """Returns a notice as an incoming webhook of Slack takes it."""
    mark = "✓" if notice.kind == "cleared" else SHAPES[notice.severity]
    word = notice.kind.upper()
    head = f"{mark} {word}  {notice.severity.name}  {notice.state.rule}"
    facts = f"{notice.state.finding}  engine {engine_hex(notice.state.engine)}  {iso(notice.ts)}"
    text, url = _escaped(summary(notice)), link(base, notice)
    return {
        "text": f"{_escaped(head)}: {text}"[:_LONGEST_TEXT],
        "unfurl_links": False,
        "blocks": [
            {"type": "section", "text": _text(f"*{_escaped(head)}*\n{text}")},
            {"type": "context", "elements": [_text(f"{_escaped(facts)}  <{_escaped(url)}|open>")]},
        ],
    }


def _text(words: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": words[:_LONGEST_TEXT], "verbatim": True}


def _escaped(text: str) -> str:
    clean = without_controls(text)
    return clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
