"""Whatever people say, and whenever: no finding is lost to it, and none changes its state."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.life.state import read_states
from tests.diagnose.watch.stored import StoredFindings

CHANGES = ("opened", "updated", "cleared", "reopened", "flapping", "settled")
SAYINGS = ("acknowledge", "silence", "silence_all", "unsilence")
WORDS = st.lists(st.sampled_from((*CHANGES, *SAYINGS)), max_size=25)


def stored(words: list[str]) -> StoredFindings:
    log = StoredFindings()
    for word in words:
        match word:
            case "acknowledge":
                log.acknowledge()
            case "silence":
                log.silence(3600)
            case "silence_all":
                log.silence(3600, engine=0xA1)
            case "unsilence":
                log.saying("unsilenced", rule="kv-preemption-pressure")
            case _:
                log.change(word)
    return log


def standing(log: StoredFindings) -> list[tuple[str, str, int]]:
    return [(each.finding, each.status, each.num_changes) for each in read_states(log)]


@settings(max_examples=25)
@given(WORDS)
def test_nothing_that_people_say_takes_a_finding_away(words: list[str]) -> None:
    log = stored(words)
    assert standing(log) == standing(stored([word for word in words if word in CHANGES]))
    for state in read_states(log):
        last_opening = max(
            (n for n, word in enumerate(words) if word in ("opened", "reopened", "flapping")),
            default=-1,
        )
        is_known = "acknowledge" in words[last_opening + 1 :]
        assert (state.acknowledged_ts is not None) == is_known
