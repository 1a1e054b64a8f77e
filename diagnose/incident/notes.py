"""What a report says beside its findings: what is well, what is silenced, what is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import (
    Block,
    Bullets,
    Details,
    Heading,
    Paragraph,
    Piece,
    Table,
    Text,
    code,
    strong,
)
from diagnose.finding import NO_FAULT, Finding
from diagnose.life.said import NOTHING_SAID, SaidOf
from diagnose.report import parts_not_in_use
from diagnose.text.metric_report import calm_numbers
from diagnose.words import NOT_MEASURED, count, duration, percent, plural

MANY = 6
"""More signals that are missing stand in a table of their own."""


def write_calm(engine: EngineDiagnosis, *, level: int) -> Iterator[Block]:
    """Yields the verdict of an engine without a finding, with the numbers that were checked."""
    is_well = any(said.rule == NO_FAULT for said in engine.healthy)
    badge = "✓ HEALTHY" if is_well else f"{NOT_MEASURED} NOT MEASURED"
    yield Paragraph((strong(badge), f" · {engine.verdict.rule}"))
    yield Paragraph(strong(engine.verdict.sentence))
    if not is_well:
        return
    yield Heading(level, "What was checked")
    numbers = calm_steps(engine) if engine.metrics is None else _calm_scrapes(engine)
    yield Table("What was checked", ("", ""), tuple(numbers))


def _calm_scrapes(engine: EngineDiagnosis) -> Iterator[tuple[Text, ...]]:
    if engine.metrics is not None:
        yield from calm_numbers(engine.metrics, engine.settings)


def calm_steps(engine: EngineDiagnosis) -> Iterator[tuple[Text, ...]]:
    """Yields names and numbers of the steps of an engine without a fault."""
    steps, settings = engine.steps, engine.settings
    waiting = f"in {count(steps.num_steps_waiting)} of {plural(steps.num_steps, 'step')}"
    yield "waiting requests", f"{waiting}, up to {count(steps.max_waiting)}"
    free = f"never under {count(steps.min_free_blocks)} of {count(settings.num_usable_blocks)}"
    yield "free KV blocks", free
    yield "preemptions", count(engine.accounting.num_rows)
    yield "running", f"at most {count(steps.max_running)} of {count(settings.slots)} slots"
    if steps.step_max_ns is not None:
        times = f"p50 {duration(steps.step_p50_ns)}, p99 {duration(steps.step_p99_ns)}, "
        yield "step time", f"{times}longest {duration(steps.step_max_ns)} (n = {steps.num_rows:,})"
    if steps.schedule_ns is not None and steps.busy_ns:
        share = percent(steps.schedule_ns / steps.busy_ns)
        yield "time in schedule()", f"{share} of engine time"


def write_rest(
    engine: EngineDiagnosis, unknown: Sequence[Text] = (), *, level: int
) -> Iterator[Block]:
    """Yields what is well, what was silenced and what is not known of an engine.

    `unknown` is what else is not known, beside what the engine's diagnosis says.
    """
    well = [said for said in engine.healthy if said.is_used and said.rule != NO_FAULT]
    if well:
        rows = tuple((code(said.rule), said.name, said.number) for said in well)
        table = Table("Looked at and well", ("rule", "what", "number"), rows)
        yield Details(f"{plural(len(well), 'check')} looked at and well", (table,))
    if engine.suppressed:
        yield Heading(level, "Silenced, and by what")
        yield Bullets(tuple(_silenced(engine)))
    yield Heading(level, "Not known")
    unknown = (*engine.data_quality, *_unused(engine), *unknown)
    lacking = _not_measured(engine)
    if not lacking and not unknown:
        yield Paragraph("Nothing that a rule asked for is missing.")
    if unknown or len(lacking) <= MANY:
        yield Bullets((*unknown, *(_lack(*each) for each in lacking if len(lacking) <= MANY)))
    if len(lacking) > MANY:
        yield _lacking_table(lacking)


def _silenced(engine: EngineDiagnosis) -> Iterator[Text]:
    """Yields what guards noted, then what a finding explains: its number is the finding's own."""
    found = {finding.rule for finding in engine.findings}
    explained: dict[str, list[str]] = {}
    for said in engine.suppressed:
        if said.rule is None:
            yield f"Note of {said.by}: {said.number}"
        elif said.by in found:
            explained.setdefault(said.by, []).append(said.rule)
        else:
            yield f"{said.rule}, by {said.by}: {said.number}"
    for by, rules in explained.items():
        yield f"{', '.join(rules)}: explained by {by}"


Lack = tuple[str, tuple[str, ...], str]
"""Rules that lack the same, what they lack, and why."""


def _not_measured(engine: EngineDiagnosis) -> list[Lack]:
    lacking: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for said in engine.not_measured:
        if said.rule != engine.verdict.rule:
            lacking.setdefault((said.missing, said.why), []).append(said.rule)
    return [(", ".join(rules), missing, why) for (missing, why), rules in lacking.items()]


def _lack(rules: str, missing: tuple[str, ...], why: str) -> Text:
    return ("Not measured: ", strong(rules), " (", *_names(missing), f": {why})")


def _names(missing: tuple[str, ...]) -> list[Piece | str]:
    return [piece for name in missing for piece in (code(name), ", ")][:-1]


def _lacking_table(lacking: list[Lack]) -> Block:
    rows = tuple((rules, tuple(_names(missing)), why) for rules, missing, why in lacking)
    table = Table("Not measured", ("rule", "missing signal", "why"), rows)
    num_rules = sum(rules.count(",") + 1 for rules, _, _ in lacking)
    return Details(f"{plural(num_rules, 'rule')} not measured, and what each lacks", (table,))


def unfollowed(findings: Sequence[Finding], said: SaidOf) -> Iterator[Text]:
    """Yields of which findings no life is stored; nothing where there is one of each."""
    rules = [each.rule for each in findings if said.get(each.id, NOTHING_SAID).state is None]
    if rules:
        why = ": findings are followed while a collector runs, and by "
        named = strong(", ".join(rules))
        yield ("Not stored: the life of ", named, why, code("stepscope watch"))


def _unused(engine: EngineDiagnosis) -> Iterator[Text]:
    unused = parts_not_in_use(engine)
    if unused:
        yield f"Not in use: {', '.join(unused)}."
