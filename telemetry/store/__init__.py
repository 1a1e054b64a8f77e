"""The step log: one DuckDB file a UTC day, written by the collector, read by everybody.

Its tour: `schema` turns the record's columns into tables; `files` names the files and attaches
them; `rows` gathers rows until they are flushed; `writer` flushes them; `views` makes one table of
many days; `guard` runs one reading statement; `wire` is how a query travels to a live collector;
`log` is what a reader opens: `open_log(directory)`.
"""

from __future__ import annotations

from telemetry.store.log import Log, open_log

__all__ = ["Log", "open_log"]
