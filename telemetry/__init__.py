"""The record: from an engine's memory to tables that people query.

Its tour: `vocabulary`, `records` and `recorder` say what is written down; `ring` keeps it in memory
that survives the engine; `collector` drains the rings into `store`, the DuckDB step log; `sql/` is
the library of views on it; `exporters/` speak OpenTelemetry and Prometheus.
"""
