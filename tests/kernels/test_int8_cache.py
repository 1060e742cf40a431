"""Keys and values held as whole numbers, a unit a token and head: what is written, what is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import UNIT, Target, assert_close, empty
from test_attention import oracle, slack
from test_rope import POSITIONS, pairs, tables, turned

import terrazzo.lang as tz
from terrazzo.kernels import rope
from terrazzo.kernels.attention import attention

PAGE = 16


def stored(target: Target, x: dict[str, np.ndarray], interleaved: bool, slot: np.ndarray,
           pages: int) -> dict[str, np.ndarray]:  # fmt: skip
    """The cache after keys and values of `x` (q, k, v [tokens, heads, d], position) went in."""
    tokens, kvheads, d = x["k"].shape
    cos, sin, _ = tables(d // 2)
    cache = {
        "kcache": np.full((pages, kvheads, d, PAGE), 77, np.int8),
        "vcache": np.full((pages, kvheads, PAGE, d), 77, np.int8),
        "kscale": np.full((pages, kvheads, PAGE), -1, np.float16),
        "vscale": np.full((pages, kvheads, PAGE), -1, np.float16),
    }
    kernel: tz.Kernel = rope.rope_store_interleaved if interleaved else rope.rope_store
    q = pairs(x["q"].copy(), interleaved).reshape(tokens, kvheads, 1, *(
        (d // 2, 2) if interleaved else (2, d // 2)))  # fmt: skip
    target(kernel, q=q, k=pairs(x["k"], interleaved), v=x["v"], cos=cos, sin=sin,
           position=x["position"], slot=slot, out=q,
           **{**cache, "kcache": pairs(cache["kcache"], interleaved, -2)})  # fmt: skip
    return cache


def rows(seed: int, tokens: int, kvheads: int, d: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = {n: rng.standard_normal((tokens, kvheads, d)).astype(np.float32) for n in "qkv"}
    return {**x, "position": rng.integers(0, POSITIONS, tokens).astype(np.int32)}


@pytest.mark.parametrize("interleaved", [False, True])
@settings(max_examples=10, deadline=None)
@given(tokens=st.integers(0, 21), kvheads=st.integers(1, 3), half=st.integers(1, 33),
       power=st.integers(-30, 12))  # fmt: skip
def test_units_and_whole_numbers(
    target: Target, interleaved: bool, tokens: int, kvheads: int, half: int, power: int
) -> None:
    x = rows(tokens + 100 * half, tokens, kvheads, 2 * half)
    for name in "kv":
        x[name] *= np.float32(2.0**power)
    slot = np.random.default_rng(1).permutation(4 * PAGE)[:tokens].astype(np.int32)
    got = stored(target, x, interleaved, slot, 4)
    page, lane = slot // PAGE, slot % PAGE
    want = {"k": turned(x["k"], x["position"], half, interleaved), "v": x["v"].astype(np.float64)}
    for name, where in (("k", (page, slice(None), slice(None), lane)),
                        ("v", (page, slice(None), lane))):  # fmt: skip
        unit = got[f"{name}scale"][page, :, lane].astype(np.float64)
        most = np.abs(want[name]).max(-1, initial=0)
        # An f16 rounding, and what f32 took before: the turning's two products and the division.
        assert (np.abs(unit - most / 127) <= most / 127 * (UNIT["f16"] + 8 * UNIT["f32"])
                + 2.0**-25).all()  # fmt: skip
        value = got[f"{name}cache"][where].astype(np.float64) * unit[..., None]
        # Half a unit, and what the unit lacks at the largest value when it was rounded down.
        error = np.abs(value - want[name])
        room = unit[..., None] * 0.5 + np.maximum(most - 127 * unit, 0)[..., None]
        assert (error <= room * (1 + 1e-5) + most[..., None] * 8 * UNIT["f32"]).all()
    for name in ("kcache", "vcache"):
        assert np.count_nonzero(got[name] != 77) <= tokens * kvheads * 2 * half
    assert np.count_nonzero(got["kscale"] != -1) == tokens * kvheads


def test_zero_rows_are_zero(target: Target) -> None:
    x = rows(3, 5, 2, 8)
    x["k"][:], x["v"][:] = 0, 0
    got = stored(target, x, True, np.arange(5, dtype=np.int32), 1)
    assert not got["kcache"][0, :, :, :5].any() and not got["vcache"][0, :, :5].any()
    assert not got["kscale"][0, :, :5].any() and not got["vscale"][0, :, :5].any()


def test_bytes_do_not_depend_on_how_tokens_arrive(target: Target) -> None:
    x, slot = rows(7, 19, 2, 16), np.arange(3, 22, dtype=np.int32)
    whole = stored(target, x, True, slot, 2)
    for n in (0, 8, 18):
        one = {k: v[n : n + 1] for k, v in x.items()}
        alone = stored(target, one, True, slot[n : n + 1], 2)
        page, lane = slot[n] // PAGE, slot[n] % PAGE
        assert np.array_equal(alone["kcache"][page, :, :, lane], whole["kcache"][page, :, :, lane])
        for name in ("vcache", "kscale", "vscale"):
            assert np.array_equal(alone[name][page, :, lane], whole[name][page, :, lane])


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=3),
    kvheads=st.integers(1, 3), group=st.integers(1, 3), d=st.sampled_from([16, 64]),
)  # fmt: skip
def test_attention_over_whole_numbers(
    target: Target, lengths: list[tuple[int, int]], kvheads: int, group: int, d: int
) -> None:
    """Against float64 attention over the values that the cache means."""
    rng = np.random.default_rng(len(lengths) * 1000 + sum(n for n, _ in lengths))
    totals = [before + new for before, new in lengths]
    used = [-(-t // PAGE) for t in totals]
    free = rng.permutation(sum(used))
    kcache = rng.integers(-127, 128, (sum(used), kvheads, d, PAGE), np.int8)
    vcache = rng.integers(-127, 128, (sum(used), kvheads, PAGE, d), np.int8)
    kscale, vscale = (
        (rng.uniform(0.2, 3, (sum(used), kvheads, PAGE)) / 127).astype(np.float16) for _ in "kv"
    )
    table, at = np.zeros((len(totals), max(used)), np.int32), 0
    for i, n in enumerate(used):
        table[i, :n] = free[at : (at := at + n)]
    count = np.array([new for _, new in lengths], np.int32)
    first = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int32)
    q = rng.standard_normal((int(count.sum()), kvheads, group, d)).astype(np.float32)
    out = empty(q.shape)
    before = np.array([n for n, _ in lengths], np.int32)
    target(attention, q=q, kcache=kcache, vcache=vcache, kscale=kscale, vscale=vscale, table=table,
           seq=np.arange(len(totals), dtype=np.int32), first=first, count=count, position=before,
           out=out, scale=d**-0.5)  # fmt: skip
    k = kcache.astype(np.float64) * kscale[:, :, None]
    v = vcache.astype(np.float64) * vscale[..., None]
    for i, total in enumerate(totals):
        spot = np.arange(total)
        page, lane = table[i, spot // PAGE], spot % PAGE
        own = slice(first[i], first[i] + count[i])
        position = lengths[i][0] + np.arange(count[i])
        for h in range(kvheads):
            kh, vh = k[page, h, :, lane], v[page, h, lane]
            for g in range(group):
                exact = oracle(q[own, h, g], kh, vh, position, d**-0.5)
                assert_close(out[own, h, g], exact, slack(q[own, h, g], kh, vh, d**-0.5))
