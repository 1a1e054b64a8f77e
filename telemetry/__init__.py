"""The record: from an engine's memory to tables that people query.

Its tour: `vocabulary`, `records` and `recorder` say what is written down, `content_hashes` how a
prompt is told without its text, `tables` what becomes of it; `ring` keeps it in memory that
survives the engine; `collector` drains the rings into `store`, the DuckDB step log; `sql/` is the
library of views on it; `doctor/` and `step` explain a log, and `exporters/` speak OpenTelemetry and
Prometheus.
"""
