"""Every mistake a kernel author can make: text, remedy, and the caret under the sub-expression."""

# The bodies below are wrong on purpose.
# ruff: noqa: B007, F821
# pyright: basic, reportOptionalSubscript=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportUnusedExpression=false, reportAttributeAccessIssue=false, reportUndefinedVariable=false
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportInvalidTypeForm=false

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import terrazzo.lang as tz
from terrazzo.errors import ArgumentError, KernelError

n, m, k, other = tz.dims("n m k other")
T = tz.dtypes("T", tz.f32, tz.f16)
U = tz.dtypes("U", tz.f32, tz.f16)


def failure(make: Callable[[], Any], **request: Any) -> KernelError:
    with pytest.raises(KernelError) as e:
        kernel = make()
        kernel.specialise(**request)
    return e.value


def check(error: KernelError, marked: str, what: str, remedy: str = "") -> None:
    """The text, and that the caret and file:line:col point at `marked` in this file."""
    assert (error.what, error.remedy) == (what, remedy)
    start = error.caret.index("^")
    assert error.source[start : start + error.caret.count("^")] == marked
    file, line, col = error.where.rsplit(":", 2)
    text = Path(file).read_text().splitlines()[int(line) - 1]
    assert text[int(col) - 1 :].startswith(marked)
    assert text.strip() == error.source


TRUTH = "the truth of a run-time value is not known when the kernel is compiled"
CHOOSE = "choose with tz.where(cond, a, b), tz.maximum or tz.minimum; join conditions by & | ~"
KEEPS = "a carried value keeps type and axes: start from one like the result, e.g. tz.zeros(i, d)"
CASES: list[tuple[Callable[..., Any], str, str, str]] = []


def case(marked: str, what: str, remedy: str = "") -> Callable[[Callable[..., Any]], None]:
    def add(fn: Callable[..., Any]) -> None:
        CASES.append((fn, marked, what, remedy))

    return add


X, M = tz.gm[tz.f32, n], tz.gm[tz.f32, m, k]


@case("a[i] + h[i]", "`+`: f32 and f16 do not mix", "cast one of them with .to(…)")
def dtypes_mix(a: X, h: tz.gm[tz.f16, n], out: X):
    for i in tz.grid(n, step=8):
        out[i] = tz.exp(a[i] + h[i]) * 2


@case("x[i] + 0.5", "0.5 meets a value of type i32", "cast the value with .to(tz.f32)")
def float_with_int(x: tz.gm[tz.i32, n]):
    for i in tz.grid(n, step=8):
        x[i] = x[i] + 0.5


@case("x[i] / 2", "`/` needs floats, got i32", "use // or cast with .to(tz.f32)")
def integer_division(x: tz.gm[tz.i32, n]):
    for i in tz.grid(n, step=8):
        x[i] = x[i] / 2


@case("x[i] & 1", "`&` needs integers, got f32", "cast with .to(tz.i32)")
def float_bits(x: tz.gm[tz.f32, n]):
    for i in tz.grid(n, step=8):
        x[i] = (x[i].to(tz.i32) + 1).to(tz.f32) * (x[i] & 1)


@case("tz.full(300, i, tz.u8)", "300 does not fit u8 (0 … 255)")
def out_of_range(x: tz.gm[tz.u8, n]):
    for i in tz.grid(n, step=8):
        x[i] = tz.full(300, i, tz.u8)


@case("out[i]", "`out` holds f16, the value is f32", "cast it: .to(tz.f16)")
def store_type(x: X, out: tz.gm[tz.f16, n]):
    for i in tz.grid(n, step=8):
        out[i] = x[i] * 2


@case(
    "out[i]",
    "the value has axes [i, k], the place in `out` has [i]",
    "reduce over it, e.g. tz.sum(value, axis=k), or index with it",
)
def store_axes(x: M, out: tz.gm[tz.f32, m]):
    for i in tz.grid(m, step=8):
        out[i] = x[i] * 2


@case("x[i, i, i]", "`x` has 2 dims (m, k), the index has 3 entries", "")
def too_many_entries(x: M):
    for i in tz.grid(m, step=8):
        x[i] = tz.load(x[i, i, i])


@case(
    "x[:, i]",
    "dim `k` of `x` is indexed by block i of m",
    "a block indexes only its own dim; for a gather write tz.index(…)",
)
def wrong_dim(x: M):
    for i in tz.grid(m, step=8):
        x[i] = tz.load(x[:, i])


@case(
    "x[0:4]",
    "dim `n` of `x`: a slice with bounds is not an index",
    "loop over the part: for i in tz.loop(lo, hi, step=…, of=n)",
)
def bounded_slice(x: X):
    for i in tz.grid(n, step=8):
        x[i] = tz.sum(x[0:4], axis=n)


@case("x[x[i]]", "dim `n` of `x` is indexed by f32[i]", "an index is i32: .to(tz.i32)")
def float_index(x: X):
    for i in tz.grid(n, step=8):
        x[i] = x[x[i]]


@case(
    "tz.load(a[i]) @ tz.load(b[j])",
    "`@` contracts axes both sides share; f32[i] and f32[j] share none",
    "index both with the same block",
)
def nothing_shared(a: tz.gm[tz.f32, m], b: tz.gm[tz.f32, k], out: M):
    for i, j in tz.grid(m, k, step=8):
        out[i, j] = tz.load(a[i]) @ tz.load(b[j])


@case("a[i, p] @ b[p]", "`@` of i32 and f32 is not offered",
      "it takes f32, f16, bf16, i8 and packed tiles; use .to(…)")  # fmt: skip
def dot_types(a: tz.gm[tz.i32, m, k], b: tz.gm[tz.f32, k], out: tz.gm[tz.f32, m]):
    for i in tz.grid(m, step=8):
        for p in tz.loop(k, step=8):
            out[i] = a[i, p] @ b[p]


@case("w[i, p] * 2", "a packed q4_0 tile takes part only in @", "decode it first: .to(tz.f32)")
def packed_arithmetic(w: tz.gm[tz.q4_0, m, k], out: M):
    for i in tz.grid(m, step=8):
        for p in tz.loop(k, step=32):
            out[i, p] = w[i, p] * 2


@case("tz.sum(x[i], axis=n)", "tz.sum: axis `n` is not an axis of the tile f32[i]",
      "its axes are: i")  # fmt: skip
def reduce_axis(x: X):
    for i in tz.grid(n, step=8):
        x[i] = x[i] - tz.sum(x[i], axis=n)


@case("x[i] > 0", TRUTH, CHOOSE)
def run_time_if(x: X):
    for i in tz.grid(n, step=8):
        if x[i] > 0:
            x[i] = 0.0


@case("x[i] > 0", "`and` of a run-time value", "write (a) & (b)")
def run_time_and(x: X):
    for i in tz.grid(n, step=8):
        x[i] = tz.where(x[i] > 0 and x[i] < 1, x[i], 0.0)


@case("while n > 0:", "while is not part of the kernel language", "loop with tz.loop(…)")
def while_loop(x: X):
    while n > 0:
        pass


@case("return 1", "return is not part of the kernel language",
      "a kernel returns nothing: store into a parameter")  # fmt: skip
def returns(x: X):
    return 1


@case("i + 1", "this expression has no effect", "assign it, or store it: out[i] = …")
def no_effect(x: X):
    for i in tz.grid(n, step=8):
        i + 1


@case("nothing", "name `nothing` is not defined")
def undefined(x: X):
    for i in tz.grid(n, step=8):
        x[i] = x[i] + nothing


@case(
    "tz.loop(k, step=8)",
    "a loop outside of a grid",
    "put it into `for … in tz.grid(…)`",
)
def loop_outside(x: M):
    for p in tz.loop(k, step=8):
        x[0, p] = 1.0


@case("x[0]", "a store outside of a grid", "put it into `for … in tz.grid(…)`")
def store_outside(x: X):
    x[0] = 1.0


@case("tz.grid(k, step=8)", "a grid inside of a loop", "grids are outermost; use tz.loop here")
def nested_grid(x: M):
    for i in tz.grid(m):
        for p in tz.grid(k, step=8):
            x[i, p] = 1.0


@case("tz.grid(n, step=n)", "tz.grid: step is a run-time value",
      "a step is a compile-time number: a tz.const or a literal")  # fmt: skip
def run_time_step(x: X):
    for i in tz.grid(n, step=n):
        x[i] = 1.0


@case("tz.loop(0, s, step=4)", "tz.loop: blocks of which dim? The bound is not a dim",
      "say it: of=dim")  # fmt: skip
def loop_of(x: X, s: tz.i32):
    for i in tz.grid(1):
        for j in tz.loop(0, s, step=4):
            x[j] = 1.0


@case("acc", "`acc` is f32[i] before the loop (line {}) and f32[i, p] after its body",
      KEEPS)  # fmt: skip
def carried_type(x: M, out: tz.gm[tz.f32, m]):
    for i in tz.grid(m, step=8):
        acc = tz.zeros(i)
        for p in tz.loop(k, step=8):
            acc = acc + x[i, p]
        out[i] = acc


@case("total", "`total` goes from one block of the grid to the next (line {})",
      "a grid's blocks run in any order: use tz.loop, or another name inside")  # fmt: skip
def carried_by_grid(x: X):
    total = 0.0
    for i in tz.grid(n, step=8):
        total = total + tz.sum(x[i], axis=i)


@case("t", "`t` exists only inside the loop over `p` (line {})",
      "bind it before the loop to carry it out, or use it inside")  # fmt: skip
def used_after(x: M, out: tz.gm[tz.f32, m]):
    for i in tz.grid(m, step=8):
        for p in tz.loop(k, step=8):
            t = tz.sum(x[i, p], axis=p)
        out[i] = t


@case("tz.index(other)", "dim `other` is in no tensor given to kernel `unknown_dim`",
      "its extent is known from: n")  # fmt: skip
def unknown_dim(x: X):
    for i in tz.grid(n, step=8):
        x[i] = tz.sum(tz.index(other).to(tz.f32), axis=other)


def halve(t: Any) -> Any:
    return t / 2


@case("halve(c[i])", "in `halve`: `/` needs floats, got i32", "use // or cast with .to(tz.f32)")
def inside_helper(c: tz.gm[tz.i32, n]):
    for i in tz.grid(n, step=8):
        c[i] = 1 + halve(c[i])


@case("halve(1, 2)", "in `halve`: halve() takes 1 positional argument but 2 were given")
def wrong_call(c: tz.gm[tz.f32, n]):
    for i in tz.grid(n, step=8):
        c[i] = halve(1, 2)


@case("x[i][0]", "a view of `x` is indexed twice", "give all entries at once: x[i, j]")
def indexed_twice(x: M):
    for i in tz.grid(m, step=8):
        x[i] = x[i][0]


@case(
    "tz.load(t)", "tz.load takes a tensor or a view of one, got tile f32[i]", "as in tz.load(x[i])"
)
def load_tile(x: X):
    for i in tz.grid(n, step=8):
        t = x[i] * 2
        x[i] = tz.load(t)


@case("x[i].shape", "'View' object has no attribute 'shape'")
def unknown_attribute(x: X):
    for i in tz.grid(n, step=8):
        x[i] = x[i].shape


@case("x[i].T", "a tile has no transpose: its axes have names",
      "`@` contracts the axes both sides share, whatever their order")  # fmt: skip
def transpose(x: X):
    for i in tz.grid(n, step=8):
        x[i] = x[i].T


@case("range(n)", "in `range`: dim `n` has no value at compile time",
      "a number that is needed then is a tz.const or a dim made with static=True")  # fmt: skip
def run_time_range(x: X):
    for i in tz.grid(n, step=8):
        for _ in range(n):
            x[i] = 0.0


@case("U", "type variable `U` is bound by no tensor given", "give a tensor of that type")
def unbound_type(x: X):
    for i in tz.grid(n, step=8):
        x[i] = x[i].to(U)


@case("tz.max(x[i], 1)", "axis=1 is not an axis", "give a dim or a block, e.g. axis=dim")
def number_axis(x: X):
    for i in tz.grid(n, step=8):
        x[i] = tz.max(x[i], 1)


@case("x[i] ** 7", "`** 7` is not offered", "use ** 2, 3, 4 or 0.5, or tz.exp2(n * tz.log2(x))")
def power(x: X):
    for i in tz.grid(n, step=8):
        x[i] = x[i] ** 7


@case("tz.quantize(x[i], tz.f16)", "tz.quantize to f16, a plain type", "cast with .to(tz.f16)")
def quantize_plain(x: X):
    for i in tz.grid(n, step=8):
        x[i] = tz.quantize(x[i], tz.f16)


@case("n % 2 == 1", TRUTH, CHOOSE)
def run_time_assert(x: X):
    assert n % 2 == 1


@pytest.mark.parametrize("index", range(len(CASES)), ids=[c[0].__name__ for c in CASES])
def test_case(index: int) -> None:
    fn, marked, what, remedy = CASES[index]
    error = failure(lambda: tz.kernel(fn))
    if "{}" in what:
        error.what = re.sub(r"\(line \d+\)", "(line {})", error.what)
    check(error, marked, what, remedy)


def test_signature() -> None:
    def bare(x: X, y):
        pass

    check(failure(lambda: tz.kernel(bare)), "y", "parameter `y` has no annotation",
          "annotate it with tz.gm[…], an element type or tz.const")  # fmt: skip

    def default(x: X = 3):
        pass

    check(failure(lambda: tz.kernel(default)), "x: X", "tensor `x` has default 3",
          "only None is possible")  # fmt: skip

    with pytest.raises(KernelError, match="dim `n` stands twice in one tensor"):
        tz.gm[tz.f32, n, n]
    with pytest.raises(KernelError, match="the first entry is the element type, got n"):
        tz.gm[n]
    with pytest.raises(KernelError, match="'a-b' is not a name for a dim"):
        tz.dims("a-b")


def test_no_source() -> None:
    space: dict[str, Any] = {"tz": tz, "X": X}
    exec("def typed(x: X): pass", space)
    with pytest.raises(KernelError) as e:
        tz.kernel(space["typed"])
    assert str(e.value) == (
        "the source of kernel `typed` cannot be read (defined in a REPL or by exec); "
        "put the kernel into a file"
    )


def test_outside_of_a_kernel() -> None:
    with pytest.raises(KernelError, match="tile operations work only inside a kernel"):
        tz.zeros(n)


def test_requests() -> None:
    def scale(x: tz.gm[T, n], out: tz.gm[T, n], by: tz.const, BLOCK: tz.const = 8):
        for i in tz.grid(n, step=BLOCK):
            out[i] = x[i] * by

    kernel = tz.kernel(scale)
    for request, text in (
        ({}, "kernel `scale`: constant `by` is missing"),
        ({"consts": {"by": 2}}, "kernel `scale`: type `T` of `x` is not given"),
        ({"consts": {"by": 2}, "dtypes": {"T": tz.i32}},
         "argument `x` of `scale`: expected one of f32, f16, got i32"),
        ({"consts": {"bi": 2}}, "kernel `scale` has no parameter `bi`; it has: x, out, by, BLOCK"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError) as e:
            kernel.specialise(**request)
        assert str(e.value) == text


def test_whole_text() -> None:
    error = failure(lambda: tz.kernel(CASES[0][0]))
    line = 1 + Path(__file__).read_text().splitlines().index(
        "        out[i] = tz.exp(a[i] + h[i]) * 2"
    )
    assert str(error) == (
        f"{__file__}:{line}:25: `+`: f32 and f16 do not mix; cast one of them with .to(…)\n"
        "    out[i] = tz.exp(a[i] + h[i]) * 2\n"
        "                    ^^^^^^^^^^^"
    )
