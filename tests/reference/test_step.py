"""A 16-token step of a model of the demo model's shape, against NumPy in float64."""

from __future__ import annotations

import time

import numpy as np
import pytest
from small import run

from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.kernels.attention import attention
from terrazzo.kernels.embedding import embedding
from terrazzo.kernels.linear import gated_linear, linear
from terrazzo.kernels.norm import rms_norm
from terrazzo.kernels.quantize import quantize
from terrazzo.kernels.rope import rope_store_interleaved

TOKENS, LAYERS, DIM, FFN, VOCAB = 16, 30, 576, 1536, 49152
HEADS, KV, D, PAGE = 9, 3, 64, 16
HALF, EPS = D // 2, 1e-5
SHAPES = {"q": (DIM, DIM), "k": (KV * D, DIM), "v": (KV * D, DIM), "o": (DIM, DIM),
          "gate": (FFN, DIM), "up": (FFN, DIM), "down": (DIM, FFN)}  # fmt: skip


class Model:
    """Random weights in the demo model's formats; every layer has the same ones."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.layer = {name: self.packed(shape, "q4_1") for name, shape in SHAPES.items()}
        self.head = self.packed((VOCAB, DIM), "q8_0")
        self.norm = (self.rng.random(DIM) + 0.5).astype(np.float32)
        angle = np.arange(TOKENS)[:, None] * 10000.0 ** (-np.arange(HALF) / HALF)
        self.angle, self.position = angle, np.arange(TOKENS, dtype=np.int32)
        self.ids = self.rng.integers(0, VOCAB, TOKENS).astype(np.int32)

    def packed(self, shape: tuple[int, int], fmt: str) -> Packed:
        x = self.rng.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[1]))
        return Packed(formats.FORMATS[fmt], shape, formats.encode(fmt, x))

    def step(self, int8: bool, layers: int = LAYERS) -> np.ndarray:
        """Logits by tile kernels."""
        t, w = TOKENS, self.layer
        x, q, k, v = (np.zeros((t, n), np.float32) for n in (DIM, DIM, KV * D, KV * D))
        cos, sin = np.cos(self.angle).astype(np.float32), np.sin(self.angle).astype(np.float32)
        kcache = np.zeros((1, KV, D, PAGE), np.float16)
        vcache = np.zeros((1, KV, PAGE, D), np.float16)
        one, zero = np.array([t], np.int32), np.zeros(1, np.int32)

        def activations(width: int) -> np.ndarray | Packed:
            if not int8:
                return np.zeros((t, width), np.float32)
            size = formats.bytes_per_row("a8", width)
            return Packed(formats.A8, (t, width), np.zeros((t, size), np.uint8))

        h, inner, mixed = activations(DIM), activations(FFN), activations(DIM)
        run(embedding, table=self.head, ids=self.ids, out=x)
        for _ in range(layers):
            run(rms_norm, x=x, weight=self.norm, out=h, eps=EPS)
            for name, out in (("q", q), ("k", k), ("v", v)):
                run(linear, a=h, w=w[name], out=out)
            pairs = q.reshape(t, KV, HEADS // KV, HALF, 2)
            run(rope_store_interleaved, q=pairs, k=k.reshape(t, KV, HALF, 2), v=v.reshape(t, KV, D),
                cos=cos, sin=sin, position=self.position, slot=self.position, out=pairs,
                kcache=kcache.reshape(1, KV, HALF, 2, PAGE), vcache=vcache)  # fmt: skip
            out = np.zeros((t, KV, HEADS // KV, D), np.float32)
            run(attention, q=q.reshape(out.shape), kcache=kcache, vcache=vcache, table=zero[None],
                seq=zero, first=zero, count=one, position=zero, out=out, scale=D**-0.5)  # fmt: skip
            if isinstance(mixed, Packed):
                run(quantize, x=out.reshape(t, DIM), out=mixed)
            else:
                mixed = out.reshape(t, DIM)
            run(linear, a=mixed, w=w["o"], out=x, residual=x)
            run(rms_norm, x=x, weight=self.norm, out=h, eps=EPS)
            run(gated_linear, a=h, gate=w["gate"], up=w["up"], out=inner)
            run(linear, a=inner, w=w["down"], out=x, residual=x)
        run(rms_norm, x=x, weight=self.norm, out=h, eps=EPS)
        logits = np.zeros((t, VOCAB), np.float32)
        run(linear, a=h, w=self.head, out=logits)
        return logits

    def oracle(self, layers: int = LAYERS) -> np.ndarray:
        """The same in float64 but for the cache's f16: whole matrices, complex rotation."""

        def wide(p: Packed) -> np.ndarray:
            return formats.decode(p.format, p.data, p.shape).astype(np.float64)

        def norm(x: np.ndarray) -> np.ndarray:
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * self.norm

        def turn(x: np.ndarray) -> np.ndarray:
            z = np.ascontiguousarray(x).view(np.complex128) * np.exp(1j * self.angle)[:, None]
            return z.view(np.float64)

        w, head, t = {n: wide(p).T for n, p in self.layer.items()}, wide(self.head), TOKENS
        x = head[self.ids]
        hidden = np.triu(np.full((t, t), -np.inf), 1)
        for _ in range(layers):
            h = norm(x)
            q = turn((h @ w["q"]).reshape(t, HEADS, D))
            k = turn((h @ w["k"]).reshape(t, KV, D)).astype(np.float16).astype(np.float64)
            v = (h @ w["v"]).reshape(t, KV, D).astype(np.float16).astype(np.float64)
            k, v = (np.repeat(y, HEADS // KV, axis=1) for y in (k, v))
            score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(D) + hidden
            p = np.exp(score - score.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            x = x + np.einsum("hij,jhd->ihd", p, v).reshape(t, DIM) @ w["o"]
            h = norm(x)
            gate = h @ w["gate"]
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"])) @ w["down"]
        return norm(x) @ head.T


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_step(model: Model) -> None:
    start = time.perf_counter()
    logits, exact = model.step(int8=False), model.oracle()
    # f16 keys and values round the other way now and then (2^-11 of one value in thousands);
    # everything else is f32.
    assert cosine(logits, exact).min() > 1 - 1e-6
    assert np.abs(logits - exact).max() < 0.02 * exact.std()
    assert time.perf_counter() - start < 30


def test_step_with_int8_activations(model: Model) -> None:
    logits, exact = model.step(int8=True, layers=6), model.oracle(layers=6)
    # Values are rounded to 1/127 of their group's largest: about 0.4 % of error a product.
    assert cosine(logits, exact).min() > 0.9995
