"""What to do about a finding: each change, its effect as replayed, how to check and to undo it."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.document import Block, Paragraph, Piece, Table, Text, code
from diagnose.finding import Action, Finding
from diagnose.incident.tables import NO_FLAG, without_empty
from diagnose.text.effects_text import amount_of
from diagnose.words import signed_percent

TAKES_EFFECT = {"live": "at once", "restart": "after a restart", "client": "at the client"}


def what_to_do(finding: Finding) -> Iterator[Block]:
    """Yields the changes that help, what each costs, how to check and how to undo it."""
    if not finding.actions:
        yield Paragraph("No setting of this engine helps against it; see the cause.")
        return
    rows = tuple(
        (_change(action), TAKES_EFFECT[action.applies], action.what, action.trade_off)
        for action in finding.actions
    )
    yield without_empty(Table("What to do", ("change", "takes effect", "why", "price"), rows))
    yield from _effects(finding)
    verifies = tuple(dict.fromkeys(action.verify for action in finding.actions))
    reverts = tuple(dict.fromkeys(action.revert for action in finding.actions))
    yield Paragraph(("Verify: ", *_codes(verifies), ". Revert: ", *_codes(reverts), "."))


def _effects(finding: Finding) -> Iterator[Block]:
    """Yields what replays say that each change would do."""
    told = [action for action in finding.actions if action.predicted]
    if told:
        rows: list[tuple[Text, ...]] = [
            ("as it was", *(amount_of(each, each.before) for each in told[0].predicted))
        ]
        rows += [
            (
                code(f"{action.flag} {action.new}"),
                *(amount_of(e, e.after) for e in action.predicted),
            )
            for action in told
        ]
        error = ["error of the replay"]
        error += ["–" if e.error is None else signed_percent(e.error) for e in told[0].predicted]
        head = ("replayed", *(effect.label for effect in told[0].predicted))
        yield Table("Predicted", head, (*rows, tuple(error)), frozenset(range(1, len(head))))
    if finding.prediction:
        yield Paragraph(finding.prediction)


def _change(action: Action) -> Text:
    if action.flag is None:
        return NO_FLAG
    return (code(f"{action.flag} {action.new}"), f" (now {action.old})")


def _codes(told: tuple[str, ...]) -> Iterator[Piece | str]:
    for number, text in enumerate(told):
        if number:
            yield ", "
        yield code(text)
