"""Errors as the OpenAI API words them."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request that is answered with an error. `param` names the field that is to blame."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code

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
