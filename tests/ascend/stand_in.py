"""A stand-in for PyACL: records every call, keeps "device memory" in the process, fails on demand.

What it takes and gives back follows CANN's published signatures; numbers are written out here and
not taken from the code under test.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Call = tuple[Any, ...]
SYNC_ADDRESS = 0x7F00_1234_5000
NEEDS = {  # what must have happened before: call -> an earlier one
    "set_device": "init", "create_stream": "set_device", "malloc": "set_device",
    "binary_load_from_data": "set_device", "kernel_args_append": "kernel_args_init",
    "kernel_args_finalize": "kernel_args_append",
    "launch_kernel_with_config": "kernel_args_finalize",
}  # fmt: skip


class Driver:
    """`acl` and `acl.rt` in one: every name that is not a call of its own is recorded and gives 0.

    `fail`: name -> code. `kernel`: called at a launch with (this, packed arguments).
    """

    def __init__(self, soc: str = "Ascend910B2", cube: int = 24, vector: int = 48, count: int = 8):
        self.soc, self.count, self.cores = soc, count, {102: cube, 201: vector}
        self.calls: list[Call] = []
        self.fail: dict[str, int] = {}
        self.message = "EE9999: an inner error\n   of the stand-in"
        self.memory: dict[int, np.ndarray] = {}
        self.code: list[bytes] = []
        self.packed: list[bytes] = []
        self.kernel: Callable[[Driver, bytes], None] | None = None
        self.live: set[tuple[str, int]] = set()
        self._handle = 0x1000
        self.rt = self

    # -- recording ------------------------------------------------------------------------------
    def note(self, name: str, *args: Any) -> int:
        if name in NEEDS:
            assert any(c[0] == NEEDS[name] for c in self.calls), f"{name} before {NEEDS[name]}"
        self.calls.append((name, *args))
        return self.fail.get(name, 0)

    def made(self, kind: str, code: int) -> tuple[int, int]:
        if code:
            return 0, code
        self._handle += 0x10
        self.live.add((kind, self._handle))
        return self._handle, 0

    def gone(self, kind: str, handle: int, code: int) -> int:
        assert (kind, handle) in self.live, f"{kind} {handle:#x} is not there"
        self.live.discard((kind, handle))
        return code

    def names(self) -> list[str]:
        return [c[0] for c in self.calls]

    def sync_address(self) -> tuple[int, int]:
        return SYNC_ADDRESS, self.note("sync_address")

    # -- acl --------------------------------------------------------------------------------------
    def init(self) -> int:
        return self.note("init")

    def finalize(self) -> int:
        return self.note("finalize")

    def get_soc_name(self) -> str:
        return self.soc

    def get_recent_err_msg(self) -> str | None:
        return self.message

    # -- acl.rt -----------------------------------------------------------------------------------
    def get_device_count(self) -> tuple[int, int]:
        return self.count, self.note("get_device_count")

    def set_device(self, device: int) -> int:
        return self.note("set_device", device)

    def reset_device(self, device: int) -> int:
        return self.note("reset_device", device)

    def get_device_info(self, device: int, attribute: int) -> tuple[int, int]:
        return self.cores[attribute], self.note("get_device_info", device, attribute)

    def create_stream(self) -> tuple[int, int]:
        return self.made("stream", self.note("create_stream"))

    def destroy_stream(self, stream: int) -> int:
        return self.gone("stream", stream, self.note("destroy_stream", stream))

    def synchronize_stream(self, stream: int) -> int:
        return self.note("synchronize_stream", stream)

    def malloc(self, size: int, policy: int) -> tuple[int, int]:
        assert size > 0
        code = self.note("malloc", size, policy)
        if code:
            return 0, code
        block = np.full(size, 0xEE, np.uint8)
        address = block.ctypes.data
        self.memory[address] = block
        self.live.add(("memory", address))
        return address, 0

    def free(self, address: int) -> int:
        code = self.gone("memory", address, self.note("free", address))
        del self.memory[address]
        return code

    def memcpy(self, to: int, room: int, source: int, size: int, direction: int) -> int:
        assert room >= size > 0
        code = self.note("memcpy", to, room, source, size, direction)
        there = self.memory[to if direction == 1 else source]
        assert direction in (1, 2) and size <= len(there)
        if not code:
            ctypes.memmove(to, source, size)
        return code

    def binary_load_from_data(
        self, address: int, size: int, options: Sequence[Mapping[str, int]]
    ) -> tuple[int, int]:
        assert isinstance(options, list)
        self.code.append(ctypes.string_at(address, size))
        return self.made("binary", self.note("binary_load_from_data", size, options))

    def binary_unload(self, binary: int) -> int:
        return self.gone("binary", binary, self.note("binary_unload", binary))

    def binary_get_function(self, binary: int, name: str) -> tuple[int, int]:
        assert ("binary", binary) in self.live
        return binary + 1, self.note("binary_get_function", binary, name)

    def kernel_args_init(self, function: int) -> tuple[int, int]:
        return function + 1, self.note("kernel_args_init", function)

    def kernel_args_append(self, args: int, address: int, size: int) -> tuple[int, int]:
        self.packed.append(ctypes.string_at(address, size))
        return args + 1, self.note("kernel_args_append", args, size)

    def kernel_args_finalize(self, args: int) -> int:
        return self.note("kernel_args_finalize", args)

    def launch_kernel_with_config(
        self, function: int, blocks: int, stream: int, config: list[Any], args: int, zero: int
    ) -> int:
        assert isinstance(config, list)
        call = function, blocks, stream, config, args, zero
        code = self.note("launch_kernel_with_config", *call)
        if not code and self.kernel is not None:
            self.kernel(self, self.packed[-1])
        return code
