"""An operator's routes to load and unload adapters; paths and fields are vLLM's."""

from __future__ import annotations

import json
from typing import TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, ValidationError

from engine.server.access import Access
from engine.server.api_error import bad_request
from engine.server.json_body import json_body
from engine.server.served_models import ServedModels

Body = TypeVar("Body", bound=BaseModel)


class LoadBody(BaseModel):
    """What to load, and the name that requests choose it by.

    `load_inplace` lets a name that is taken stand for other weights from now on.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadBody(BaseModel):
    """The name to forget. vLLM's number of the adapter may be there and is passed over."""

    model_config = ConfigDict(strict=True, extra="forbid")

    lora_name: str
    lora_int_id: int | None = None


def adapter_router(models: ServedModels, access: Access) -> APIRouter:
    """Returns the routes; who may call them is `access`' business."""
    router = APIRouter(dependencies=[Depends(access.check_operator)])

    @router.post("/v1/load_lora_adapter")
    async def load(request: Request) -> PlainTextResponse:
        """Reads an adapter beside the steps and serves it from then on."""
        body = _read(await json_body(request), LoadBody)
        await models.load(body.lora_name, body.lora_path, in_place=body.load_inplace)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    @router.post("/v1/unload_lora_adapter")
    async def unload(request: Request) -> PlainTextResponse:
        """Forgets an adapter; requests that run with it go on."""
        body = _read(await json_body(request), UnloadBody)
        await models.unload(body.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    return router


def _read(raw: bytes, kind: type[Body]) -> Body:
    try:
        return kind.model_validate(json.loads(raw))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise bad_request(f"{where}: {first['msg']}", where) from None
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from None
