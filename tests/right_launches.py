"""Launches of the library's kernels over shapes, types, tiles and options, random and seeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from davinci_launch import Launch, launched

from terrazzo.targets.davinci.lowering.lower import Options


@dataclass(frozen=True)
class Case:
    """`roundings`: the tolerance of davinci_launch.py."""

    kernel: str
    shape: str
    types: str
    given: str
    consts: str
    options: Options
    roundings: float
    seed: int

    def __str__(self) -> str:
        return " ".join(x for x in (self.kernel, self.shape, self.types, self.given,
                                    self.consts) if x)  # fmt: skip

    def launch(self) -> Launch:
        return launched(self.kernel, self.shape, self.types, self.given, self.consts, self.options,
                        self.seed)  # fmt: skip


Spelt = tuple[str, str, str, str, float]  # shape, types, given, consts, roundings


def _flat(r: Random) -> Spelt:
    t = r.choice(("f32", "f16", "bf16"))
    return f"n={r.randint(1, 30000)}", f"T={t}", "", f"TILE={r.choice((512, 1024, 4096))}", 2


def _copy(r: Random) -> Spelt:
    types = r.choice(("S=f32,T=f16", "S=f16,T=f32", "S=bf16,T=f32", "S=f32,T=bf16"))
    return f"n={r.randint(1, 30000)}", types, "", "", 2


def _custom(r: Random) -> Spelt:
    return f"n={r.randint(1, 200_000)}", "", "", "", 2


def _norm(r: Random) -> Spelt:
    t = r.choice(("f32", "f16", "bf16"))
    rows, dim = r.randint(1, 40), r.randint(1, 300)
    return (f"rows={rows},dim={dim}", f"T={t},R={t}", "", f"ROWS={r.choice((2, 4, 8))}",
            32 if t == "f32" else 2)  # fmt: skip


def _activation(r: Random) -> Spelt:
    return f"rows={r.randint(1, 20)},dim={r.randint(1, 400)}", "", "", "", 64


def _softmax(r: Random) -> Spelt:
    return f"rows={r.randint(1, 30)},dim={r.randint(1, 300)}", "", "", "", 32


def _rope(r: Random) -> Spelt:
    t = r.choice(("f32", "f16"))
    half = 8 * r.randint(1, 6)
    return (
        f"tokens={r.randint(1, 9)},heads={r.randint(1, 4)},half={half}",
        f"T={t},R={t}",
        "",
        "",
        4,
    )


def _rows(r: Random) -> Spelt:
    return f"vocab={r.randint(5, 90)},dim={r.randint(1, 200)},tokens={r.randint(1, 20)}", "", "", \
        "", 2  # fmt: skip


def _tiles(r: Random) -> str:
    return f"M={r.choice((32, 64, 128))},N={r.choice((32, 64, 128))},K={r.choice((32, 64))}"


def _matmul(r: Random) -> Spelt:
    t = r.choice(("f16", "bf16", "f32"))
    shape = f"m={r.randint(1, 150)},n={r.randint(1, 300)},k={r.randint(1, 200)}"
    return shape, f"T={t},R={t}", "", _tiles(r), 64 if t == "f32" else 2


def _linear(r: Random) -> Spelt:
    shape = f"m={r.randint(1, 100)},n={r.randint(1, 200)},k={r.randint(1, 200)}"
    return shape, "A=f16,W=f16,R=f16", r.choice(("", "bias", "residual", "bias,residual")), \
        f"M=64,N=64,K={r.choice((64, 128))}", 4  # fmt: skip


def _gated(r: Random) -> Spelt:
    shape = f"m={r.randint(1, 70)},n={r.randint(1, 130)},k={r.randint(1, 200)}"
    return shape, "A=f16,W=f16,Q=f16", "", "M=32,N=32,K=64", 16


def _gelu(r: Random) -> Spelt:
    shape = f"m={r.randint(1, 100)},n={r.randint(1, 150)},k={r.randint(1, 150)}"
    return shape, "T=f16,R=f16", "", "M=64,N=64,K=64", 8


def _bytes(r: Random) -> Spelt:
    shape = f"m={r.randint(1, 70)},n={r.randint(1, 200)},k={r.randint(1, 300)}"
    result, given = r.choice((("i32", ""), ("f16", "scale"), ("f32", "scale")))
    return shape, f"S={result}", given, "", 2


def _flash(r: Random) -> Spelt:
    kv = r.randint(1, 2)
    heads, d, s = kv * r.randint(1, 2), 16 * r.randint(1, 4), r.randint(1, 90)
    t = s + r.randint(0, 400)  # every query sees a key
    shape = f"heads={heads},kvheads={kv},s={s},t={t},d={d}"
    return shape, "Q=f16,R=f16", "", f"STEP={r.choice((64, 128))}", 16


def _decode(r: Random) -> Spelt:
    t, roundings = r.choice((("f32", 64), ("f16", 16), ("bf16", 16)))
    return f"ctx={r.randint(1, 500)}", f"Q={t},R={t}", "", "", roundings


FAMILIES: dict[str, tuple[Callable[[Random], Spelt], int]] = {
    "add": (_flat, 16), "mul": (_flat, 8), "copy": (_copy, 8), "add_custom": (_custom, 8),
    "rms_norm": (_norm, 14), "layer_norm": (_norm, 14), "add_rms_norm": (_norm, 14),
    "softmax": (_softmax, 12), "silu": (_activation, 6), "gelu": (_activation, 6),
    "gelu_tanh": (_activation, 6), "silu_mul": (_activation, 6), "rope": (_rope, 10),
    "embedding": (_rows, 6), "matmul": (_matmul, 24), "linear": (_linear, 16),
    "gated_linear": (_gated, 8), "matmul_bias_gelu": (_gelu, 8), "matmul_i8": (_bytes, 8),
    "flash_attention": (_flash, 14), "decode_attention": (_decode, 8),
}  # fmt: skip


def cases() -> list[Case]:
    out: list[Case] = []
    for name, (spell, count) in FAMILIES.items():
        r = Random(name)
        for i in range(count):
            shape, types, given, consts, roundings = spell(r)
            options = Options(cores=r.randint(1, 3), vector_cores=r.randint(1, 4),
                              ahead=r.randint(0, 2), slots=r.randint(1, 2),
                              swizzle=r.randint(1, 2))  # fmt: skip
            out.append(Case(name, shape, types, given, consts, options, roundings, i))
    return out


CASES = cases()
