"""Arguments for any kernel of the library: random values of the extents and types asked for.

Floats are normal; index arrays hold what their kernels' contracts ask: rows of a table that exist,
slots that are distinct, spans that lie within the tokens. A tensor is told apart by its name, which
means the same in all of the library.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from terrazzo.errors import OptionError
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DTYPES, DType, ElemType, Format
from terrazzo.kernels.attention_parts import PART
from terrazzo.lang.kernel import Kernel, ParamSpec
from terrazzo.lang.types import TypeVar

# Extents where none is asked for, by the dim's name.
EXTENTS = {
    "n": 1024,
    "m": 64,
    "k": 1024,
    "rows": 256,
    "dim": 1024,
    "tokens": 64,
    "heads": 9,
    "kvheads": 3,
    "group": 3,
    "d": 64,
    "half": 32,
    "groups": 8,
    "ctx": 512,
    "two": 2,
    "four": 4,
    "lanes": 16,
    "positions": 512,
    "pages": 64,
    "seqs": 4,
    "blocks": 16,
    "spans": 8,
    "vocab": 8192,
    "recent": 64,
    "s": 128,
    "t": 128,
}
JOINED = 64  # columns a head of join_parts, unless its D says otherwise
LONG = 1 << 20  # the one dim of a kernel that has no other
FIXED = {"two": 2, "four": 4, "lanes": 16}
# What people call some dims: of a kernel that has all of the dims and none of that name.
COMMON = {"tokens": ("s", "t"), "dim": ("d",), "batch": ("seqs",)}
SCALARS: dict[str, float | int] = {"eps": 1e-5, "scale": 0.125, "seed": 1, "stream": 0}
LEVELS = {"temperature": 0.8, "top_p": 0.9, "min_p": 0.05, "penalty": 1.1, "top_k": 40}
Extents = Mapping[str, int]


def extents(kernel: Kernel, asked: Extents) -> dict[str, int]:
    """An extent for every dim of `kernel`, by the dims' names or those of COMMON. Where `batch` is
    no dim, it multiplies attention's heads, which do not know of each other. Raises OptionError for
    a dim that `kernel` has not, or an extent out of range."""
    dims = list(kernel.dims)
    asked = _by_own_names(dims, asked)
    batched = "batch" not in dims and {"heads", "kvheads", "s", "t"} <= set(dims)
    for name, value in asked.items():
        if name not in dims and not (batched and name == "batch"):
            raise OptionError(f"`{kernel.name}` has no dim {name!r}", f"it has: {', '.join(dims)}")
        if value < 1 or value > 1 << 31:
            raise OptionError(f"dim {name} is {value:,}", "choose 1 to 2,147,483,648")
        if value != FIXED.get(name, value):
            raise OptionError(f"dim {name} is {value:,}", f"it is always {FIXED[name]}")
    out = {name: EXTENTS.get(name, 64) for name in dims}
    if len(dims) == 1:
        out = dict.fromkeys(dims, LONG)
    if {"half", "d"} <= out.keys():
        out["d"] = 2 * asked.get("half", out["half"])
    if {"heads", "kvheads"} <= out.keys() and "heads" in asked:
        out["kvheads"] = asked["heads"]
    batch = asked.pop("batch", 1) if batched else 1
    out |= asked
    if "parts" in out:  # a row for each query, and of join_parts' columns each head's own
        out["parts"] = asked.get("parts", out.get("tokens", out.get("rows", 0)))
        if "heads" in out:
            out["heads"] = max(out["heads"], -(-out["dim"] // JOINED))
    return out | {n: batch * out[n] for n in ("heads", "kvheads") if batched}


def _by_own_names(dims: Collection[str], asked: Extents) -> dict[str, int]:
    """`asked`, common names replaced by the dims they stand for."""
    out = dict(asked)
    for name, stands_for in COMMON.items():
        if name in asked and name not in dims and all(d in dims for d in stands_for):
            value = out.pop(name)
            out = {**dict.fromkeys(stands_for, value), **out}
    return out


def types(kernel: Kernel, asked: Mapping[str, str]) -> dict[str, ElemType]:
    """Type variable -> element type; the first choice of each where none is asked for."""
    known = {v.name: v for p in kernel.params if isinstance(v := p.dtype, TypeVar)}
    out = {name: var.choices[0] for name, var in known.items()}
    for name, spelt in asked.items():
        if name not in known:
            has = f"it has: {', '.join(known)}" if known else "its types are fixed"
            raise OptionError(f"`{kernel.name}` has no type {name!r}", has)
        choices = {str(c): c for c in known[name].choices}
        if spelt not in choices:
            raise OptionError(f"type {name} is {spelt!r}", f"choose from {', '.join(choices)}")
        out[name] = choices[spelt]
    return out


def make(
    kernel: Kernel,
    sizes: Extents,
    chosen: Mapping[str, ElemType],
    present: Collection[str],
    seed: int = 0,
    filled: bool = True,
) -> dict[str, Any]:
    """Keyword arguments of one call. `present`: optional tensors to give. Deterministic. Unless
    `filled`, only index tensors have values; the others are zeros, whose memory no one touches, for
    those who look at shapes."""
    optional = {p.name for p in kernel.params if p.optional}
    for name in present:
        if name not in optional:
            has = f"it has: {', '.join(sorted(optional))}" if optional else "it has none"
            raise OptionError(f"`{kernel.name}` has no optional tensor {name!r}", has)
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for p in kernel.params:
        if p.kind == "scalar" and p.default is ...:
            out[p.name] = SCALARS.get(p.name, 1)
        elif p.kind == "tensor" and (not p.optional or p.name in present):
            out[p.name] = _tensor(p, sizes, chosen, rng if filled else None, seed)
    return out


def _tensor(
    p: ParamSpec,
    sizes: Extents,
    chosen: Mapping[str, ElemType],
    rng: np.random.Generator | None,
    seed: int,
) -> Any:
    dtype = chosen[p.dtype.name] if isinstance(p.dtype, TypeVar) else p.dtype
    shape = tuple(sizes[d.name] for d in p.dims)
    if isinstance(dtype, Format):
        if shape[-1] % dtype.group:
            raise OptionError(
                f"dim {p.dims[-1]} is {shape[-1]:,}",
                f"{dtype} holds groups of {dtype.group}: choose a multiple",
            )
        if rng is None:
            row = formats.bytes_per_row(dtype, shape[-1])
            return Packed(dtype, shape, np.zeros((*shape[:-1], row), np.uint8))
        values = rng.standard_normal(shape, np.float32)
        return Packed(dtype, shape, formats.encode(dtype, values))
    assert isinstance(dtype, DType)
    if rng is None and (dtype.kind == "float" or dtype in (DTYPES["u32"], DTYPES["i8"])):
        return np.zeros(shape, dtype.numpy)
    rng = rng or np.random.default_rng(seed)
    if dtype.kind == "float":
        return _floats(p.name, shape, rng).astype(dtype.numpy)
    if dtype is DTYPES["u32"]:
        return rng.integers(0, 2**32, shape, dtype=np.uint32)
    if dtype.bits == 8:
        info = np.iinfo(dtype.numpy)
        return rng.integers(info.min, info.max + 1, shape, dtype.numpy)
    return _indices(p, shape, sizes, rng).astype(dtype.numpy)


def _floats(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if name in LEVELS:
        return np.full(shape, LEVELS[name], np.float32)
    x = rng.standard_normal(shape, np.float32)
    return np.abs(x) if name == "weight" else x


def _indices(
    p: ParamSpec, shape: tuple[int, ...], s: Extents, rng: np.random.Generator
) -> np.ndarray:
    over = {d.name for d in p.dims}
    if p.name in LEVELS:
        return np.full(shape, LEVELS[p.name])
    if "spans" in over:
        return _spans(s)[p.name]
    if "parts" in s and "rows" in over:
        return np.arange(s["rows"]) % s["parts"] if p.name == "first" else np.ones(s["rows"])
    if p.name == "length":
        return rng.integers(1, s["ctx"] + 1, shape)
    if p.name == "slot":
        room = s["pages"] * s["lanes"]
        if s["tokens"] > room:
            raise OptionError(f"{s['tokens']:,} tokens do not fit {room:,} slots", "raise pages")
        return rng.permutation(room)[: s["tokens"]]
    if p.name == "ids" and "recent" in over:
        if s["recent"] > s["vocab"]:
            raise OptionError(f"recent is {s['recent']:,}", f"vocab has {s['vocab']:,}")
        return np.stack([rng.permutation(s["vocab"])[: s["recent"]] for _ in range(s["seqs"])])
    bound = {"ids": "vocab", "table": "pages", "position": "positions", "count": "recent"}.get(
        p.name, ""
    )
    return rng.integers(0, s.get(bound, 64), shape)


def _spans(s: Extents) -> dict[str, np.ndarray]:
    """The tokens cut into spans, span i of sequence i mod seqs, each at the end of its context."""
    at = np.arange(s["spans"])
    edges = np.linspace(0, s["tokens"], s["spans"] + 1).astype(np.int64)
    count, room = np.diff(edges), s["blocks"] * s["lanes"]
    if count.max() > room:
        raise OptionError(
            f"a span of {count.max():,} tokens does not fit a context of {room:,}",
            "raise blocks or spans",
        )
    return {"seq": at % s["seqs"], "first": edges[:-1], "count": count, "position": room - count,
            "part": 0 * at, "end": 0 * at - (-room // PART), "to": edges[:-1]}  # fmt: skip


def values(x: np.ndarray | Packed) -> np.ndarray:
    """What a tensor holds, decoded if it is packed."""
    return formats.decode(x.format, x.data, x.shape) if isinstance(x, Packed) else x


def copied(x: Any) -> Any:
    """A copy that a kernel may write to."""
    if isinstance(x, Packed):
        return Packed(x.format, x.shape, x.data.copy())
    return x.copy() if isinstance(x, np.ndarray) else x
