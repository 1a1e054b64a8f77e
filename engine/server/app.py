"""The API's routes. What a route does is elsewhere; here it gets its path and its status."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from engine.server.access import Access
from engine.server.adapter_routes import adapter_router
from engine.server.admin import admin_router
from engine.server.answer import Answer
from engine.server.api_error import ApiError, bad_request
from engine.server.chat import ChatCompletion
from engine.server.chat_request import parse_chat_request
from engine.server.completion_request import parse_completion_request
from engine.server.completions import Completion
from engine.server.disconnect import ClientGoneError, EventStream, unless_gone
from engine.server.engine_client import EngineClient, EngineState, EngineUnavailableError
from engine.server.generation import Caller
from engine.server.json_body import json_body
from engine.server.served_models import ServedModels
from engine.server.settings import ServerSettings
from engine.server.trace_context import read_traceparent
from engine.text.chat_template import ChatTemplate

REQUEST_ID = re.compile(r"[\w.:@/+=-]{1,128}", re.ASCII)
CLIENT_GONE_STATUS = 499
"""Nobody reads it; it is what access logs call a client that hung up."""


def build_app(client: EngineClient, settings: ServerSettings) -> FastAPI:
    """Returns the application over an engine.

    Raises:
        ChatTemplateError: the template in the settings is none.
    """
    template = None if settings.chat_template is None else ChatTemplate(settings.chat_template)
    access = Access(settings.api_keys, settings.admin_token)
    served = ServedModels(client)
    app = FastAPI(
        title="Stepscope",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(access.check_api_key)],
    )

    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> JSONResponse:
        return JSONResponse(error.body, status_code=error.status, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_wrong_query(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        wrong = bad_request(f"{first['loc'][-1]}: {first['msg']}", str(first["loc"][-1]))
        return JSONResponse(wrong.body, status_code=wrong.status)

    @app.exception_handler(ClientDisconnect)
    async def on_client_gone(request: Request, error: ClientDisconnect) -> Response:
        """Answers a client that went before it had said what it wants."""
        return Response(status_code=CLIENT_GONE_STATUS)

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
            "pause": client.pause.name.lower(),
        }
        return JSONResponse(body, status_code=200 if is_live else 503)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": served.cards()}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return served.card(name)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        caller = _caller(request)
        asked = parse_completion_request(await json_body(request))
        caller = replace(caller, adapter=served.choose(asked.model))
        return await _send(request, Completion(client, asked, caller))

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        caller = _caller(request)
        asked = parse_chat_request(await json_body(request))
        caller = replace(caller, adapter=served.choose(asked.model))
        return await _send(request, ChatCompletion(client, asked, caller, template))

    app.include_router(admin_router(client, access))
    app.include_router(adapter_router(served, access))
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
        return EventStream(
            answer.generation, _events(answer), headers, begun=answer.generation.begun
        )
    with answer.generation:
        try:
            body = await unless_gone(request.receive, answer.as_object())
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE_STATUS)
    return JSONResponse(body, headers=headers)


async def _events(answer: Answer) -> AsyncIterator[bytes]:
    """Yields the events of a streamed answer; an error after its start becomes an event too."""
    try:
        async for chunk in answer.as_chunks():
            yield _event(chunk)
    except ApiError as error:
        yield _event(error.body)
    yield b"data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> bytes:
    # ASCII only: some clients take U+0085 or U+2028 for the end of a line.
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _request_id(header: str | None) -> str:
    if header is None:
        return uuid.uuid4().hex
    if not REQUEST_ID.fullmatch(header):
        raise bad_request(
            "X-Request-Id must have 1 to 128 characters out of letters, digits and _.:@/+=-"
        )
    return header
