"""OTLP as a source: the spans that a vLLM exports, taken live or from files.

    decoding    bytes, protobuf or JSON -> an export request
    spans       an export request -> rows of `engine_spans`: which are vLLM's, what is kept of them
    resources   whose spans they are: the engine's number and description
    intake      what both servers do with a message that came over the wire
    grpc_server, http_server, listener      a live source of a collector
    files       messages that lie in files
    command     `stepscope import otlp`, and the flags of `collect`

Only what the tables have is kept, by an allow-list of attributes; never text of a request.

Source: OpenTelemetry Protocol Specification 1.x; `vllm/tracing` and `vllm/v1/engine/
output_processor.py` of vLLM 0.32.
"""
