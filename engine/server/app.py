"""The API's routes. What a route does is elsewhere; here it gets its path and its status."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from engine.server.api_error import ApiError, bad_request
from engine.server.completion_request import CompletionRequest, parse_completion_request
from engine.server.completions import Caller, Completion
from engine.server.disconnect import ClientGoneError, EventStream, unless_gone
from engine.server.engine_client import EngineClient, EngineState, EngineUnavailableError
from engine.server.integrity import checked_books, is_from_this_machine
from engine.server.settings import ServerSettings
from engine.server.trace_context import read_traceparent

REQUEST_ID = re.compile(r"[\w.:@/+=-]{1,128}", re.ASCII)
CLIENT_GONE_STATUS = 499
"""Nobody reads it; it is what access logs call a client that hung up."""


def build_app(client: EngineClient, settings: ServerSettings) -> FastAPI:
    """Returns the application over an engine."""
    app = FastAPI(title="Stepscope", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> JSONResponse:
        return JSONResponse(error.body, status_code=error.status)

    @app.exception_handler(EngineUnavailableError)
    async def on_unavailable(request: Request, error: EngineUnavailableError) -> JSONResponse:
        return JSONResponse(ApiError(503, str(error)).body, status_code=503)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        wrong = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse(ApiError(error.status_code, wrong).body, status_code=error.status_code)

    @app.exception_handler(Exception)
    async def on_bug(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(ApiError(500, "internal error, see the log").body, status_code=500)

    @app.get("/health")
    async def health() -> JSONResponse:
        """Ready for requests, or why not."""
        if client.state is EngineState.READY:
            return JSONResponse({"status": "ready"})
        body = {"status": client.state.name.lower(), "error": client.error}
        return JSONResponse(body, status_code=503)

    @app.get("/live")
    async def live() -> JSONResponse:
        """Whether requests that are open get on."""
        idle_seconds = client.seconds_without_progress()
        is_stuck = idle_seconds > settings.live_timeout_seconds
        is_live = client.state is not EngineState.FAILED and not is_stuck
        body = {
            "status": "live" if is_live else "stuck" if is_stuck else "failed",
            "num_open_requests": client.num_open,
            "seconds_without_progress": round(idle_seconds, 3),
            "limit_seconds": settings.live_timeout_seconds,
            "last_step": client.last_step,
        }
        return JSONResponse(body, status_code=200 if is_live else 503)

    @app.post("/stepscope/integrity")
    async def integrity(request: Request) -> JSONResponse:
        """Checks the engine's books; for callers on its own machine, and not there for others."""
        if not is_from_this_machine(request):
            raise HTTPException(404)
        return JSONResponse(await checked_books(client))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        ready = client.check_ready()
        card = {
            "id": client.settings.model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "stepscope",
            "max_model_len": ready.config.scheduler.max_model_len,
            "vocab_size": ready.vocab_size,
        }
        return {"object": "list", "data": [card]}

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        received_ns = time.monotonic_ns()
        asked = parse_completion_request(await request.body())
        _check_model(asked, client.settings.model_name)
        caller = Caller(
            request_id=_request_id(request.headers.get("x-request-id")),
            trace=read_traceparent(request.headers.get("traceparent")),
            received_ns=received_ns,
        )
        client.check_ready()
        completion = Completion(client, client.tokenizer, asked, caller)
        headers = {"x-request-id": caller.request_id}
        if asked.stream:
            return EventStream(_events(completion, client.settings.model_name), headers)
        with completion:
            try:
                body = await unless_gone(
                    request.receive, completion.as_object(client.settings.model_name)
                )
            except ClientGoneError:
                return Response(status_code=CLIENT_GONE_STATUS)
        return JSONResponse(body, headers=headers)

    return app


async def _events(completion: Completion, model: str) -> AsyncIterator[bytes]:
    """Yields the events of a streamed answer; an error after its start becomes an event too."""
    try:
        with completion:
            async for chunk in completion.as_chunks(model):
                yield _event(chunk)
    except ApiError as error:
        yield _event(error.body)
    yield b"data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> bytes:
    # ASCII only: some clients take U+0085 or U+2028 for the end of a line.
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _check_model(asked: CompletionRequest, served: str) -> None:
    if asked.model is not None and asked.model != served:
        raise ApiError(
            404,
            f"model {asked.model!r} is not served here: {served!r} is",
            "model",
            "model_not_found",
        )


def _request_id(header: str | None) -> str:
    if header is None:
        return uuid.uuid4().hex
    if not REQUEST_ID.fullmatch(header):
        raise bad_request(
            "X-Request-Id must have 1 to 128 characters out of letters, digits and _.:@/+=-"
        )
    return header
