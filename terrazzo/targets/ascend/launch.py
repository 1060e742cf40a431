"""Launching what the vendor's compiler made of a kernel: load, pack arguments, launch.

None of this has run on an NPU yet; it is tested against a stand-in for PyACL (docs/ascend.md).
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from terrazzo.errors import ArgumentError, TerrazzoError
from terrazzo.targets.ascend import pyacl
from terrazzo.targets.ascend.arguments import (
    GRID,
    LOCK,
    SYNC,
    WORKSPACE,
    Convention,
    Kind,
    Parameter,
    layout,
    pack,
)
from terrazzo.targets.ascend.device import Device
from terrazzo.targets.ascend.tensors import DeviceTensor, dense, from_dlpack, on_device

_log = logging.getLogger("terrazzo.ascend")
UNPROVEN = (
    "kernels that use cube and vector cores together have not been launched on an NPU yet:"
    " docs/ascend.md, “Mixed kernels”, says what to try"
)


@dataclass(frozen=True)
class Binary:
    """A compiled kernel: `code` is the object file that hivmc writes, `name` the kernel's in it
    (of a mixed kernel without `_mix_aic` and `_mix_aiv`).

    `blocks`: on how many cores it runs, vector cores of an "aiv" kernel, else cube cores.
    `workspace`: bytes of device memory a block. `locks`: how many 64-bit locks, each `lock_start`
    at first. `sync`: whether the address for signals between cores is among our arguments
    ("argument"), or the runtime puts it in front of them ("runtime"), as it does on its own where
    the object's metadata says that it is a mixed kernel of the older kind.
    """

    code: bytes
    name: str
    kind: Kind
    parameters: tuple[Parameter, ...]
    blocks: int
    workspace: int = 0
    locks: int = 0
    lock_start: int = 0
    convention: Convention = "written"
    sync: Literal["argument", "runtime"] = "argument"


class Loaded:
    """A binary on a device. Raises ArgumentError if the device has too few cores for it."""

    def __init__(self, device: Device, binary: Binary) -> None:
        self.device, self.binary = device, binary
        self.fields, self.size = layout(
            binary.convention,
            binary.kind,
            binary.parameters,
            workspace=binary.workspace > 0,
            sync=binary.sync == "argument",
        )
        self._remedy = UNPROVEN if binary.kind == "mix" else ""
        self._private: dict[int, dict[str, int]] = {}  # stream -> workspace and locks
        cores = "vector" if binary.kind == "aiv" else "cube"
        if binary.blocks > device.cores[cores]:
            raise ArgumentError(
                f"kernel `{binary.name}` is made for {binary.blocks} {cores} cores, this"
                f" {device.soc} has {device.cores[cores]}",
                f"compile it for {device.chip.name} and so many cores",
            )
        device.use()
        rt, code = device.acl.rt, ctypes.create_string_buffer(binary.code, len(binary.code))
        options = []
        if binary.kind in pyacl.MAGIC:
            options = [{"type": pyacl.LOAD_MAGIC, "value": pyacl.MAGIC[binary.kind]}]
        self._handle = device.call(
            "binary_load_from_data",
            rt.binary_load_from_data(ctypes.addressof(code), len(binary.code), options),
            f"kernel `{binary.name}` ({binary.kind}, {len(binary.code):,} bytes)",
            self._remedy,
        )
        device.own("binary_unload", self._handle, rt.binary_unload)
        try:
            self._function = device.call(
                "binary_get_function",
                rt.binary_get_function(self._handle, binary.name),
                f"kernel `{binary.name}`",
                self._remedy,
            )
        except BaseException:
            with suppress(TerrazzoError):  # the first error is the one to tell
                self.close()
            raise
        if binary.kind == "mix":
            _log.warning("kernel `%s`: %s", binary.name, UNPROVEN)

    def close(self) -> None:
        """Give back code, workspaces and locks. Nothing of it may still run."""
        for memory in self._private.values():
            for address in memory.values():
                self.device.free(address)
        self._private.clear()
        self.device.release("binary_unload", self._handle)

    # -- a launch -------------------------------------------------------------------------------
    def __call__(self, *args: Any, stream: int | None = None) -> None:
        """Run it on arguments in the kernel's order.

        Tensors are NumPy arrays, which are copied there and, where the kernel writes them, back; or
        device tensors, our own or any that speaks DLPack, which are used as they are. With device
        tensors only, this returns when the kernel is launched: `device.synchronize(stream)` waits
        for it. What made them must be done, or on `stream` too. Raises ArgumentError for a tensor
        that is not what the binary was made for.
        """
        device, parameters = self.device, self.binary.parameters
        if len(args) != len(parameters):
            raise ArgumentError(
                f"kernel `{self.binary.name}` takes {len(parameters)} arguments, got {len(args)}",
                f"they are: {', '.join(p.name for p in parameters)}",
            )
        views = [
            a if p.shape is None else self._tensor(p, a)
            for p, a in zip(parameters, args, strict=True)
        ]
        with device.scratch() as take:
            values: dict[str, int | float] = {}
            there: dict[tuple[int, int], int] = {}  # host memory -> its copy: aliases stay aliases
            back: list[tuple[np.ndarray, np.ndarray, int]] = []
            for p, x in zip(parameters, views, strict=True):
                if isinstance(x, DeviceTensor):
                    values[p.name] = x.address
                elif not isinstance(x, np.ndarray):
                    values[p.name] = x
                else:
                    host = np.ascontiguousarray(x)
                    place = host.ctypes.data, host.nbytes
                    if place not in there:
                        there[place] = take(host.nbytes)
                        device.upload(there[place], host)
                    values[p.name] = there[place]
                    if p.written:
                        back.append((x, host, there[place]))
            self.launch(values, stream)
            if there:
                device.synchronize(stream, f"kernel `{self.binary.name}`", self._remedy)
            for x, host, address in back:
                device.download(host, address)
                if host is not x:
                    x[...] = host

    def _tensor(self, p: Parameter, x: Any) -> np.ndarray | DeviceTensor:
        """`x` as a tensor that fits parameter `p`."""
        if not isinstance(x, (np.ndarray, DeviceTensor)):
            if not hasattr(x, "__dlpack__"):
                raise self._misfit(p, f"a {type(x).__name__}")
            x = from_dlpack(x) if on_device(x) else np.from_dlpack(x)
        if x.shape != p.shape or x.dtype != p.dtype.numpy:
            raise self._misfit(p, f"{x.dtype} {list(x.shape)}")
        if isinstance(x, DeviceTensor):
            if x.device != self.device.index:
                raise self._misfit(p, f"a tensor on NPU {x.device}, not {self.device.index}")
            want = dense(x.shape, x.dtype.itemsize)
            if any(s != w for n, s, w in zip(x.shape, x.strides, want, strict=True) if n > 1):
                raise self._misfit(p, f"one that is not dense (strides {list(x.strides)} bytes)")
        elif p.written and not x.flags.writeable:
            raise self._misfit(p, "a read-only array, and it is written")
        return x

    def _misfit(self, p: Parameter, got: str) -> ArgumentError:
        return ArgumentError(
            f"argument `{p.name}` of `{self.binary.name}`: compiled for {p.dtype} "
            f"{list(p.shape or ())}, got {got}"
        )

    def launch(self, values: Mapping[str, int | float], stream: int | None = None) -> None:
        """Launch on addresses and numbers, by parameter name, and return at once."""
        device, binary = self.device, self.binary
        device.use()
        rt, stream = device.acl.rt, device.stream if stream is None else stream
        data = pack(self.fields, self.size, {**self._own(stream), **values})
        what = f"kernel `{binary.name}`"
        # One piece: the runtime aligns each piece to 8 bytes, so that several would lie elsewhere.
        host = ctypes.create_string_buffer(data, max(len(data), 8))
        args = device.call("kernel_args_init", rt.kernel_args_init(self._function), what)
        appended = rt.kernel_args_append(args, ctypes.addressof(host), len(host))
        device.call("kernel_args_append", appended, f"{what}, {len(host)} bytes")
        device.check("kernel_args_finalize", rt.kernel_args_finalize(args), what)
        code = rt.launch_kernel_with_config(self._function, binary.blocks, stream, [], args, 0)
        name = "launch_kernel_with_config"
        device.check(name, code, f"{what} on {binary.blocks} cores", self._remedy)

    def _own(self, stream: int) -> dict[str, int | float]:
        """What the launcher fills in. Workspace and locks belong to a stream, as launches on
        different ones may run at the same time."""
        device, binary, taken = self.device, self.binary, {f.name for f in self.fields}
        memory = self._private.setdefault(stream, {})
        if binary.workspace and WORKSPACE not in memory:
            memory[WORKSPACE] = device.allocate(binary.workspace * binary.blocks)
        if binary.locks:
            if LOCK in memory:
                device.synchronize(stream)  # the launch before may still hold them
            else:
                memory[LOCK] = device.allocate(8 * binary.locks)
            device.upload(memory[LOCK], np.full(binary.locks, binary.lock_start, np.int64))
        out: dict[str, int | float] = {WORKSPACE: 0, LOCK: 0, **memory}
        if SYNC in taken:
            out[SYNC] = device.sync_address()
        return out | dict(zip(GRID, (binary.blocks, 1, 1), strict=True))
