"""The trace service of OTLP over gRPC.

Messages reach us as bytes, so that garbage is answered as the specification asks, and a client that
never finishes its message is hung up on: gRPC itself would wait for ever, with a thread.

Source: OpenTelemetry Protocol Specification, "OTLP/gRPC".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from telemetry.exporters.attributes import bounded
from telemetry.sources.otlp.decoding import MOST_BYTES, NotOtlpError, from_protobuf
from telemetry.sources.otlp.intake import Intake, LogBehindError, Receipt

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MOST_AT_ONCE = 16
CLIENT_SECONDS = 10.0
"""A client that has not sent its message by then is hung up on."""
_GOODBYE_SECONDS = 1.0
_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),  # of the unpacked message too
    ("grpc.so_reuseport", 0),  # or two servers would share a port, and each get some of it
    ("grpc.max_concurrent_streams", MOST_AT_ONCE),
)


class GrpcServer:
    """A gRPC server in threads of its own, until it is closed."""

    def __init__(
        self, host: str, port: int, intake: Intake, *, client_seconds: float = CLIENT_SECONDS
    ) -> None:
        """Listens at `host` and `port`; port 0 takes a free one.

        Raises:
            OSError: The address cannot be listened at.
        """
        self._server = grpc.server(
            ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="stepscope-otlp-grpc"),
            handlers=(_TraceService(intake, client_seconds),),
            options=_OPTIONS,
            maximum_concurrent_rpcs=MOST_AT_ONCE,
        )
        host = f"[{host}]" if ":" in host else host
        try:
            port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(bounded(str(error))) from None
        self.address = f"{host}:{port}"
        self._server.start()

    def close(self) -> None:
        """Stops listening; calls under way get a moment to end."""
        self._server.stop(_GOODBYE_SECONDS).wait()


class _TraceService(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Answers `Export`, and nothing else."""

    def __init__(self, intake: Intake, client_seconds: float) -> None:
        self._intake = intake
        self._client_seconds = client_seconds

    def service(self, details: Any) -> Any:
        if details.method != METHOD:
            return None
        # On the wire a unary call is a stream of one. As a stream it is ours before it is complete.
        return grpc.stream_unary_rpc_method_handler(self._export)

    def _export(self, messages: Iterator[bytes], context: Any) -> bytes:
        timer = threading.Timer(self._client_seconds, context.cancel)
        timer.daemon = True
        timer.start()
        try:
            payload = next(messages, None)
        finally:
            timer.cancel()
        try:
            if payload is None:
                raise NotOtlpError("the call brought no message")
            answer = answer_to(self._intake.take(payload, from_protobuf))
        except NotOtlpError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, bounded(str(error)))
        except LogBehindError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the step log is behind: try again")
        return bytes(answer.SerializeToString())


def answer_to(receipt: Receipt) -> trace_service_pb2.ExportTraceServiceResponse:
    """Returns the answer of the protocol: empty, or a partial success where spans were refused."""
    answer = trace_service_pb2.ExportTraceServiceResponse()
    if receipt.num_refused:
        answer.partial_success.rejected_spans = receipt.num_refused
        answer.partial_success.error_message = receipt.reason
    return answer
