"""Findings as alerts for Alertmanager: firing while they are open, resolved when they clear.

Alertmanager forgets an alert that nobody sends again. So open ones are sent every minute, each good
for some minutes more: where `watch` dies, its alerts end by themselves. An alert is its labels, so
one whose severity changes ends, and another begins.

Source: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml (`postAlerts`)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from diagnose.life.shares import shares_words
from diagnose.reading import NS
from diagnose.watch.news import Notice
from diagnose.watch.payloads import link
from diagnose.watch.telling import summary
from diagnose.words import engine_hex, harmless, iso

PATH = "/api/v2/alerts"
REFRESH_NS = 60 * NS
GOOD_FOR_NS = 5 * REFRESH_NS
"""How long an alert is believed after it was last sent."""

Alert = dict[str, Any]


def alerts_url(url: str) -> str:
    """Returns where alerts are posted, of an Alertmanager's address."""
    return url if url.rstrip("/").endswith(PATH) else url.rstrip("/") + PATH


@dataclass(slots=True)
class AlertFeed:
    """The alerts that are firing, by engine and finding."""

    base: str
    firing: dict[tuple[int, str], Alert] = field(default_factory=dict)
    _sent_ns: int = 0

    def alerts(self, notice: Notice, now: int) -> list[Alert]:
        """Returns what is posted of a notice, at a moment (ns, wall clock)."""
        place = (notice.state.engine, notice.state.finding)
        alert = _alert(notice, self.base)
        before = self.firing.pop(place, None)
        if notice.is_end:
            ended_ts = notice.cleared_ts or notice.state.ended_ts or now
            return [_until(alert if before is None else before, ended_ts)]
        self.firing[place] = alert
        ended = [] if before is None or before["labels"] == alert["labels"] else [before]
        return [*(_until(each, now) for each in ended), _until(alert, now + GOOD_FOR_NS)]

    def refreshed(self, now: int) -> list[Alert]:
        """Returns the firing alerts once a minute, to be sent again; else nothing."""
        if now - self._sent_ns < REFRESH_NS:
            return []
        self._sent_ns = now
        return [_until(alert, now + GOOD_FOR_NS) for alert in self.firing.values()]


def _until(alert: Alert, ts: int) -> Alert:
    return alert | {"endsAt": iso(ts)}


def _alert(notice: Notice, base: str) -> Alert:
    state = notice.state
    return {
        "labels": _labels(
            ("alertname", state.rule),
            ("rule", state.rule),
            ("severity", notice.severity.name),
            ("engine", engine_hex(state.engine)),
            ("finding", state.finding),
            ("service", "stepscope"),
        ),
        "annotations": _labels(
            ("summary", notice.sentence),
            ("description", summary(notice)),
            ("num_openings", str(notice.num_openings)),
            ("shares", shares_words(state.shares)),
        ),
        "startsAt": iso(notice.opened_ts),
        "generatorURL": link(base, notice),
    }


def _labels(*pairs: tuple[str, str]) -> dict[str, str]:
    """Returns labels without control characters; Alertmanager has no use for empty ones."""
    cleaned: Iterable[tuple[str, str]] = ((name, harmless(text, 500)) for name, text in pairs)
    return {name: text for name, text in cleaned if text}
