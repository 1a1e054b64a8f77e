"""Where notices go: lines on a terminal, JSON lines, messages for a webhook."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, Literal, Protocol

from diagnose.life.state import StoredChange
from diagnose.text.lines import Report, print_report
from diagnose.watch.alerts import AlertFeed
from diagnose.watch.news import Notice
from diagnose.watch.payloads import delivery_id, generic, slack
from diagnose.watch.telling import write_notice, write_saying
from diagnose.watch.webhook import Message, Webhook
from diagnose.words import plural

Format = Literal["generic", "slack", "alertmanager"]


class Outlet(Protocol):
    """Takes notices, and never waits for anybody."""

    def tell(self, notices: Iterable[Notice], sayings: Iterable[StoredChange], now: int) -> None:
        """Tells what is new at a moment (ns, wall clock); called also where nothing is."""


class Terminal:
    """Lines for people."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        self._ascii_only = ascii_only
        self._engines: set[int] = set()
        self.num_told = 0

    def tell(self, notices: Iterable[Notice], sayings: Iterable[StoredChange], now: int) -> None:
        report = Report()
        for notice in notices:
            self.num_told += 1
            self._engines.add(notice.state.engine)
            write_notice(report, notice, names_engine=len(self._engines) > 1)
        for saying in sayings:
            write_saying(report, saying)
        self.write(report)

    def say_nothing_is_open(self, num_ended: int) -> None:
        """Says so, where somebody asked once, and how many were open when their record ended."""
        report = Report()
        report.add(("✓ nothing is open that nobody knows of", "healthy"))
        if num_ended:
            was = f"{plural(num_ended, 'finding')} open when the record ended"
            report.add(f"● {was}: stepscope findings --all")
        self.write(report)

    def write(self, report: Report) -> None:
        """Prints lines at once, also into a pipe."""
        if report.lines:
            print_report(report, sys.stdout, ascii_only=self._ascii_only)
            sys.stdout.flush()


class JsonLines:
    """A JSON object a line."""

    def __init__(self, base: str) -> None:
        self._base = base

    def tell(self, notices: Iterable[Notice], sayings: Iterable[StoredChange], now: int) -> None:
        for notice in notices:
            print(json.dumps(generic(notice, self._base)), flush=True)


class Messages:
    """Messages for a webhook, in a receiver's format."""

    def __init__(self, webhook: Webhook, form: Format, base: str) -> None:
        self._webhook = webhook
        self._form = form
        self._base = base
        self._feed = AlertFeed(base)

    def tell(self, notices: Iterable[Notice], sayings: Iterable[StoredChange], now: int) -> None:
        for notice in notices:
            if self._form == "slack" and notice.kind == "explained":
                continue  # a channel is told once that it opened; the page has the shares
            self._post(delivery_id(notice), self._payload(notice, now))
        if self._form == "alertmanager" and (alerts := self._feed.refreshed(now)):
            self._post(f"refresh-{now}", alerts)

    def _payload(self, notice: Notice, now: int) -> Any:
        match self._form:
            case "generic":
                return generic(notice, self._base)
            case "slack":
                return slack(notice, self._base)
            case "alertmanager":
                return self._feed.alerts(notice, now)

    def _post(self, delivery: str, payload: Any) -> None:
        self._webhook.post(Message(delivery, json.dumps(payload, allow_nan=False).encode()))
