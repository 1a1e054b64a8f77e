"""A notice in each form, with names from outside in it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from diagnose.finding import Severity
from diagnose.life.state import StoredChange
from diagnose.reading import NS
from diagnose.text.lines import WIDTH, Report
from diagnose.watch.alerts import GOOD_FOR_NS, REFRESH_NS, AlertFeed, alerts_url
from diagnose.watch.news import News
from diagnose.watch.payloads import delivery_id, generic, slack
from diagnose.watch.telling import write_notice, write_saying
from tests.diagnose.watch.stored import NOW, StoredFindings, body, notice_of, notices
from tests.telemetry.posts import FINDING

BASE = "http://dash:8501/"
HOSTILE = "<!channel> <@U1> & *x* [red]\x1b[31m\u202e</b>"


def line(event: str, **columns: Any) -> str:
    report = Report()
    write_notice(report, notice_of(event, **columns), names_engine=False)
    return report.text().rstrip("\n")


def test_an_opening_is_told_with_its_time_and_sentence() -> None:
    assert line("opened", body=body("7 of 28 were evicted.")) == (
        "12:02:00.0  ▲ OPENED   kv-preemption-pressure  7 of 28 were evicted."
    )


def test_an_end_says_how_long_it_was_and_what_it_cost() -> None:
    told = body("x", impact={"cost": ["9,265 tokens lost"]}, num_affected_requests=54)
    assert line("cleared", body=told) == (
        "12:02:07.0  ✓ CLEARED  kv-preemption-pressure  7.00 s, 54 requests, 9,265 tokens lost"
    )


def test_flapping_is_told_with_its_number() -> None:
    assert "opened 4 times in 3 min 0 s" in line("flapping", reason="opened 4 times in 3 min 0 s")


def test_a_line_fits_and_holds_no_control_characters() -> None:
    text = line("opened", rule="r" * 100, body=body(HOSTILE * 50))
    assert len(line("opened", body=body(HOSTILE * 50))) <= WIDTH
    assert not set(text) & {"\x1b", "\u202e"}


def test_what_a_person_said_is_a_line() -> None:
    log, news = StoredFindings(), News()
    notices(log, news)
    log.acknowledge("\x1bdana")
    notices(log, news)
    report = Report()
    saying: StoredChange = news.sayings[0]
    write_saying(report, saying)
    assert "ACKNOWLEDGED kv-preemption-pressure  by ?dana: known" in report.text()


def test_generic_has_all_that_a_receiver_needs() -> None:
    payload = json.loads(json.dumps(generic(notice_of("opened"), BASE)))
    assert (payload["schema_version"], payload["event"]) == (1, "opened")
    assert (payload["finding"], payload["engine"]) == (FINDING, f"{0xA1:016x}")
    assert payload["opened"] == "2025-11-29T12:02:00.000000000Z"
    assert payload["state"]["document"]["sentence"] == payload["sentence"]
    asked = urlsplit(payload["url"])
    assert (asked.netloc, asked.path) == ("dash:8501", "/findings")
    assert parse_qs(asked.query) == {"finding": [FINDING], "engine": [f"{0xA1:016x}"]}


def test_a_delivery_is_known_again_after_a_restart() -> None:
    log, first = StoredFindings(), News()
    notices(log, first)
    log.change("opened")
    (opened,) = notices(log, first)
    (again,) = notices(log, News())
    assert (opened.kind, again.kind) == ("opened", "open")
    assert delivery_id(opened) == delivery_id(again)
    log.change("updated")
    (updated,) = notices(log, first)
    assert delivery_id(updated) != delivery_id(opened)


def test_slack_gets_no_mention_no_link_and_no_markup_from_outside() -> None:
    payload = slack(notice_of("opened", body=body(HOSTILE)), BASE)
    texts = [payload["text"], payload["blocks"][0]["text"]["text"]]
    for text in texts:
        assert "<!channel>" not in text
        assert "&lt;!channel&gt; &lt;@U1&gt; &amp;" in text
        assert not set(text) & {"\x1b", "\u202e", "<", ">"}
    assert payload["blocks"][0]["text"]["verbatim"] is True


def test_slack_gets_no_more_than_it_takes() -> None:
    payload = slack(notice_of("opened", body=body("<" * 9000)), BASE)
    assert len(payload["blocks"][0]["text"]["text"]) <= 3000
    assert len(payload["text"]) <= 3000


def feed() -> AlertFeed:
    return AlertFeed(BASE)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_an_alert_fires_for_a_while_and_is_resolved() -> None:
    alerts = feed()
    (fired,) = alerts.alerts(notice_of("opened"), NOW + NS)
    assert fired["labels"] == {
        "alertname": "kv-preemption-pressure",
        "rule": "kv-preemption-pressure",
        "severity": "high",
        "engine": f"{0xA1:016x}",
        "finding": FINDING,
        "service": "stepscope",
    }
    assert moment(fired["endsAt"]) == (NOW + NS + GOOD_FOR_NS) / NS
    (resolved,) = alerts.alerts(notice_of("cleared"), NOW + 60 * NS)
    assert resolved["labels"] == fired["labels"]
    assert moment(resolved["startsAt"]) < moment(resolved["endsAt"]) == (NOW + 7 * NS) / NS
    assert alerts.refreshed(NOW + 3600 * NS) == []


def test_a_firing_alert_is_sent_again_every_minute() -> None:
    alerts = feed()
    alerts.alerts(notice_of("opened"), NOW)
    (again,) = alerts.refreshed(NOW)
    assert alerts.refreshed(NOW + REFRESH_NS - 1) == []
    (later,) = alerts.refreshed(NOW + REFRESH_NS)
    assert moment(later["endsAt"]) - moment(again["endsAt"]) == REFRESH_NS / NS


def test_an_alert_of_another_severity_takes_the_place_of_the_first() -> None:
    alerts = feed()
    alerts.alerts(notice_of("opened", severity="medium"), NOW)
    ended, fired = alerts.alerts(notice_of("updated", severity="critical"), NOW + NS)
    assert (ended["labels"]["severity"], fired["labels"]["severity"]) == ("medium", "critical")
    assert moment(ended["endsAt"]) == (NOW + NS) / NS < moment(fired["endsAt"])
    assert [each["labels"]["severity"] for each in alerts.refreshed(NOW + NS)] == ["critical"]


def test_a_label_holds_no_control_characters() -> None:
    (fired,) = feed().alerts(notice_of("opened", body=body(HOSTILE * 100)), NOW)
    assert not set(fired["annotations"]["summary"]) & {"\x1b", "\u202e"}
    assert len(fired["annotations"]["summary"]) <= 500


@pytest.mark.parametrize(
    "address", ["http://am:9093", "http://am:9093/", "http://am:9093/api/v2/alerts"]
)
def test_the_address_of_an_alertmanager_is_enough(address: str) -> None:
    assert alerts_url(address) == "http://am:9093/api/v2/alerts"


def test_severities_are_those_of_findings() -> None:
    assert notice_of("opened", severity="critical").severity is Severity.critical
