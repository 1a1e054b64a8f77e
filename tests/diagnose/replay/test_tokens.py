"""Made-up tokens share what the record says is shared, and nothing else."""

from __future__ import annotations

from diagnose.replay.tokens import MadeUpTokens

BLOCK = 4


def text(tokens: MadeUpTokens, request: int, length: int, number: int = 0) -> list[int]:
    return tokens.tokens(request, number, 0, length).tolist()


def test_texts_share_the_recorded_prefix_and_no_more() -> None:
    tokens = MadeUpTokens(BLOCK)
    tokens.add(0, 12)
    tokens.add(1, 12, prefix_request=0, num_shared_tokens=8)
    assert text(tokens, 0, 8) == text(tokens, 1, 8)
    assert not set(text(tokens, 0, 12)[8:]) & set(text(tokens, 1, 12)[8:])


def test_no_token_comes_twice_in_a_text() -> None:
    tokens = MadeUpTokens(BLOCK)
    tokens.add(0, 10)
    assert len(set(text(tokens, 0, 10))) == 10


def test_a_prompt_begins_as_the_whole_text_does() -> None:
    tokens = MadeUpTokens(BLOCK)
    tokens.add(0, 6)
    tokens.add(0, 11, num_kept=11)
    prompt, outputs = tokens.tokens(0, 0, 0, 6), tokens.tokens(0, 0, 6, 11)
    assert (prompt + outputs).tolist() == text(tokens, 0, 11, number=1)


def test_outputs_are_shared_that_were_found_equal_at_the_end() -> None:
    tokens = MadeUpTokens(BLOCK)
    tokens.add(0, 4)
    tokens.add(1, 4, prefix_request=0, num_shared_tokens=4)
    tokens.add(0, 10, num_kept=10)
    tokens.add(1, 9, num_kept=9, prefix_request=0, num_shared_tokens=8)
    assert text(tokens, 0, 8) == text(tokens, 1, 8)
    assert text(tokens, 0, 9)[8] != text(tokens, 1, 9)[8]


def test_what_a_turn_drops_is_not_in_the_next() -> None:
    tokens = MadeUpTokens(BLOCK)
    tokens.add(0, 4)
    tokens.add(0, 12, num_kept=6)
    first, second = text(tokens, 0, 8), text(tokens, 0, 12, number=1)
    assert first[:6] == second[:6]
    assert not set(first[6:]) & set(second)


def test_a_text_may_go_on_beyond_what_was_recorded() -> None:
    tokens = MadeUpTokens(BLOCK)
    tokens.add(0, 3)
    tokens.add(1, 3)
    assert not set(text(tokens, 0, 20)) & set(text(tokens, 1, 20))


def test_a_text_can_begin_like_another_and_goes_on_as_its_own() -> None:
    tokens = MadeUpTokens(BLOCK)
    for request in (1, 2):
        tokens.add(request, 5 * BLOCK)
    changed = tokens.beginning_like({2: (1, 2 * BLOCK + 1)})
    before, after = text(tokens, 2, 5 * BLOCK), text(changed, 2, 5 * BLOCK)
    assert after[: 2 * BLOCK] == text(tokens, 1, 2 * BLOCK)
    assert after[2 * BLOCK :] == before[2 * BLOCK :]
    assert text(changed, 1, 5 * BLOCK) == text(tokens, 1, 5 * BLOCK)
    assert text(tokens, 2, 5 * BLOCK) == before


def test_a_text_that_grows_in_a_copy_is_like_no_other() -> None:
    tokens = MadeUpTokens(BLOCK)
    for request in (1, 2):
        tokens.add(request, BLOCK)
    changed = tokens.beginning_like({2: (1, BLOCK)})
    first, second = (text(changed, request, 3 * BLOCK) for request in (1, 2))
    assert first[:BLOCK] == second[:BLOCK]
    assert not set(first[BLOCK:]) & set(second[BLOCK:])


def test_who_is_not_known_has_no_beginning_to_give() -> None:
    tokens = MadeUpTokens(BLOCK)
    tokens.add(2, BLOCK)
    assert text(tokens.beginning_like({2: (1, BLOCK), 3: (2, BLOCK)}), 2, BLOCK) == text(
        tokens, 2, BLOCK
    )
