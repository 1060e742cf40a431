"""A request's body: read within bounds of size and time, and parsed as strict JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from terrazzo.serve.api.errors import ApiError

MOST_BYTES = 8 << 20
SECONDS = 30.0  # for all of a body to arrive
MOST_DEPTH = 100


async def parsed(request: Request) -> Any:
    """Raises ApiError (400, 408, 413)."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MOST_BYTES:
        raise _too_large(int(declared))
    try:
        raw = await asyncio.wait_for(_read(request), SECONDS)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {SECONDS:g} s") from None
    except ClientDisconnect:
        raise ApiError(400, "the client went away") from None
    return parse(raw)


async def _read(request: Request) -> bytes:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MOST_BYTES:
            raise _too_large(len(parts))
    return bytes(parts)


def _too_large(size: int) -> ApiError:
    return ApiError(413, f"the body has {size:,} bytes or more, at most {MOST_BYTES:,} are read")


def parse(raw: bytes) -> Any:
    """JSON in UTF-8 without NaN and infinities, at most MOST_DEPTH deep."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ApiError(400, f"the JSON is more than {MOST_DEPTH} levels deep") from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if _deeper(value, MOST_DEPTH):
        raise ApiError(400, f"the JSON is more than {MOST_DEPTH} levels deep")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [
            x
            for v in level
            for x in (v.values() if isinstance(v, dict) else v if isinstance(v, list) else ())
            if isinstance(x, dict | list)
        ]
        if not level:
            return False
    return True
