"""The SQL library: the documented views on which rules, dashboards and people build.

One file a view. Its leading comment is its documentation: a paragraph on what a row is, a line a
column with its unit and polarity, an example (`telemetry.sql.documentation` has the marks). An
interval is defined here and nowhere else.

Tour: `VIEWS`, `MACRO_DOCS` and `table_docs` are the documentation, `create_views(connection)` puts
the views over the base tables; `page` makes docs/step-log.md of all of it, `cookbook` makes
docs/cookbook.md of the saved queries in `queries/`. Codes come out as names;
`event_kind('preempted')` and `event_kind_name(6)` translate by hand, and so do the same two macros
of every other closed set. Filter steps by `ts` (ns): that is what prunes; `ts_utc` is for reading.
"""

from __future__ import annotations

from telemetry.sql.documentation import View, ViewColumn
from telemetry.sql.library import MACROS, VIEWS, create_views
from telemetry.sql.macros import MACRO_DOCS, Macro

__all__ = ["MACROS", "MACRO_DOCS", "VIEWS", "Macro", "View", "ViewColumn", "create_views"]
