"""Who is told what of stored findings, and when."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from diagnose.finding import Severity
from diagnose.reading import NS
from diagnose.watch.news import END_NS, News, Notice
from diagnose.watch.telling import summary
from tests.diagnose.watch.stored import NOW, RULE, StoredFindings, notices

SLOTS = {"finding": "ssl-00000001", "rule": "seq-slot-limit"}


@pytest.fixture
def log() -> StoredFindings:
    return StoredFindings()


def kinds(told: list[Notice]) -> list[str]:
    return [notice.kind for notice in told]


def test_what_is_open_is_told_first(log: StoredFindings) -> None:
    log.change("opened")
    log.change("opened", **SLOTS)
    log.change("cleared", **SLOTS)
    assert [(each.kind, each.state.rule) for each in notices(log)] == [("open", RULE)]


def test_each_change_is_told_once(log: StoredFindings) -> None:
    news = News()
    assert notices(log, news) == []
    for event in ("opened", "updated", "cleared", "reopened", "cleared", "flapping", "settled"):
        log.change(event)
        assert kinds(notices(log, news)) == [event]
        assert notices(log, news) == []


def test_several_changes_between_two_looks_are_told_in_order(log: StoredFindings) -> None:
    news = News()
    notices(log, news)
    log.change("opened")
    log.change("cleared")
    assert kinds(notices(log, news)) == ["opened", "cleared"]


def test_a_change_that_is_stored_late_is_told(log: StoredFindings) -> None:
    news = News()
    log.change("opened", **SLOTS)
    notices(log, news)
    log.now -= 30 * NS
    log.change("opened")
    assert kinds(notices(log, news)) == ["opened"]


class Growing(StoredFindings):
    """A log in which a finding opens while it is being looked at."""

    def __init__(self, before: str) -> None:
        super().__init__()
        self.before = before

    def query(self, sql: str, params: Any = None) -> pa.Table:
        if self.before and self.before in sql:
            self.before = ""
            self.change("opened")
        return super().query(sql, params)


@pytest.mark.parametrize("before", ["max(ts)", "finding_changes WHERE", "finding_states ORDER"])
def test_one_that_opens_during_a_look_is_told_once(before: str) -> None:
    log, news = Growing(before=""), News()
    log.change("opened", **SLOTS)
    assert kinds(notices(log, news)) == ["open"]
    log.change("updated", **SLOTS)
    log.before = before
    told = [notice for _ in range(3) for notice in notices(log, news)]
    assert [(each.kind, each.state.rule) for each in told] == [
        ("updated", "seq-slot-limit"),
        ("opened", RULE),
    ]


def test_a_mild_one_is_told_once_it_gets_worse(log: StoredFindings) -> None:
    news = News(level=Severity.high)
    notices(log, news)
    log.change("opened", severity="medium")
    assert notices(log, news) == []
    log.change("updated", severity="critical")
    assert kinds(notices(log, news)) == ["updated"]


def test_the_end_of_what_was_not_told_is_not_told(log: StoredFindings) -> None:
    news = News(level=Severity.high)
    notices(log, news)
    for event in ("opened", "cleared"):
        log.change(event, severity="medium")
    assert notices(log, news) == []


def test_of_an_acknowledged_one_only_the_end_is_told(log: StoredFindings) -> None:
    news = News()
    notices(log, news)
    log.change("opened")
    assert kinds(notices(log, news)) == ["opened"]
    log.acknowledge()
    log.change("updated", severity="critical")
    assert notices(log, news) == []
    log.change("cleared")
    assert kinds(notices(log, news)) == ["cleared"]


def test_an_acknowledged_one_that_opens_again_is_told(log: StoredFindings) -> None:
    news = News()
    log.change("opened")
    log.acknowledge()
    assert notices(log, news) == []
    log.change("cleared")
    log.change("reopened", num_openings=2)
    assert kinds(notices(log, news)) == ["reopened"]


def test_a_silenced_one_that_is_still_open_is_told_when_the_silence_ends(
    log: StoredFindings,
) -> None:
    news = News()
    log.silence(60)
    notices(log, news)
    log.change("opened")
    assert notices(log, news) == []
    log.now += 60 * NS
    assert kinds(notices(log, news)) == ["open"]
    assert notices(log, news) == []


def test_a_silenced_one_that_came_and_went_is_not_told_and_not_lost(log: StoredFindings) -> None:
    news = News()
    log.silence(60)
    notices(log, news)
    log.change("opened")
    log.change("cleared")
    log.now += 60 * NS
    assert notices(log, news) == []
    assert log.query("SELECT status FROM finding_states")["status"].to_pylist() == ["cleared"]


def test_a_silence_that_is_ended_is_told_at_once(log: StoredFindings) -> None:
    news = News()
    log.silence(3600)
    log.change("opened")
    assert notices(log, news) == []
    log.saying("unsilenced", rule=RULE)
    assert kinds(notices(log, news)) == ["open"]


def test_what_people_say_is_shown_and_is_no_notice(log: StoredFindings) -> None:
    news = News()
    notices(log, news)
    log.silence(60, rule="seq-slot-limit")
    assert notices(log, news) == []
    assert [(each.event, each.author) for each in news.sayings] == [("silenced", "dana")]
    notices(log, news)
    assert news.sayings == []


def test_what_replays_told_is_told_of_what_was_told(log: StoredFindings) -> None:
    news = News()
    notices(log, news)
    log.change("opened")
    log.change("explained", reason="burst of arrivals 80 %, unexplained 20 % of 98")
    told = notices(log, news)
    assert kinds(told) == ["opened", "explained"]
    assert summary(told[1]) == "shares: burst of arrivals 80 %, unexplained 20 % of 98"


def test_what_replays_told_is_no_news_of_what_was_not_told(log: StoredFindings) -> None:
    news = News(level=Severity.critical)
    notices(log, news)
    log.change("opened")
    log.change("explained")
    assert notices(log, news) == []


def test_what_replays_told_of_an_end_is_no_news(log: StoredFindings) -> None:
    news = News()
    notices(log, news)
    for event in ("opened", "cleared"):
        log.change(event)
        notices(log, news)
    log.change("explained", status="cleared", cleared_ts=NOW + NS)
    assert notices(log, news) == []


def test_an_end_with_the_record_is_told_by_the_analyst(log: StoredFindings) -> None:
    news = News()
    log.change("opened")
    notices(log, news)
    log.end_engine()
    log.change("ended", status="ended")
    (notice,) = notices(log, news)
    assert (notice.kind, notice.is_end) == ("ended", True)
    assert summary(notice).startswith("open when the record ended at 12:02:0")
    assert notices(log, news) == []


def test_without_an_analyst_it_is_told_a_while_after_the_engine_s_end(
    log: StoredFindings,
) -> None:
    news = News()
    log.change("opened")
    notices(log, news)
    log.end_engine()
    assert notices(log, news) == []
    log.now += END_NS + NS
    assert kinds(notices(log, news)) == ["ended"]
    assert notices(log, news) == []


def test_what_ended_is_not_open_for_one_that_comes_later(log: StoredFindings) -> None:
    log.change("opened")
    log.end_engine()
    news = News()
    assert notices(log, news) == []
    assert news.num_ended == 1
