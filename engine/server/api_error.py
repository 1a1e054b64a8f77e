"""Errors as the OpenAI API words them."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request that is answered with an error. `param` names the field that is to blame.

    `retry_after_seconds`: when it is worth to try again; None where nothing is known to change.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self._retry_after_seconds = retry_after_seconds

    @property
    def headers(self) -> dict[str, str]:
        """The headers that go with it."""
        if self._retry_after_seconds is None:
            return {}
        return {"retry-after": str(self._retry_after_seconds)}

    @property
    def body(self) -> dict[str, Any]:
        """The JSON that the client gets."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }


def bad_request(message: str, param: str | None = None) -> ApiError:
    """Returns the error of a request that the client has to change."""
    return ApiError(400, message, param)
