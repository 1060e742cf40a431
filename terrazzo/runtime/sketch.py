"""A recording that is only planned: where its buffers would lie and what scratch its threads would
need. No memory is touched and no machine code is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from terrazzo.ir.lifetimes import Plan
from terrazzo.ir.packed import Packed
from terrazzo.lang.bind import bind
from terrazzo.lang.kernel import Kernel
from terrazzo.runtime.recorder import Recorder
from terrazzo.runtime.recording import scratch_stride
from terrazzo.targets.cpu.capacity import holdings
from terrazzo.targets.cpu.isa import detect


class Sketch(Recorder):
    """Takes calls as a Recorder does. Arguments that are not its own buffers stand for their shapes
    alone. Then `place()` and `scratch()` say in bytes what `Recorder.finish` would ask for."""

    def __init__(self, name: str, threads: int) -> None:
        super().__init__(name, threads)
        self.launches = 0
        self._scratch: dict[Any, int] = {}  # of each kind of call, bytes a thread

    def add(self, kernel: Kernel, vary: Mapping[str, str], **args: Any) -> None:
        for x in args.values():
            data = x.data if isinstance(x, Packed) else x
            buffer = self._owner(data.ctypes.data) if isinstance(data, np.ndarray) else None
            if buffer is not None:
                buffer.uses.append((self.launches, 0))
        self.launches += 1
        kind = (kernel, tuple((n, _kind(x)) for n, x in args.items()))
        if kind not in self._scratch:
            self._scratch[kind] = _scratch(kernel, args)

    def place(self) -> Plan:
        """Of the arena."""
        self.plan = self._place(self._used())
        return self.plan

    def scratch(self) -> int:
        """Of all threads."""
        return scratch_stride(max(self._scratch.values(), default=0)) * self.threads


def _kind(x: Any) -> Any:
    if isinstance(x, Packed):
        return x.format, x.shape
    return (x.dtype, x.shape) if isinstance(x, np.ndarray) else x


def _scratch(kernel: Kernel, args: Mapping[str, Any]) -> int:
    b = bind(kernel, (), args)
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics, detect().target)
    return sum(held.bytes for held in holdings(ir, b.dims))
