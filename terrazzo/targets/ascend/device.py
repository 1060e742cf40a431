"""An NPU: which chip it is, its memory and streams, through PyACL."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from terrazzo.errors import DeviceError, DeviceUnavailable, OptionError, TerrazzoError
from terrazzo.targets.ascend import pyacl
from terrazzo.targets.ascend.pyacl import Acl, SyncAddress
from terrazzo.targets.ascend.tensors import DeviceTensor, dense
from terrazzo.targets.davinci import chips

LEAST = 32  # bytes: an allocation of none is an error to ACL
_log = logging.getLogger("terrazzo.ascend")
_lock = threading.Lock()
_initialised: weakref.WeakSet[Acl] = weakref.WeakSet()
_open: dict[int, Device] = {}  # by index, the latest
T = TypeVar("T")


def _initialise(acl: Acl) -> None:
    """Once a process; undone when it exits, unless somebody else had initialised ACL before us."""
    with _lock:
        if acl in _initialised:
            return
        code = acl.init()
        if code == 0:
            atexit.register(acl.finalize)
        elif code != pyacl.REPEAT_INITIALIZE:
            raise pyacl.unavailable(acl, "acl.init", code)
        _initialised.add(acl)


@dataclass(frozen=True)
class Survey:
    """How many NPUs there are and what they call themselves; `why` if there is none."""

    count: int
    soc: str
    why: str


def survey(acl: Acl | None = None) -> Survey:
    """What is there, without taking any of it: no device is chosen, no memory. Never raises."""
    try:
        acl = pyacl.load() if acl is None else acl
        _initialise(acl)
        count, code = acl.rt.get_device_count()
        if code:
            raise pyacl.unavailable(acl, "acl.rt.get_device_count", code)
        if not count:
            return Survey(0, "", "CANN finds none")
        return Survey(count, acl.get_soc_name() or "of unknown kind", "")
    except TerrazzoError as e:
        return Survey(0, "", e.what.removeprefix(pyacl.NONE))
    except Exception as e:  # a broken installation of somebody else's: to be told, not to end in
        return Survey(0, "", f"{type(e).__name__}: {e}")


class Device:
    """NPU number `index` of this process. Use it from any thread; close it, or leave it to the end
    of the process, which closes it.

    `chip`: what to take it for where its own name is none that `davinci.chips` has. `cores`: how
    many cube and vector cores the runtime says there are. Raises DeviceUnavailable if there is no
    CANN or no such NPU; all methods raise DeviceError with ACL's own message if ACL refuses,
    MemoryShortage if the NPU's memory is used up.
    """

    def __init__(
        self,
        index: int = 0,
        *,
        chip: str = "",
        acl: Acl | None = None,
        sync_address: SyncAddress = pyacl.sync_address,
    ) -> None:
        self.acl = acl = pyacl.load() if acl is None else acl
        self.index = index
        self._sync_address = sync_address
        self._thread = threading.local()
        self._chosen = 0  # times that set_device was called: each is to be undone
        self._release: dict[tuple[str, int], Callable[[], None]] = {}
        self._closed = False
        _initialise(acl)
        count, code = acl.rt.get_device_count()
        if code:
            raise pyacl.unavailable(acl, "acl.rt.get_device_count", code)
        if not 0 <= index < count:
            raise DeviceUnavailable(
                f"there is no NPU {index}: CANN finds {count} of them",
                "check with `npu-smi info` and the variable ASCEND_RT_VISIBLE_DEVICES",
            )
        try:
            self.use()
            self.soc = acl.get_soc_name() or ""
            self.chip = self._known(chip or self.soc)
            self.cores = {
                kind: self.call("get_device_info", acl.rt.get_device_info(index, attribute))
                for kind, attribute in (("cube", pyacl.CUBE_CORES), ("vector", pyacl.VECTOR_CORES))
            }
            self.stream = self.new_stream()
        except BaseException:
            with suppress(TerrazzoError):
                self.close()
            raise
        atexit.register(self._close_quietly)
        _open[index] = self

    @property
    def closed(self) -> bool:
        return self._closed

    def _known(self, name: str) -> chips.Chip:
        try:
            return chips.chip(name)
        except OptionError as e:
            raise DeviceUnavailable(
                f"NPU {self.index} calls itself {name!r}, which is none that kernels are made for",
                f"if it is like one of them, name it, as in Device(chip=…): {e.remedy}",
            ) from None

    # -- calls --------------------------------------------------------------------------------
    def call(self, name: str, answer: tuple[T, int], what: str = "", remedy: str = "") -> T:
        """The result of `acl.rt.<name>`, or its failure as an error."""
        result, code = answer
        self.check(name, code, what, remedy)
        return result

    def check(self, name: str, code: int, what: str = "", remedy: str = "") -> None:
        if code:
            raise pyacl.failure(self.acl, f"acl.rt.{name}", code, what, remedy)

    def use(self) -> None:
        """Make this the calling thread's NPU. Every method does so."""
        if self._closed:
            raise DeviceError(f"NPU {self.index} was closed", "open it again: Device(…)")
        if not getattr(self._thread, "chosen", False):
            self.check("set_device", self.acl.rt.set_device(self.index), f"NPU {self.index}")
            self._thread.chosen = True
            with _lock:
                self._chosen += 1

    def sync_address(self) -> int:
        """Where cube and vector cores signal each other."""
        self.use()
        address, code = self._sync_address()
        if code:
            raise pyacl.failure(self.acl, "aclrtGetHardwareSyncAddr", code)
        return address

    # -- what has to be released ---------------------------------------------------------------
    def own(self, kind: str, handle: int, release: Callable[[int], int]) -> int:
        """Have `handle` released with `acl.rt.<kind>`: by `release`, or when the device closes."""
        self._release[kind, handle] = lambda: self.check(kind, release(handle))
        return handle

    def release(self, kind: str, handle: int) -> None:
        """Do it now; a second time does nothing."""
        done = self._release.pop((kind, handle), None)
        if done is not None:
            self.use()
            done()

    def close(self) -> None:
        """Release all that is left, latest first. Goes on after failures and raises the first."""
        if self._closed:
            return
        failures: list[TerrazzoError] = []
        for kind, handle in reversed(list(self._release)):
            try:
                self.release(kind, handle)
            except TerrazzoError as e:
                failures.append(e)
        for _ in range(self._chosen):
            code = self.acl.rt.reset_device(self.index)
            if code:
                failures.append(pyacl.failure(self.acl, "acl.rt.reset_device", code))
        self._closed = True
        if _open.get(self.index) is self:
            del _open[self.index]
        atexit.unregister(self._close_quietly)
        if failures:
            raise failures[0]

    def _close_quietly(self) -> None:
        """At the end of the process, when nobody can handle an error any more."""
        try:
            self.close()
        except TerrazzoError as e:
            _log.warning("closing NPU %d: %s", self.index, e)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- streams and memory ---------------------------------------------------------------------
    def new_stream(self) -> int:
        self.use()
        made = self.call("create_stream", self.acl.rt.create_stream())
        return self.own("destroy_stream", made, self.acl.rt.destroy_stream)

    def synchronize(self, stream: int | None = None, what: str = "", remedy: str = "") -> None:
        """Wait until all launched on `stream` (ours, if None) is done. A kernel that failed on the
        NPU is reported here."""
        self.use()
        stream = self.stream if stream is None else stream
        self.check("synchronize_stream", self.acl.rt.synchronize_stream(stream), what, remedy)

    def allocate(self, size: int) -> int:
        """The address of `size` bytes, aligned to 64 of them at least."""
        self.use()
        answer = self.acl.rt.malloc(max(size, LEAST), pyacl.HUGE_FIRST)
        address = self.call("malloc", answer, f"{size:,} bytes on NPU {self.index}")
        return self.own("free", address, self.acl.rt.free)

    def free(self, address: int) -> None:
        """Whatever used the memory must be done: synchronise first."""
        self.release("free", address)

    @contextmanager
    def scratch(self) -> Iterator[Callable[[int], int]]:
        """`allocate` for memory that goes when the block ends, however it ends."""
        taken: list[int] = []

        def take(size: int) -> int:
            taken.append(self.allocate(size))
            return taken[-1]

        try:
            yield take
        except BaseException:
            for address in taken:
                with suppress(TerrazzoError):  # the first error is the one to tell
                    self.free(address)
            raise
        for address in taken:
            self.free(address)

    def upload(self, address: int, source: np.ndarray) -> None:
        """Copy a C-contiguous array to the device; it is there when this returns."""
        self._copy(address, source.ctypes.data, source.nbytes, pyacl.HOST_TO_DEVICE)

    def download(self, out: np.ndarray, address: int) -> None:
        """Fill a C-contiguous array from the device."""
        self._copy(out.ctypes.data, address, out.nbytes, pyacl.DEVICE_TO_HOST)

    def _copy(self, to: int, source: int, size: int, direction: int) -> None:
        if size:
            self.use()
            code = self.acl.rt.memcpy(to, size, source, size, direction)
            self.check("memcpy", code, f"{size:,} bytes")

    def tensor(self, array: np.ndarray) -> DeviceTensor:
        """A copy of `array` on the NPU, dense; its memory is freed by `free(tensor.address)`."""
        dense_array = np.ascontiguousarray(array)
        address = self.allocate(array.nbytes)
        try:
            self.upload(address, dense_array)
        except BaseException:
            self.free(address)
            raise
        strides = dense(array.shape, array.dtype.itemsize)
        return DeviceTensor(address, array.dtype, array.shape, strides, self.index)

    def array(self, tensor: DeviceTensor) -> np.ndarray:
        """A dense tensor's elements on the host. Synchronise first."""
        out = np.empty(tensor.shape, tensor.dtype)
        self.download(out, tensor.address)
        return out


def opened(index: int = 0) -> Device:
    """NPU `index` as this process has it open; opens it if it has not. Raises DeviceUnavailable."""
    known = _open.get(index)
    return Device(index) if known is None else known
