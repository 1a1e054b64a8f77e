"""A report's text: for the command line, and for the pages that offer it for download."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from dashboard.report.page import to_html
from dashboard.report.pictures import MAX_WINDOWS, Pictures
from diagnose.diagnosis import Diagnosis
from diagnose.document import Document, Figure, Paragraph
from diagnose.finding import Finding
from diagnose.incident import write_incident
from diagnose.incident.predictions import WhatIf
from diagnose.incident.whole import write_one
from diagnose.life import is_closed
from diagnose.life.said import with_life
from diagnose.markdown import to_markdown
from telemetry.store import Log


def html_report(
    log: Log,
    diagnosis: Diagnosis,
    finding_id: str | None = None,
    whatifs: Sequence[WhatIf] = (),
) -> str:
    """Returns the report as one HTML page with charts, and what is stored of the findings now.

    Args:
        log: what the diagnosis was made from.
        diagnosis: what was found.
        finding_id: one finding only, where it is given.
        whatifs: predictions that go along.

    Raises:
        ValueError: there is no such finding; the message names those that there are.
    """
    document = _with_cut(_document(log, diagnosis, finding_id, whatifs))
    return to_html(document, Pictures(log, diagnosis).of)


def _with_cut(document: Document) -> Document:
    """Returns a document that says so where it has more windows than are drawn."""
    windows = {block.scope for block in document.blocks if isinstance(block, Figure)}
    if len(windows) <= MAX_WINDOWS:
        return document
    said = f"Charts are drawn of the first {MAX_WINDOWS} of {len(windows)} windows."
    return replace(document, blocks=(*document.blocks, Paragraph(said)))


def markdown_report(
    log: Log,
    diagnosis: Diagnosis,
    finding_id: str | None = None,
    whatifs: Sequence[WhatIf] = (),
) -> str:
    """Returns the same in Markdown, without charts."""
    return to_markdown(_document(log, diagnosis, finding_id, whatifs))


def _document(
    log: Log, diagnosis: Diagnosis, finding_id: str | None, whatifs: Sequence[WhatIf]
) -> Document:
    found, said = with_life(log, diagnosis, time.time_ns(), is_closed=is_closed(log))
    if finding_id is None:
        return write_incident(log, found, whatifs, said)
    return write_one(log, found, find(found, finding_id), whatifs, said)


def find(diagnosis: Diagnosis, finding_id: str) -> Finding:
    """Returns a finding by its id.

    Raises:
        ValueError: there is none of that id; the message names those that there are.
    """
    for finding in diagnosis.findings:
        if finding.id == finding_id:
            return finding
    known = ", ".join(finding.id for finding in diagnosis.findings) or "none"
    raise ValueError(f"no finding {finding_id!r} in this window: there are {known}")
