"""The frame of a generated function: arguments from the launch table, axis positions, scratch
addresses.

Launch table (i64 slots): 0 scratch base, 1 scratch bytes a thread, 2 control block, 3 work counter;
from 8 the kernel's own, in the order of `slots(kernel)`. Strides are in elements (bytes for packed
formats).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from terrazzo.ir.ops import Kernel
from terrazzo.ir.types import DType, Format, Value
from terrazzo.targets.cpu.builder import Function, W
from terrazzo.targets.cpu.scratch import Layout

if TYPE_CHECKING:  # a start from cached code needs this file, and not the nest IR
    from terrazzo.targets.cpu.nest import Buf, Program

FIRST_SLOT = 8


@dataclass(frozen=True)
class Slot:
    """kind ptr | stride | dim | scalar; `axis` is the dimension's number for strides."""

    kind: str
    name: str
    axis: int = 0


def slots(kernel: Kernel) -> tuple[Slot, ...]:
    out: list[Slot] = []
    dims: dict[str, None] = {}
    for p in kernel.params:
        if p.tensor:
            out.append(Slot("ptr", p.name))
            out += [Slot("stride", p.name, n) for n in range(len(p.dims) - 1)]
            dims.update(dict.fromkeys(p.dims))
        else:
            out.append(Slot("scalar", p.name))
    static = dict(kernel.statics)
    out += [Slot("dim", d) for d in dims if d not in static]
    return tuple(out)


def phase_name(kernel: Kernel, n: int) -> str:
    """Symbol of the kernel's phase n."""
    return f"{kernel.name}_{n}"


class Frame(Layout):
    """State shared by everything that emits into one function."""

    def __init__(self, program: Program, f: Function) -> None:
        super().__init__(program.kernel, f)
        self.program, self.f = program, f
        self.slot = {s: FIRST_SLOT + n for n, s in enumerate(slots(self.kernel))}
        self.args: dict[Slot, str] = {}
        self.position: dict[str, str] = {}  # row axis -> i64 position within its block
        self.starts: dict[str, str] = {}  # block axis -> i64 start
        self.extents: dict[str, str] = {}  # block axis -> i64 extent
        self.follows: dict[str, tuple[str, str]] = {}  # loop axis -> (next trip's start, end), i64
        self.scopes: list[dict[object, Any]] = [{}]
        self.addresses: dict[str, str] = {}

    # -- launch table ---------------------------------------------------------------------------
    def read_table(self) -> None:
        f = self.f
        for s, n in self.slot.items():
            p = f.gep("%table", n, "i64")
            if s.kind == "ptr":
                self.args[s] = f.load("ptr", p, 8)
            elif s.kind == "scalar":
                dtype = self.kernel.param(s.name).dtype
                x = f.load(element_type(dtype), p, 8)
                self.args[s] = f.op(f"icmp ne i8 {x}, 0") if dtype == _BOOL else x
            else:
                self.args[s] = f.load("i64", p, 8)

    def pointer(self, name: str) -> str:
        return self.args[Slot("ptr", name)]

    def stride(self, name: str, axis: int) -> str:
        """Elements (bytes for packed formats) between neighbours along dimension `axis`."""
        last = len(self.kernel.param(name).dims) - 1
        return "1" if axis == last else self.args[Slot("stride", name, axis)]

    def dim(self, name: str) -> str:
        return str(self.static[name]) if name in self.static else self.args[Slot("dim", name)]

    # -- axes -----------------------------------------------------------------------------------
    def start(self, axis: str) -> str:
        return self.starts.get(axis, "0")

    def extent(self, axis: str) -> str:
        return self.extents[axis] if axis in self.extents else self.dim(self.kernel.axis(axis).dim)

    # -- memo, scoped by loops --------------------------------------------------------------------
    def get(self, key: object) -> Any:
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def keep(self, key: object, value: Any) -> Any:
        self.scopes[-1][key] = value
        return value

    def loop(self, start: str | int, end: str | int, body: Callable[[str], None]) -> None:
        """A counted loop with a memo scope of its own."""

        self.f.loop(start, end, 1, [], lambda iv, _: self.scoped(lambda: body(iv)))

    def scoped(self, body: Callable[[], None]) -> None:
        """Run `body` with a memo scope of its own."""
        self.scopes.append({})
        body()
        self.scopes.pop()

    # -- scratch --------------------------------------------------------------------------------
    def lay_out(self) -> str:
        """Emit the offsets of all buffers; returns the total in bytes."""
        total = "0"
        for b in self.program.bufs:
            self.addresses[b.name] = total
            total = self.f.add(total, self.bytes(b))
        return total

    def bind_scratch(self) -> None:
        f = self.f
        base = f.load("i64", f.gep("%table", 0, "i64"), 8)
        each = f.load("i64", f.gep("%table", 1, "i64"), 8)
        mine = f.op(f"inttoptr i64 {f.add(base, f.mul(each, f.wide('%tid')))} to ptr")
        self.lay_out()
        self.addresses = {n: f.gep(mine, off) for n, off in self.addresses.items()}

    def row_of(self, b: Buf) -> str:
        """Pointer to position 0 of the buffer's last axis at the current row."""
        f = self.f
        base = self.addresses[b.name]
        if b.kind == "row" or len(b.axes) <= 1:
            return base
        key = ("row", b.name, *(self.position.get(a, "0") for a in b.axes[:-1]))
        got = self.get(key)
        if got is not None:
            return got
        index = "0"
        for a in b.axes[:-1]:
            index = f.add(
                f.mul(index, self.extent(a)) if index != "0" else "0", self.position.get(a, "0")
            )
        unit = "i8" if b.kind == "a8" else "float"
        return self.keep(key, f.gep(base, f.mul(index, self.pitch(b)), unit))

    def element_of(self, b: Buf) -> str:
        """Pointer to the element at the current rows (all of the buffer's axes are rows)."""
        if not b.axes:
            return self.addresses[b.name]
        return self.f.gep(self.row_of(b), self.position.get(b.axes[-1], "0"), "float")


def element_type(dtype: object) -> str:
    """LLVM type of an element in memory (bf16 as its bits)."""
    if isinstance(dtype, Format):
        return "i8"
    if not isinstance(dtype, DType):
        raise TypeError(dtype)
    return {
        "f32": "float",
        "f16": "half",
        "bf16": "i16",
        "i8": "i8",
        "u8": "i8",
        "i32": "i32",
        "u32": "i32",
        "bool": "i8",
    }[dtype.name]


def register_type(v: Value, vector: bool) -> str:
    """LLVM type of a value in flight (bool as i1)."""
    t = "i1" if v.dtype == _BOOL else element_type(v.dtype)
    return f"<{W} x {t}>" if vector else t


_BOOL = DType("bool", 8, "bool")
