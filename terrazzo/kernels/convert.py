"""What every family uses to write a result in the element type that the caller's tensor has."""

from __future__ import annotations

from typing import Any

import terrazzo.lang as tz


def pack(x: Any, dtype: Any) -> Any:
    """f32 tile as `dtype`: rounded to a float type, or a8 in groups along its last axis."""
    return tz.quantize(x, tz.a8) if dtype == tz.a8 else x.to(dtype)
