"""Errors as OpenAI's clients know them: a status and {"error": {message, type, param, code}}."""

from __future__ import annotations

from typing import Any

from terrazzo import errors
from terrazzo.engine.request import Failure
from terrazzo.errors import TerrazzoError


class ApiError(Exception):
    """What a request is answered with. `param` names the field that is wrong."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }


_TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error",
          503: "server_error", 504: "server_error"}  # fmt: skip

# Of our classes: status, code, the field most likely meant
_KNOWN: dict[str, tuple[int, str | None, str | None]] = {
    errors.ContextOverflow.__name__: (400, "context_length_exceeded", "messages"),
    errors.OptionError.__name__: (400, None, None),
    errors.ChatError.__name__: (400, None, "messages"),
    errors.GrammarError.__name__: (400, "invalid_schema", "response_format"),
    errors.QueueFull.__name__: (429, "queue_full", None),
    errors.DeadlineExceeded.__name__: (504, "timeout", None),
    errors.EngineDied.__name__: (503, "engine_restarting", None),
    errors.KernelFault.__name__: (500, "kernel_fault", None),
    errors.MemoryShortage.__name__: (503, "memory", None),
}


def of_failure(failure: Failure) -> ApiError:
    """Why the engine ended a request."""
    status, code, param = _KNOWN.get(failure.kind, (500, None, None))
    wait = failure.retry_after_s or (1.0 if status in (429, 503) else 0.0)
    headers = {"Retry-After": str(max(1, round(wait)))} if wait else {}
    return ApiError(status, failure.text, param=param, code=code, headers=headers)


def of_error(error: TerrazzoError) -> ApiError:
    return of_failure(
        Failure(type(error).__name__, str(error), getattr(error, "retry_after_s", 0.0))
    )
