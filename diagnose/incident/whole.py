"""A whole report: one finding as an incident of its own, many of them worst first, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from diagnose.diagnosis import Diagnosis, EngineDiagnosis
from diagnose.document import Block, Document, Figure, Heading, Paragraph, Table, code, strong
from diagnose.finding import NO_FAULT, Finding
from diagnose.incident.notes import write_calm, write_rest
from diagnose.incident.one_finding import badge, without_empty, write_finding
from diagnose.incident.predictions import WhatIf, write_whatifs
from diagnose.reading import QueryLog
from diagnose.text.finding_text import when_of
from diagnose.text.lines import SHAPES
from diagnose.text.metric_report import size_of
from diagnose.words import count, engine_hex, harmless, plural, stretch

_SPELLED = {word.lower(): word for word in ("KV", "LoRA", "DP", "PD", "CPU", "GPU", "OOM")}


def write_incident(log: QueryLog, diagnosis: Diagnosis, whatifs: Sequence[WhatIf] = ()) -> Document:
    """Returns the report of a diagnosis, which was made from the same log."""
    return _document(log, diagnosis, diagnosis.engines, diagnosis.findings, whatifs)


def write_one(
    log: QueryLog, diagnosis: Diagnosis, finding: Finding, whatifs: Sequence[WhatIf] = ()
) -> Document:
    """Returns the report of one finding of a diagnosis alone."""
    engines = [each for each in diagnosis.engines if each.scope.engine == finding.engine]
    return _document(log, diagnosis, engines, (finding,), whatifs)


def _document(
    log: QueryLog,
    diagnosis: Diagnosis,
    engines: list[EngineDiagnosis] | tuple[EngineDiagnosis, ...],
    findings: tuple[Finding, ...],
    whatifs: Sequence[WhatIf],
) -> Document:
    if not engines:
        blocks = (
            Heading(1, "Not enough data"),
            Paragraph(strong(diagnosis.verdict.sentence)),
            Paragraph(("See what is attached: ", code("stepscope doctor"))),
        )
        return Document("Not enough data", blocks)
    title = _title(engines, findings)
    return Document(title, (Heading(1, title), *_blocks(log, engines, findings, whatifs)))


def _blocks(
    log: QueryLog,
    engines: list[EngineDiagnosis] | tuple[EngineDiagnosis, ...],
    findings: tuple[Finding, ...],
    whatifs: Sequence[WhatIf],
) -> Iterator[Block]:
    if len(engines) == 1 and len(findings) == 1:
        (engine,), (finding,) = engines, findings
        told = write_finding(log, engine, finding, level=2)
        yield from (next(told), _source(engine))
        yield from told
        yield from write_whatifs(_own(whatifs, engine), level=2)
        yield from write_rest(engine, level=2)
        return
    if findings:
        yield _overview(engines, findings)
    for engine in engines:
        own = _own(whatifs, engine)
        yield from _engine(log, engine, findings, own, is_alone=len(engines) == 1)


def _own(whatifs: Sequence[WhatIf], engine: EngineDiagnosis) -> list[WhatIf]:
    return [whatif for whatif in whatifs if whatif.scope.engine == engine.scope.engine]


def _engine(
    log: QueryLog,
    engine: EngineDiagnosis,
    findings: tuple[Finding, ...],
    whatifs: Sequence[WhatIf],
    *,
    is_alone: bool,
) -> Iterator[Block]:
    own = [finding for finding in findings if finding.engine == engine.scope.engine]
    if not is_alone:
        yield Heading(2, name_of(engine))
    yield _source(engine)
    if not own:
        yield from write_calm(engine, level=3 if not is_alone else 2)
        if engine.steps.num_rows or (engine.metrics and engine.metrics.source):
            yield Figure(engine.scope)
    for finding in own:
        yield Heading(2 if is_alone else 3, f"{SHAPES[finding.severity]} {words_of(finding.rule)}")
        level = 3 if is_alone else 4
        yield from write_finding(log, engine, finding, level=level)
    yield from write_whatifs(whatifs, level=2 if is_alone else 3)
    yield from write_rest(engine, level=2 if is_alone else 3)


def _overview(
    engines: list[EngineDiagnosis] | tuple[EngineDiagnosis, ...], findings: tuple[Finding, ...]
) -> Block:
    of = {engine.scope.engine: engine for engine in engines}
    rows = tuple(
        (
            strong(badge(finding.severity)),
            code(finding.rule),
            name_of(of[finding.engine]) if len(engines) > 1 else "",
            when_of(finding, of[finding.engine].scope.end_ts),
            finding.sentence,
        )
        for finding in findings
    )
    head = ("severity", "rule", "engine", "when", "what")
    return without_empty(Table("Findings, worst first", head, rows))


def _source(engine: EngineDiagnosis) -> Block:
    """Says what all of it was read from, so that a reader can judge the numbers."""
    when = f"{stretch(engine.scope.start_ts, engine.scope.end_ts)}, by {version_of_stepscope()}"
    if engine.metrics is not None:
        return Paragraph(f"Read from {size_of(engine.metrics)}, {when}.")
    steps, dropped = plural(engine.steps.num_steps, "step"), count(engine.steps.num_steps_missing)
    requests = plural(engine.accounting.num_requests, "request")
    return Paragraph(f"Read from {steps} ({dropped} dropped) and {requests}, {when}.")


def _title(
    engines: list[EngineDiagnosis] | tuple[EngineDiagnosis, ...], findings: tuple[Finding, ...]
) -> str:
    where = name_of(engines[0]) if len(engines) == 1 else f"{len(engines):,} engines"
    if len(findings) == 1:
        return f"{words_of(findings[0].rule)} on {where}"
    if findings:
        return f"{plural(len(findings), 'finding')} on {where}"
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
