"""Running a kernel of the language on this CPU: bind the arguments, compile (or load), launch.

`lang.Kernel.__call__`, `.explain`, `.reference` and `.profile` end here. A recording uses `table`
to note a launch down instead of running it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.errors import ArgumentError, OptionError
from terrazzo.ir.packed import Packed
from terrazzo.lang.bind import Binding, bind
from terrazzo.lang.kernel import Kernel
from terrazzo.runtime import recall, strict
from terrazzo.runtime import threads as thread_count
from terrazzo.targets.cpu import layouts, pool
from terrazzo.targets.cpu.compile import Compiled, Stages, compiled, stages
from terrazzo.targets.cpu.frame import FIRST_SLOT
from terrazzo.targets.cpu.isa import Isa, detect

TARGETS = ("cpu", "ascend")
REMEMBERED = 32  # kinds of call a kernel and thread
# Bytes of scratch a thread may take. Far more than the cache that a core has to itself: tiles
# beyond it gain nothing over smaller ones, and every thread takes as much.
SCRATCH_LIMIT = 64 << 20
SMALL = 128 << 10  # bytes; waking the other threads would cost more than they save
_state = threading.local()
_launches: weakref.WeakKeyDictionary[Kernel, dict[Any, Launch]] = weakref.WeakKeyDictionary()
_repacked: weakref.WeakKeyDictionary[Packed, Packed] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Launch:
    """A bound, compiled kernel: everything a launch table needs. `dims`: slots of each named
    dim."""

    code: Compiled
    table: np.ndarray
    dims: Mapping[str, tuple[int, ...]]
    places: recall.Places
    keep: tuple[object, ...]

    @property
    def scratch(self) -> int:
        return self.code.scratch(self.table)

    def copy(self, *keep: object) -> Launch:
        """The same with a table of its own, holding on to `keep` only (and the code)."""
        return Launch(self.code, self.table.copy(), self.dims, self.places, keep)


def weights(x: Packed) -> Packed:
    """A packed matrix in the layout of this CPU's micro-kernels (itself, if it is in it already).
    The repacked copy lives as long as `x`, whose bytes must not change."""
    if x.format.layout == layouts.LAYOUT or x.format.name == "a8":
        return x
    known = _repacked.get(x)
    if known is not None:
        return known
    n, k = x.shape
    size = layouts.panel_bytes(x.format, k)
    data = layouts.repack(x.format, np.ascontiguousarray(x.data).reshape(-1), n, k)
    packed = Packed(layouts.packed(x.format), x.shape, data.reshape(-1, size))
    _repacked[x] = packed
    return packed


def _array(x: Any) -> Any:
    """NumPy's view of an argument: arrays and packed tensors as they are, DLPack tensors without a
    copy."""
    if isinstance(x, Packed):
        return weights(x)
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return x
    return np.from_dlpack(x)


def prepare(
    kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], isa: Isa | None = None
) -> Launch:
    """Bind and compile, or recall a launch of equal kinds. Raises ArgumentError, KernelError; of
    the latter, CapacityError if its tiles take more than SCRATCH_LIMIT a thread."""
    asked = recall.request(kernel, args, kwargs)
    mode = strict.enabled()
    if asked is not None and isa is None:
        known = _launches.setdefault(kernel, {}).get((mode, asked.key))
        if known is not None:
            again = known.copy(*recall.memory(asked.given))
            if recall.fill(again, asked.given):
                return again
    launch = _prepare(kernel, args, kwargs, isa)
    if asked is not None and isa is None:
        _launches[kernel][mode, asked.key] = launch.copy()
    return launch


def _prepare(
    kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], isa: Isa | None
) -> Launch:
    tensors = {p.name for p in kernel.params if p.kind == "tensor"}
    args = [_array(a) for a in args]
    kwargs = {n: _array(a) if n in tensors else a for n, a in kwargs.items()}
    b = bind(kernel, args, kwargs)
    isa = isa or detect()
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics, isa.target)
    _check_memory(kernel, b, ir.stored())
    code = compiled(ir, isa, strict.enabled())
    launch = table(code, b)
    if launch.scratch > SCRATCH_LIMIT:
        from terrazzo.runtime import capacity

        raise capacity.shortage(kernel, b, launch.scratch, SCRATCH_LIMIT)
    return launch


def table(code: Compiled, b: Binding) -> Launch:
    """The launch table of compiled code for these arguments."""
    out = np.zeros(code.table_length, np.int64)
    dims: dict[str, list[int]] = {}
    flat = {
        n: t.array.data if isinstance(t.array, Packed) else t.array for n, t in b.tensors.items()
    }
    for n, s in enumerate(code.slots, FIRST_SLOT):
        if s.kind == "dim":
            out[n] = b.dims[s.name]
            dims.setdefault(s.name, []).append(n)
        elif s.kind == "scalar":
            out[n] = recall.bits(code.kernel.param(s.name).dtype, b.scalars[s.name])
        else:
            t, data = b.tensors[s.name], flat[s.name]
            if s.kind == "ptr":
                out[n] = data.ctypes.data
            else:
                out[n] = t.strides[s.axis] if t.strides is not None else data.strides[s.axis]
    named = {d: tuple(at) for d, at in dims.items()}
    return Launch(code, out, named, recall.places(code, flat), (code.module, *flat.values()))


def _check_memory(kernel: Kernel, b: Binding, stored: tuple[str, ...]) -> None:
    """Outputs must be writable, and may share memory with another tensor only where the kernel says
    so."""
    declared = {frozenset(pair) for pair in kernel.aliases}
    flat = {
        n: t.array.data if isinstance(t.array, Packed) else t.array for n, t in b.tensors.items()
    }
    for name in stored:
        if not flat[name].flags.writeable:
            raise ArgumentError(
                f"argument `{name}` of `{kernel.name}`: it is written, got a read-only array"
            )
        for other, x in flat.items():
            if (
                other != name
                and frozenset((name, other)) not in declared
                and overlap(flat[name], x)
            ):
                raise ArgumentError(
                    f"arguments `{name}` and `{other}` of `{kernel.name}` share memory",
                    "the kernel declares no such alias: pass a copy",
                )


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays share an element; too intricate a pair of views counts as sharing."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # pyright: ignore[reportArgumentType]
    except np.exceptions.TooHardError:
        return True


class Ready:
    """A launch with its program and scratch, reusable for arguments of equal kinds and shapes."""

    def __init__(self, launch: Launch, threads: int) -> None:
        self.launch, self.threads = launch, threads
        self.given: Mapping[str, Any] = {}  # keeps the arguments alive while they may be in use
        self.control = np.zeros(8, np.int64)
        each = -(-launch.scratch // 4096) * 4096 + 128
        self.scratch = pool.private_memory(each * threads)
        t = launch.table
        t[:4] = self.scratch.ctypes.data, each, self.control.ctypes.data, 0
        entries = [(phase, t.ctypes.data) for phase in launch.code.phases]
        self.program = pool.Program(entries, self.control, may_shrink=True)

    def run(self) -> None:
        """Raises KernelFault: then outputs are unfinished."""
        if pool.shared().run(self.program, self.threads) & 3 == pool.FAULT:
            self._report()

    def _report(self) -> None:
        from terrazzo.runtime.faults import explain

        fault, detail = int(self.control.view(np.int32)[1]), int(self.control[1])
        self.control[:2] = 0
        raise explain(self.launch.code, self.launch.table, fault, detail)


def call(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Run it. Outputs are written in place. Small work stays on the calling thread.

    With a tensor on an NPU, or `target="ascend"` among `kwargs`, it runs there: see
    `runtime.ascend.call`. Calls whose arguments are of kinds this thread has seen only fill in
    pointers and scalars.
    """
    if not hasattr(_state, "ready"):
        _state.ready = weakref.WeakKeyDictionary()
    seen: dict[Any, Ready] = _state.ready.setdefault(kernel, {})
    asked = recall.request(kernel, args, kwargs)
    if asked is None:
        target, kwargs = _target(kernel, args, kwargs)
        if target == "ascend":
            from terrazzo.runtime import ascend

            return ascend.call(kernel, args, kwargs)
        asked = recall.request(kernel, args, kwargs)
    key = (strict.enabled(), asked.key) if asked is not None else None
    ready = seen.get(key)
    if asked is None or ready is None or not recall.fill(ready.launch, asked.given):
        launch = prepare(kernel, args, kwargs)
        ready = Ready(launch.copy() if asked is not None else launch, threads_for(launch))
        if asked is not None:
            if len(seen) >= REMEMBERED:
                seen.pop(next(iter(seen)))
            seen[key] = ready
    if asked is not None:
        ready.given = asked.given
    ready.run()


def _target(
    kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Where a call is to run, and its arguments without `target` (unless the kernel has one)."""
    from terrazzo.targets.ascend.tensors import on_device

    chosen = ""
    if "target" in kwargs and all(p.name != "target" for p in kernel.params):
        kwargs = dict(kwargs)
        chosen = kwargs.pop("target")
        if chosen not in TARGETS:
            raise OptionError(f"there is no target {chosen!r}", f"choose from {', '.join(TARGETS)}")
    if not any(on_device(x) for x in (*args, *kwargs.values())):
        return chosen or "cpu", kwargs
    if chosen == "cpu":
        raise ArgumentError(
            f"kernel `{kernel.name}` is to run on the CPU, and a tensor is on an NPU",
            "copy the tensor to the host, or leave target= away",
        )
    return "ascend", kwargs


def threads_for(launch: Launch) -> int:
    moved = sum(x.nbytes for x in launch.keep if isinstance(x, np.ndarray))
    return 1 if moved < SMALL else thread_count.default_threads()


def run(launch: Launch, threads: int) -> None:
    """Run a prepared launch once."""
    Ready(launch, threads).run()


def explain(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Stages:
    """IR after each pass, the nest IR (with the memory plan) and LLVM IR, for these arguments."""
    return stages(prepare(kernel, args, kwargs).code.kernel)


def reference(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Run on the reference target."""
    from terrazzo.targets import reference as reference_target

    b = bind(kernel, args, kwargs)
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics)
    reference_target.run(ir, {n: t.array for n, t in b.tensors.items()}, b.scalars)


def profile(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], *how: Any) -> Any:
    """The report of a simulated launch on a DaVinci chip."""
    from terrazzo.runtime import davinci

    return davinci.profile(kernel, args, kwargs, *how)
