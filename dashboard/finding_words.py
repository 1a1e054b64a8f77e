"""What the page of findings says of all of them: how many, what is well, what is unknown.

What is stored of each is `diagnose.life.said`'s, as for the reports.
"""

from __future__ import annotations

from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import Piece, Table, code
from diagnose.finding import NO_FAULT
from diagnose.words import NOT_MEASURED, plural


def headline(engine: EngineDiagnosis) -> str:
    """Returns how many findings are open, cleared, well and unknown, as one sentence."""
    parts = [_found(len(engine.findings), sum(each.is_open for each in engine.findings))]
    well = sum(each.is_used and each.rule != NO_FAULT for each in engine.healthy)
    parts += [f"{plural(well, 'check')} {'is' if well == 1 else 'are'} well" if well else ""]
    unknown = len(engine.not_measured)
    parts += [f"{unknown:,} could not be judged" if unknown else ""]
    said = "; ".join(part for part in parts if part)
    return f"{said}." if engine.findings else f"No finding. {said[:1].upper()}{said[1:]}."


def _found(num_found: int, num_open: int) -> str:
    found = plural(num_found, "finding") if num_found else ""
    if num_open in (0, num_found):
        state = "open" if num_open else "cleared"
        return found and f"{found}, {'all ' if num_found > 1 else ''}{state}"
    return f"{found}: {num_open:,} open, {num_found - num_open:,} cleared"


def unjudged(engine: EngineDiagnosis) -> Table:
    """Returns the rules that could not judge, with the signal that each lacks."""
    rows = tuple(
        (code(each.rule), tuple(_names(each.missing)), each.why) for each in engine.not_measured
    )
    return Table("Not measured", ("rule", "missing signal", "why"), rows)


def _names(missing: tuple[str, ...]) -> list[str | Piece]:
    named: list[str | Piece] = []
    for name in missing or (NOT_MEASURED,):
        named += [", "] if named else []
        named.append(code(name))
    return named


def healthy(engine: EngineDiagnosis) -> Table:
    """Returns what was looked at and is well, with its number."""
    rows = tuple(
        (code(each.rule), each.name, each.number)
        for each in engine.healthy
        if each.is_used and each.rule != NO_FAULT
    )
    return Table("Looked at and well", ("rule", "what", "number"), rows)


def silenced(engine: EngineDiagnosis) -> Table:
    """Returns what another rule or guard explains, with the number that it goes by."""
    found = {finding.rule for finding in engine.findings}
    rows = tuple(
        (
            "a note" if each.rule is None else code(each.rule),
            code(each.by),
            "its numbers are those of the finding" if each.by in found else each.number,
        )
        for each in engine.suppressed
    )
    return Table("Silenced", ("rule", "by", "number"), rows)
