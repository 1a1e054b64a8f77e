"""Which of a sequence's drafts were right, and so which of the tokens chosen behind them count."""

from __future__ import annotations

from collections.abc import Sequence


def accept(chosen: Sequence[int], draft_token_ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Returns the new tokens of each sequence: up to the first that its draft had not foreseen.

    They are the tokens of as many steps without drafts, whatever the drafts were: each was chosen
    by the path that chooses without them, and counts only if all before it were as drafted.

    Args:
        chosen: a token a row: those of a sequence side by side, one more than it has drafts.
        draft_token_ids: `[num_seqs]`; -1 is never right.
    """
    if len(chosen) == len(draft_token_ids):  # no drafts at all
        return [[token] for token in chosen]
    new_token_ids, start = [], 0
    for drafts in draft_token_ids:
        end = start + len(drafts) + 1
        new_token_ids.append(_until_wrong(chosen[start:end], drafts))
        start = end
    return new_token_ids


def _until_wrong(chosen: Sequence[int], drafts: Sequence[int]) -> list[int]:
    pairs = zip(chosen, drafts, strict=False)  # the last token has no draft beside it
    num_right = next((i for i, (token, draft) in enumerate(pairs) if token != draft), len(drafts))
    return list(chosen[: num_right + 1])
