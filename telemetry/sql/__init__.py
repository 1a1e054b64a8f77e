"""The SQL library: the documented views on which rules, dashboards and people build.

One file a view. Its leading comment is its documentation: a paragraph on what a row is, then a line
a column, `--: name [unit, polarity] what it is`. Polarity says which way is good: `lower`,
`higher`, or `-` where neither is; `--:` and two blanks continue a line. An interval is defined here
and nowhere else.

Tour: `VIEWS` is the documentation, `create_views(connection)` puts the views over the base tables.
Codes come out as names; `event_kind('preempted')` and `event_kind_name(6)` translate by hand, and
so do the same two macros of every other closed set. Filter steps by `ts` (ns): that is what
prunes; `ts_utc` is for reading.
"""

from __future__ import annotations

from telemetry.sql.documentation import View, ViewColumn
from telemetry.sql.library import MACROS, VIEWS, create_views

__all__ = ["MACROS", "VIEWS", "View", "ViewColumn", "create_views"]
