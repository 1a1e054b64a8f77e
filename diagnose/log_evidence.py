"""What the lines of an engine's log say went wrong, by their kind.

An engine whose log was not read has no line of any kind: that is not the same as none of a kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.finding import Evidence, Span
from diagnose.rule import Context
from diagnose.words import plural

KINDS_SQL = """
SELECT count(*) AS num_lines,
       count(*) FILTER (kind IN ({kinds})) AS value,
       min(ts) FILTER (kind IN ({kinds})) AS first_ts,
       max(ts) FILTER (kind IN ({kinds})) AS last_ts
FROM log_lines WHERE {{where}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvidence:
    """Lines of some kinds: how many, when the first and the last was written."""

    num: int
    first_ts: int
    last_ts: int
    sql: str

    @property
    def told_by(self) -> str:
        """Returns `from 2 lines of its log`."""
        return f"from {plural(self.num, 'line')} of its log"

    @property
    def span(self) -> Span:
        """From the first to the last; it is over as far as the log tells."""
        return Span(opened_ts=self.first_ts, cleared_ts=self.last_ts)

    def evidence(self, name: str) -> Evidence:
        """Returns the number of lines as evidence."""
        return Evidence(name=name, value=self.num, unit="lines", sql=self.sql, threshold=0)


def has_log(context: Context) -> bool:
    """Whether a log of the engine was read at all."""
    return bool(context.row("SELECT count(*) AS n FROM log_lines WHERE {where}")["n"])


def log_evidence(context: Context, *kinds: str) -> LogEvidence | None:
    """Returns the lines of some kinds (fixed words); `None` where there are none."""
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    sql = context.scope.fill(KINDS_SQL.format(kinds=listed))
    row = context.row(KINDS_SQL.format(kinds=listed))
    if not row["value"]:
        return None
    return LogEvidence(num=row["value"], first_ts=row["first_ts"], last_ts=row["last_ts"], sql=sql)
