"""What leaves the record for the tools that people have: OpenTelemetry spans, Prometheus pages.

`otel` sends request spans out of a step log; `prometheus` renders a living engine's numbers under
vLLM's names.
"""
