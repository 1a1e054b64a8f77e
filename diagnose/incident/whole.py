"""A whole report: one finding as an incident of its own, many of them worst first, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from diagnose.diagnosis import Diagnosis, EngineDiagnosis
from diagnose.document import Block, Document, Figure, Heading, Paragraph, Table, Text, code, strong
from diagnose.finding import NO_FAULT, Finding
from diagnose.incident.notes import unfollowed, write_calm, write_rest
from diagnose.incident.one_finding import badge, write_finding
from diagnose.incident.predictions import WhatIf, write_whatifs
from diagnose.incident.tables import without_empty
from diagnose.life.said import NOTHING_SAID, Said, SaidOf
from diagnose.reading import QueryLog
from diagnose.text.finding_text import when_of
from diagnose.text.lines import SHAPES
from diagnose.text.metric_report import size_of
from diagnose.words import count, engine_hex, harmless, plural, stretch

_SPELLED = {word.lower(): word for word in ("KV", "LoRA", "DP", "PD", "CPU", "GPU", "OOM")}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """What goes along with a diagnosis. `said` is `None` where nobody has read what is stored."""

    whatifs: Sequence[WhatIf]
    said: SaidOf | None

    def of(self, finding: Finding) -> Said:
        return (self.said or {}).get(finding.id, NOTHING_SAID)

    def unknown(self, findings: Sequence[Finding]) -> Iterator[Text]:
        return iter(()) if self.said is None else unfollowed(findings, self.said)


def write_incident(
    log: QueryLog,
    diagnosis: Diagnosis,
    whatifs: Sequence[WhatIf] = (),
    said: SaidOf | None = None,
) -> Document:
    """Returns the report of a diagnosis, which was made from the same log.

    Args:
        log: what the diagnosis was made from.
        diagnosis: what was found.
        whatifs: predictions that go along.
        said: what is stored and said of its findings; what is silenced comes last.
    """
    beside = _Beside(whatifs=whatifs, said=said)
    findings = sorted(diagnosis.findings, key=lambda each: beside.of(each).is_silenced)
    return _document(log, diagnosis, diagnosis.engines, findings, beside)


def write_one(
    log: QueryLog,
    diagnosis: Diagnosis,
    finding: Finding,
    whatifs: Sequence[WhatIf] = (),
    said: SaidOf | None = None,
) -> Document:
    """Returns the report of one finding of a diagnosis alone; the rest as in `write_incident`."""
    engines = [each for each in diagnosis.engines if each.scope.engine == finding.engine]
    beside = _Beside(whatifs=whatifs, said=said)
    return _document(log, diagnosis, engines, [finding], beside)


def _document(
    log: QueryLog,
    diagnosis: Diagnosis,
    engines: Sequence[EngineDiagnosis],
    findings: Sequence[Finding],
    beside: _Beside,
) -> Document:
    if not engines:
        blocks = (
            Heading(1, "Not enough data"),
            Paragraph(strong(diagnosis.verdict.sentence)),
            Paragraph(("See what is attached: ", code("stepscope doctor"))),
        )
        return Document("Not enough data", blocks)
    title = _title(engines, findings, beside)
    return Document(title, (Heading(1, title), *_blocks(log, engines, findings, beside)))


def _blocks(
    log: QueryLog,
    engines: Sequence[EngineDiagnosis],
    findings: Sequence[Finding],
    beside: _Beside,
) -> Iterator[Block]:
    if len(engines) == 1 and len(findings) == 1:
        (engine,), (finding,) = engines, findings
        told = write_finding(log, engine, finding, beside.of(finding), level=2)
        yield from (next(told), _source(engine))
        yield from told
        yield from _after(engine, findings, beside, level=2)
        return
    if findings:
        yield _overview(engines, findings, beside)
    for engine in engines:
        yield from _engine(log, engine, findings, beside, is_alone=len(engines) == 1)


def _after(
    engine: EngineDiagnosis, findings: Sequence[Finding], beside: _Beside, *, level: int
) -> Iterator[Block]:
    """Yields what follows the findings of an engine: its what-ifs, and what is not known."""
    own = [whatif for whatif in beside.whatifs if whatif.scope.engine == engine.scope.engine]
    yield from write_whatifs(own, level=level)
    yield from write_rest(engine, tuple(beside.unknown(findings)), level=level)


def _engine(
    log: QueryLog,
    engine: EngineDiagnosis,
    findings: Sequence[Finding],
    beside: _Beside,
    *,
    is_alone: bool,
) -> Iterator[Block]:
    own = [finding for finding in findings if finding.engine == engine.scope.engine]
    level = 2 if is_alone else 3
    if not is_alone:
        yield Heading(2, name_of(engine))
    yield _source(engine)
    if not own:
        yield from write_calm(engine, level=level)
        if engine.steps.num_rows or (engine.metrics and engine.metrics.source):
            yield Figure(engine.scope)
    for finding in own:
        said = beside.of(finding)
        mark = " · silenced" if said.is_silenced else ""
        yield Heading(level, f"{SHAPES[finding.severity]} {words_of(finding.rule)}{mark}")
        yield from write_finding(log, engine, finding, said, level=level + 1)
    yield from _after(engine, own, beside, level=level)


def _overview(
    engines: Sequence[EngineDiagnosis], findings: Sequence[Finding], beside: _Beside
) -> Block:
    of = {engine.scope.engine: engine for engine in engines}
    rows = tuple(
        (
            strong(badge(finding.severity)),
            code(finding.rule),
            name_of(of[finding.engine]) if len(engines) > 1 else "",
            when_of(finding, of[finding.engine].scope.end_ts),
            finding.sentence,
            strong(said.words) if (said := beside.of(finding)).is_silenced else said.words,
        )
        for finding in findings
    )
    head = ("severity", "rule", "engine", "when", "what", "life")
    return without_empty(Table("Findings, worst first", head, rows))


def _source(engine: EngineDiagnosis) -> Block:
    """Says what all of it was read from, so that a reader can judge the numbers."""
    when = f"{stretch(engine.scope.start_ts, engine.scope.end_ts)}, by {version_of_stepscope()}"
    if engine.metrics is not None:
        return Paragraph(f"Read from {size_of(engine.metrics)}, {when}.")
    steps, dropped = plural(engine.steps.num_steps, "step"), count(engine.steps.num_steps_missing)
    requests = plural(engine.accounting.num_requests, "request")
    return Paragraph(f"Read from {steps} ({dropped} dropped) and {requests}, {when}.")


def _title(engines: Sequence[EngineDiagnosis], findings: Sequence[Finding], beside: _Beside) -> str:
    where = name_of(engines[0]) if len(engines) == 1 else f"{len(engines):,} engines"
    if len(findings) == 1:
        return f"{words_of(findings[0].rule)} on {where}"
    if findings:
        num_silenced = sum(beside.of(finding).is_silenced for finding in findings)
        silenced = f", {num_silenced:,} silenced" if num_silenced else ""
        return f"{plural(len(findings), 'finding')} on {where}{silenced}"
    is_well = all(engine.verdict.rule == NO_FAULT for engine in engines)
    return f"No scheduler fault on {where}" if is_well else f"Not enough data on {where}"


def name_of(engine: EngineDiagnosis) -> str:
    """Returns `tiny-llama, engine 0`; the engine's digits where it has no rank."""
    rank, model = engine.settings.dp_rank, engine.settings.model
    number = engine_hex(engine.scope.engine) if rank is None else str(rank)
    return f"{harmless(model)}, engine {number}" if model else f"engine {number}"


def words_of(rule: str) -> str:
    """Returns a rule's id as words: `KV preemption pressure`."""
    words = [_SPELLED.get(word, word) for word in rule.split("-")]
    text = " ".join(words)
    return text[:1].upper() + text[1:]


def version_of_stepscope() -> str:
    """Returns `stepscope 0.1.0`; the bare name where it runs without being installed."""
    try:
        return f"stepscope {version('stepscope')}"
    except PackageNotFoundError:
        return "stepscope"
