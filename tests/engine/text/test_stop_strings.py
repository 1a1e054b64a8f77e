from hypothesis import given
from hypothesis import strategies as st

from engine.text.stop_strings import StopStrings

LETTERS = st.text(alphabet="ab", max_size=20)


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    finder = StopStrings(stops)
    text = "".join(finder.push(piece) for piece in pieces)
    return text + finder.release(), finder.found


@given(
    pieces=st.lists(LETTERS, max_size=8),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
)
def test_however_the_text_is_cut_it_ends_before_the_first_stop(
    pieces: list[str], stops: list[str]
) -> None:
    whole = "".join(pieces)
    # The stop that is complete first ends the text, which is cut where it begins.
    ends = [(i, whole.find(s)) for s in stops if (i := whole.find(s) + len(s)) >= len(s)]
    one_by_one, found = run(stops, list(whole))
    if not ends:
        assert (one_by_one, found) == (whole, False)
        assert run(stops, pieces) == (whole, False)
    else:
        first_complete = min(end for end, _ in ends)
        assert found
        assert one_by_one == whole[: min(start for end, start in ends if end == first_complete)]


def test_only_what_may_begin_a_stop_is_held_back() -> None:
    finder = StopStrings(["END"])
    assert finder.push("the E") == "the "
    assert finder.push("ND of it") == ""
    assert finder.found


def test_what_was_held_back_comes_out_when_it_was_no_stop() -> None:
    finder = StopStrings(["END"])
    assert finder.push("EN") + finder.push("T") == "ENT"
    assert not finder.found


def test_without_stops_all_passes_at_once() -> None:
    assert StopStrings([]).push("anything") == "anything"
