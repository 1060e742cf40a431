"""Token embeddings: rows of a table, which may be packed."""

import terrazzo.lang as tz

vocab, tokens, dim = tz.dims("vocab tokens dim")
W = tz.dtypes("W", tz.f32, tz.f16, tz.bf16, tz.q8_0, tz.q4_0, tz.q4_1, tz.q6_k)
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)


@tz.kernel
def embedding(table: tz.gm[W, vocab, dim], ids: tz.gm[tz.i32, tokens], out: tz.gm[T, tokens, dim]):
    """out[t] = table[ids[t]]; a packed row is decoded to f32, then rounded to out's type."""
    for t in tz.grid(tokens):
        out[t] = tz.load(table[ids[t]], space=tz.UB).to(tz.f32).to(T)
