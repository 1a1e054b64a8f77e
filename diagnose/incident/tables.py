"""What the tables of a report have in common."""

from __future__ import annotations

from diagnose.document import Table
from diagnose.words import NOT_MEASURED

NO_FLAG = "no setting"


def without_empty(table: Table) -> Table:
    """Returns a table without the columns in which nothing was measured."""
    kept = [
        column
        for column in range(len(table.head))
        if any(row[column] not in (NOT_MEASURED, NO_FLAG, "") for row in table.rows)
    ]
    return Table(
        table.name,
        tuple(table.head[column] for column in kept),
        tuple(tuple(row[column] for column in kept) for row in table.rows),
        frozenset(kept.index(column) for column in table.numbers if column in kept),
    )
