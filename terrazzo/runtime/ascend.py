"""Running a kernel of the language on an Ascend NPU: bind the arguments, compile, load, launch.

The vendor's code is made for the extents and the cores of one launch; it is kept for calls of the
same kind in this process. None of this has run on an NPU yet (docs/ascend.md).
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from terrazzo.errors import ArgumentError
from terrazzo.lang.bind import Binding, bind
from terrazzo.lang.kernel import Kernel
from terrazzo.runtime import davinci, launch
from terrazzo.targets.ascend.binary import binaries
from terrazzo.targets.ascend.compile import compile
from terrazzo.targets.ascend.device import Device, opened
from terrazzo.targets.ascend.launch import Binary, Loaded
from terrazzo.targets.ascend.tensors import DeviceTensor, dense, from_dlpack, on_device
from terrazzo.targets.davinci.lowering.lower import Options

REMEMBERED = 64  # kinds of call, of all kernels and NPUs: what is loaded takes memory there
_lock = threading.RLock()
_made: weakref.WeakKeyDictionary[Kernel, dict[Hashable, tuple[Binary, ...]]] = (
    weakref.WeakKeyDictionary()
)
_ready: dict[Hashable, Ready] = {}


def call(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Run it on the NPU that its tensors are on, or on NPU 0. Outputs are written in place.

    NumPy arrays (and host tensors by DLPack) are copied there and back. With tensors on the NPU
    only, this returns when the kernel is launched: on torch's current stream if one of them is
    torch's, else on the device's own, for which `Device.synchronize` waits. Raises ArgumentError,
    KernelError, DeviceUnavailable, DeviceError.
    """
    stream = _torch_stream([*args, *kwargs.values()])
    tensors = {p.name for p in kernel.params if p.kind == "tensor"}
    args = [_tensor(a) for a in args]
    kwargs = {n: _tensor(a) if n in tensors else a for n, a in kwargs.items()}
    b = bind(kernel, args, kwargs)
    given = {n: t.array for n, t in b.tensors.items()}
    npu = next((x.device for x in given.values() if isinstance(x, DeviceTensor)), 0)
    with _lock:
        ready = _prepared(kernel, args, kwargs, b, opened(npu))
    _check_memory(kernel, given, ready.written)
    ready(given | b.scalars, stream)


def _tensor(x: Any) -> Any:
    if isinstance(x, (np.ndarray, DeviceTensor)) or not hasattr(x, "__dlpack__"):
        return x
    return from_dlpack(x) if on_device(x) else np.from_dlpack(x)


def _torch_stream(values: Sequence[Any]) -> int | None:
    """The stream that torch's work on the NPU is on, if one of the values is torch's tensor there.
    Its tensors are then ready when the kernel starts, and what torch does next waits for it."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "npu"):
        return None
    if any(isinstance(x, torch.Tensor) and on_device(x) for x in values):
        return int(torch.npu.current_stream().npu_stream)
    return None


def _prepared(
    kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], b: Binding, device: Device
) -> Ready:
    """What is loaded for calls of this kind; compiles, loads and forgets the oldest as needed."""
    kind = (
        tuple(sorted((n, str(t)) for n, t in b.dtypes.items())), tuple(sorted(b.dims.items())),
        tuple(b.consts.items()), frozenset(b.present), device.chip, *device.cores.items(),
    )  # fmt: skip
    key = device, kernel, kind
    for old in [k for k, r in _ready.items() if r.device.closed]:
        del _ready[old]
    if key in _ready:
        return _ready[key]
    made = _made.setdefault(kernel, {})
    if kind not in made:
        made[kind] = _compiled(kernel, args, kwargs, device)
    while len(_ready) >= REMEMBERED:
        _ready.pop(next(iter(_ready))).close()
    _ready[key] = Ready(device, made[kind])
    return _ready[key]


def _compiled(
    kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any], device: Device
) -> tuple[Binary, ...]:
    """Made for as many cores as the runtime says this NPU has."""
    chip = replace(device.chip, cube_cores=device.cores["cube"])
    vectors = min(device.cores["vector"], chip.vector_cores)
    low = davinci.lowered(kernel, args, kwargs, chip, Options(vector_cores=vectors))
    return binaries(compile(low.program, chip), low.ir.stored())


def _check_memory(kernel: Kernel, given: Mapping[str, Any], written: frozenset[str]) -> None:
    """Outputs share memory with another tensor only where the kernel says so."""
    declared = {frozenset(pair) for pair in kernel.aliases}
    for a, b in combinations(given, 2):
        if written & {a, b} and {a, b} not in declared and _overlap(given[a], given[b]):
            raise ArgumentError(
                f"arguments `{a}` and `{b}` of `{kernel.name}` share memory",
                "the kernel declares no such alias: pass a copy",
            )


def _overlap(x: Any, y: Any) -> bool:
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return launch.overlap(x, y)
    if not (isinstance(x, DeviceTensor) and isinstance(y, DeviceTensor)) or x.device != y.device:
        return False
    return x.address < y.address + _span(y) and y.address < x.address + _span(x)


def _span(x: DeviceTensor) -> int:
    """Bytes, of a dense tensor."""
    return int(np.prod(x.shape)) * x.dtype.itemsize


class Ready:
    """A kernel's phases, loaded on a device. Workspaces belong to a stream, as launches on
    different ones may run at the same time."""

    def __init__(self, device: Device, phases: Sequence[Binary]) -> None:
        self.device = device
        self.loaded = [Loaded(device, p) for p in phases]
        self.workspaces: dict[int, dict[str, DeviceTensor]] = {}

    def __call__(self, values: Mapping[str, Any], stream: int | None) -> None:
        """Launch on tensors and numbers by parameter name."""
        at = self.device.stream if stream is None else stream
        if at not in self.workspaces:
            self.workspaces[at] = self._allocate(values)
        known = {**values, **self.workspaces[at]}
        for phase in self.loaded:
            phase(*(known[p.name] for p in phase.binary.parameters), stream=at)

    @property
    def written(self) -> frozenset[str]:
        return frozenset(p.name for x in self.loaded for p in x.binary.parameters if p.written)

    def _allocate(self, values: Mapping[str, Any]) -> dict[str, DeviceTensor]:
        out = {}
        for p in (p for x in self.loaded for p in x.binary.parameters):
            if p.shape is not None and p.name not in values and p.name not in out:
                dtype = p.dtype.numpy
                size = int(np.prod(p.shape)) * dtype.itemsize
                out[p.name] = DeviceTensor(
                    self.device.allocate(size), dtype, p.shape, dense(p.shape, dtype.itemsize),
                    self.device.index,
                )  # fmt: skip
        return out

    def close(self) -> None:
        """Waits for what may still run, and gives its memory back."""
        for stream, tensors in self.workspaces.items():
            self.device.synchronize(stream)
            for x in tensors.values():
                self.device.free(x.address)
        for phase in self.loaded:
            phase.close()
