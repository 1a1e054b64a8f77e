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

from engine.server.answer import Answer
from engine.server.api_error import ApiError, bad_request
from engine.server.chat import ChatCompletion
from engine.server.chat_request import parse_chat_request
from engine.server.chat_template import ChatTemplate
from engine.server.completion_request import parse_completion_request
from engine.server.completions import Completion
from engine.server.disconnect import ClientGoneError, EventStream, unless_gone
from engine.server.engine_client import EngineClient, EngineState, EngineUnavailableError
from engine.server.generation import Caller
from engine.server.integrity import checked_books, is_from_this_machine
from engine.server.settings import ServerSettings
from engine.server.trace_context import read_traceparent

REQUEST_ID = re.compile(r"[\w.:@/+=-]{1,128}", re.ASCII)
CLIENT_GONE_STATUS = 499
"""Nobody reads it; it is what access logs call a client that hung up."""


def build_app(client: EngineClient, settings: ServerSettings) -> FastAPI:
    """Returns the application over an engine.

    Raises:
        ChatTemplateError: the template in the settings is none.
    """
    template = None if settings.chat_template is None else ChatTemplate(settings.chat_template)
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
        return {"object": "list", "data": [_model_card(client)]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        _check_model(name, client.settings.model_name)
        return _model_card(client)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        caller = _caller(request)
        asked = parse_completion_request(await request.body())
        _check_model(asked.model, client.settings.model_name)
        return await _send(request, Completion(client, asked, caller))

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        caller = _caller(request)
        asked = parse_chat_request(await request.body())
        _check_model(asked.model, client.settings.model_name)
        return await _send(request, ChatCompletion(client, asked, caller, template))

    return app


def _caller(request: Request) -> Caller:
    return Caller(
        received_ns=time.monotonic_ns(),
        request_id=_request_id(request.headers.get("x-request-id")),
        trace=read_traceparent(request.headers.get("traceparent")),
    )


async def _send(request: Request, answer: Answer) -> Response:
    """Returns the answer as the client wants it, streamed or whole; a client may go meanwhile."""
    headers = {"x-request-id": answer.generation.request_id}
    if answer.is_streamed:
        return EventStream(_events(answer), headers)
    with answer.generation:
        try:
            body = await unless_gone(request.receive, answer.as_object())
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE_STATUS)
    return JSONResponse(body, headers=headers)


async def _events(answer: Answer) -> AsyncIterator[bytes]:
    """Yields the events of a streamed answer; an error after its start becomes an event too."""
    try:
        with answer.generation:
            async for chunk in answer.as_chunks():
                yield _event(chunk)
    except ApiError as error:
        yield _event(error.body)
    yield b"data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> bytes:
    # ASCII only: some clients take U+0085 or U+2028 for the end of a line.
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _model_card(client: EngineClient) -> dict[str, Any]:
    ready = client.check_ready()
    return {
        "id": client.settings.model_name,
        "object": "model",
        "created": ready.started_ts // 1_000_000_000,
        "owned_by": "stepscope",
        "max_model_len": ready.config.scheduler.max_model_len,
        "vocab_size": ready.vocab_size,
    }


def _check_model(asked: str | None, served: str) -> None:
    if asked is not None and asked != served:
        raise ApiError(
            404, f"model {asked!r} is not served here: {served!r} is", "model", "model_not_found"
        )


def _request_id(header: str | None) -> str:
    if header is None:
        return uuid.uuid4().hex
    if not REQUEST_ID.fullmatch(header):
        raise bad_request(
            "X-Request-Id must have 1 to 128 characters out of letters, digits and _.:@/+=-"
        )
    return header
