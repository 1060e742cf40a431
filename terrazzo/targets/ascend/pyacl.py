"""PyACL: the part of CANN's Python module `acl` that launching takes, as a protocol.

What is written here are facts of CANN's published interface: names, orders of arguments, numbers.
Calls return a code, or (result, code); 0 is success. Handles and pointers are numbers. The real
module is imported when it is first needed; tests put another object in its place.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from terrazzo.errors import DeviceError, DeviceUnavailable, MemoryShortage

REPEAT_INITIALIZE = 100002  # somebody else in this process has initialised ACL: no failure
OUT_OF_MEMORY = 207001
CUBE_CORES, VECTOR_CORES = 102, 201  # attributes that get_device_info knows
HUGE_FIRST = 0  # memory policy of malloc: large pages where there are some
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # directions of memcpy
LOAD_MAGIC = 2  # an option of binary_load_from_data: which cores the code is for
# Magic numbers by a binary's kind. Code for both kinds of cores says so itself.
MAGIC = {"aic": 0x43554245, "aiv": 0x41415246}

NONE = "no Ascend NPU can be used: "
INSTALL = (
    "install the NPU's driver, firmware and CANN (the toolkit and its `acl` module), run"
    " `source /usr/local/Ascend/ascend-toolkit/set_env.sh` and check with `npu-smi info`"
)
# What a code means for the author of a kernel; the rest of them is left to ACL's own message.
MEANING = {
    107000: "an argument is not valid",
    107001: "there is no such device",
    107002: "this thread has chosen no device",
    207000: "this NPU or CANN cannot do that",
    507014: "cube cores ran into the time limit: waiting for one another, most likely",
    507015: "a cube core stopped: an address out of range or not aligned, most likely",
    507034: "vector cores ran into the time limit: waiting for one another, most likely",
    507035: "a vector core stopped: an address out of range or not aligned, most likely",
}


class Runtime(Protocol):
    """`acl.rt`."""

    def get_device_count(self) -> tuple[int, int]: ...
    def set_device(self, device: int, /) -> int: ...
    def reset_device(self, device: int, /) -> int: ...
    def get_device_info(self, device: int, attribute: int, /) -> tuple[int, int]: ...
    def create_stream(self) -> tuple[int, int]: ...
    def destroy_stream(self, stream: int, /) -> int: ...
    def synchronize_stream(self, stream: int, /) -> int: ...
    def malloc(self, size: int, policy: int, /) -> tuple[int, int]: ...
    def free(self, address: int, /) -> int: ...
    def memcpy(self, to: int, room: int, source: int, size: int, direction: int, /) -> int: ...
    def binary_load_from_data(
        self, address: int, size: int, options: Sequence[Mapping[str, int]], /
    ) -> tuple[int, int]: ...
    def binary_unload(self, binary: int, /) -> int: ...
    def binary_get_function(self, binary: int, name: str, /) -> tuple[int, int]: ...
    def kernel_args_init(self, function: int, /) -> tuple[int, int]: ...
    def kernel_args_append(self, args: int, address: int, size: int, /) -> tuple[int, int]: ...
    def kernel_args_finalize(self, args: int, /) -> int: ...
    def launch_kernel_with_config(
        self, function: int, blocks: int, stream: int, config: list[Any], args: int, zero: int, /
    ) -> int: ...


class Acl(Protocol):
    """The module `acl`."""

    @property
    def rt(self) -> Runtime: ...
    def init(self) -> int: ...
    def finalize(self) -> int: ...
    def get_soc_name(self) -> str | None: ...
    def get_recent_err_msg(self) -> str | None: ...


class SyncAddress(Protocol):
    """The address by which cube and vector cores signal each other ("FFTS"), and a code."""

    def __call__(self) -> tuple[int, int]: ...


def load() -> Acl:
    """CANN's module. Raises DeviceUnavailable: not there, its libraries not there, or too old."""
    try:
        acl: Any = importlib.import_module("acl")
    except ImportError as e:
        raise DeviceUnavailable(f"{NONE}{e}", INSTALL) from None
    parts = ("acl", acl, Acl), ("acl.rt", getattr(acl, "rt", None), Runtime)
    for prefix, part, protocol in parts:
        for name in vars(protocol):
            if not name.startswith("_") and not hasattr(part, name):
                raise DeviceUnavailable(
                    f"this CANN cannot launch kernels from Python: it has no {prefix}.{name}",
                    "install CANN 8.5 or newer",
                )
    return acl


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libascendcl.so")
    except OSError as e:
        raise DeviceUnavailable(f"{NONE}{e}", INSTALL) from None


def sync_address() -> tuple[int, int]:
    """From CANN's C interface: its Python module has no name for it."""
    out = ctypes.c_void_p()
    try:
        call = _library().aclrtGetHardwareSyncAddr
    except AttributeError:
        raise DeviceUnavailable(
            "this CANN cannot launch mixed kernels: it has no aclrtGetHardwareSyncAddr",
            "install CANN 8.5 or newer",
        ) from None
    code = call(ctypes.byref(out))
    return out.value or 0, int(code)


def unavailable(acl: Acl, call: str, code: int) -> DeviceUnavailable:
    """The error for a call that fails where there is no NPU, or no driver for it."""
    return DeviceUnavailable(f"{NONE}{failure(acl, call, code).what}", INSTALL)


def failure(
    acl: Acl, call: str, code: int, what: str = "", remedy: str = ""
) -> DeviceError | MemoryShortage:
    """The error for a call that returned `code`; `what` says what it was for, with its numbers."""
    message = " ".join((acl.get_recent_err_msg() or "").split())
    known = MEANING.get(code, "")
    text = f"{call} failed with {code}" + (f" ({known})" if known else "")
    text += (f" for {what}" if what else "") + (f": {message}" if message else "")
    if code == OUT_OF_MEMORY:
        return MemoryShortage(text, "close what else uses the NPU, or make the tensors smaller")
    error = DeviceError(text, remedy or "docs/ascend.md says what to check and to report")
    error.code = code
    return error
