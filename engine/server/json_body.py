"""Takes in a request's body, as far as it may be JSON at all."""

from __future__ import annotations

from fastapi import Request

from engine.server.api_error import ApiError

MAX_BODY_BYTES = 64 << 20
"""More than any model's longest prompt takes, as token ids or as text."""


async def json_body(request: Request) -> bytes:
    """Returns the body's bytes. A client may leave out of which type they are.

    Raises:
        ApiError: 415, it is said to be no JSON; 413, there is too much of it.
    """
    media_type = request.headers.get("content-type", "application/json").partition(";")[0]
    if media_type.strip().lower() != "application/json":
        raise ApiError(
            415, f"the body's Content-Type is {media_type!r}: send JSON, as application/json"
        )
    parts, num_bytes = [], 0
    async for part in request.stream():
        parts.append(part)
        num_bytes += len(part)
        if num_bytes > MAX_BODY_BYTES:
            raise ApiError(
                413, f"the body has more than {MAX_BODY_BYTES:,} bytes: send a shorter prompt"
            )
    return b"".join(parts)
