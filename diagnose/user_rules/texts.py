"""Single lines of a file, in which columns may be named."""

from __future__ import annotations

from diagnose.user_rules.document import Fields, shown
from diagnose.user_rules.template import FORMATS, names_in

MAX_TEMPLATE_CHARS = 400


def read_line(fields: Fields, name: str, most: int = MAX_TEMPLATE_CHARS) -> str:
    """Returns a text of a single line; a folded one is joined."""
    text = " ".join(fields.text(name, most=most).split())
    if not text.isprintable():
        fields.fail(name, f"is {shown(text)}: take out what cannot be printed")
    return _template(fields, name, text)


def _template(fields: Fields, name: str, text: str) -> str:
    for column, form in names_in(text):
        if form is not None and form not in FORMATS:
            known = ", ".join(FORMATS)
            fields.fail(name, f"{{{column}:{form}}} has no format of ours: write one of {known}")
    return text


def read_lines(fields: Fields | None, name: str) -> tuple[str, ...]:
    """Returns a list of such lines; none where there is no mapping."""
    if fields is None:
        return ()
    return tuple(_template(fields, name, text) for text in fields.texts(name))
