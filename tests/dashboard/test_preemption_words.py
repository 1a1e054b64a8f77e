"""Headline, account and cost of the preemptions page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard import preemption_words as words
from diagnose.accounting import Accounting
from diagnose.diagnosis import diagnose, read_context
from diagnose.finding import Cause, CauseKind
from diagnose.storm import Storm
from diagnose.window import choose_window
from telemetry.store import open_log


@pytest.fixture(scope="module")
def account(storm_log: Path) -> Accounting:
    with open_log(storm_log) as log:
        return diagnose(log).engines[0].accounting


def test_the_headline_names_number_cause_and_payer(account: Accounting) -> None:
    assert words.headline(account) == (
        f"{account.num_rows} preemptions, all because the KV pool was full. "
        "Newer requests paid for older ones."
    )


def test_mixed_causes_are_not_called_all(account: Accounting) -> None:
    mixed = replace(account, num_kv_full=account.num_rows - 3, num_cache_reset=3)
    assert f"{account.num_rows - 3} because the KV pool was full" in words.headline(mixed)


def test_no_preemption_is_said_as_such(account: Accounting) -> None:
    none = replace(account, num_rows=0, num_kv_full=0, counter=0)
    assert words.headline(none) == "Nobody was preempted in this window."


def test_preemptions_without_a_row_are_never_called_none(account: Accounting) -> None:
    lost = replace(account, num_rows=0, num_kv_full=0, counter=5)
    assert words.headline(lost) == "5 preemptions, none of them in the record."


def test_a_partial_record_makes_the_count_a_lower_bound(account: Accounting) -> None:
    unsure = replace(account, counter=None)
    assert words.headline(unsure, is_partial=True).startswith("≥ ")
    assert not words.headline(account, is_partial=True).startswith("≥ ")


def test_the_account_sums_to_the_counter(account: Accounting) -> None:
    line = words.account_line(account)
    assert line.startswith(f"{account.counter} = **{account.num_kv_full} kv\\_full** + 0 priority")
    assert f"✓ equals the engine's own counter, {account.counter}" in line


def test_what_the_counter_has_more_is_unattributed(account: Accounting) -> None:
    line = words.account_line(replace(account, counter=account.num_rows + 6))
    assert "**6 unattributed**" in line
    assert "▲ 6 unattributed" in line


def test_a_counter_that_lags_is_said_to(account: Accounting) -> None:
    line = words.account_line(replace(account, counter=account.num_rows - 4))
    assert "▲ 4 more than the engine's counter" in line


def test_a_counter_that_is_not_recorded_is_a_dash(account: Accounting) -> None:
    assert "– the engine's own counter is not recorded" in words.account_line(
        replace(account, counter=None)
    )


def test_the_parts_of_the_cost_are_what_was_lost(account: Accounting) -> None:
    parts = words.cost_parts(account.loss)
    assert sum(tokens for _, tokens in parts) == account.loss.num_lost
    assert parts[0][0] == "computed a second time"


@pytest.fixture(scope="module")
def storm(storm_log: Path) -> Iterator[Storm]:
    with open_log(storm_log) as log:
        window = choose_window(log)
        engine = diagnose(log, window).engines[0].scope.engine
        found = read_context(log, window, engine).storm
        assert found is not None
        assert found.explanation.changes
        yield found


def test_every_change_is_told_and_their_preemptions_sum_to_the_total(storm: Storm) -> None:
    total = storm.account.num_rows
    rows = words.change_rows(storm.explanation, total, total)
    assert len(rows) == len(storm.explanation.changes) + 1 + bool(storm.explanation.shares)
    assert rows[0].mark == "▲"
    assert sum(row.num_preemptions for row in rows) == total


def test_what_other_episodes_evicted_is_not_called_undetermined(storm: Storm) -> None:
    own = storm.account.num_rows
    rows = {r.name: r for r in words.change_rows(storm.explanation, own + 40, own)}
    assert rows["Other episodes"].num_preemptions == 40
    assert rows["Undetermined"].num_preemptions == 0


@pytest.mark.parametrize(
    ("kind", "name"), [("undetermined", "Undetermined"), ("setting", "Setting")]
)
def test_an_episode_without_a_change_is_charged_to_what_explains_it(
    storm: Storm, kind: CauseKind, name: str
) -> None:
    own = storm.account.num_rows
    changes = tuple(replace(change, num_preemptions=0) for change in storm.explanation.changes)
    cause = Cause(kind=kind, sentence=f"{kind}: because")
    explanation = replace(storm.explanation, cause=cause, changes=changes)
    rows = {r.name: r for r in words.change_rows(explanation, own + 40, own)}
    assert (rows[name].mark, rows[name].num_preemptions) == ("▲", own)
    assert rows["Other episodes"].num_preemptions == 40
