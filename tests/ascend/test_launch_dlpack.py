"""Tensors of others on the NPU: taken as they are, with offset and strides, and let go of."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest
from stand_in import Driver
from test_launch import ADD, N, add, array_at, opened

from terrazzo.errors import ArgumentError
from terrazzo.targets.ascend.launch import Loaded
from terrazzo.targets.ascend.tensors import from_dlpack, on_device

# DLManagedTensor by its offsets (DLPack 0.8): data 0, device type 8, device id 12, ndim 16,
# code 20, bits 21, lanes 22, shape 24, strides 32, byte_offset 40, manager_ctx 48, deleter 56.
DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, DESTRUCTOR)
NOTHING = DESTRUCTOR()
released: list[int] = []


@DESTRUCTOR
def destroy(capsule: int) -> None:
    """What a producer's capsule does if nobody consumed it."""
    released.append(capsule)


class Tensor:
    """Somebody's tensor: memory at `address`, on device (`kind`, `index`)."""

    def __init__(self, address: int, shape: tuple[int, ...], *, kind: int = 12, index: int = 0,
                 code: int = 2, bits: int = 32, lanes: int = 1, offset: int = 0,
                 strides: tuple[int, ...] | None = None,
                 destructor: Any = NOTHING) -> None:  # fmt: skip
        self.kind, self.index, self.destructor = kind, index, destructor
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(strides))(*strides) if strides else None
        self.raw = ctypes.create_string_buffer(64)
        fields = {
            0: ctypes.c_void_p(address), 8: ctypes.c_int32(kind), 12: ctypes.c_int32(index),
            16: ctypes.c_int32(len(shape)), 20: ctypes.c_uint8(code), 21: ctypes.c_uint8(bits),
            22: ctypes.c_uint16(lanes), 24: ctypes.c_void_p(ctypes.addressof(self.shape)),
            32: ctypes.c_void_p(ctypes.addressof(self.strides) if self.strides else None),
            40: ctypes.c_uint64(offset),
        }  # fmt: skip
        for at, value in fields.items():
            self.raw[at : at + ctypes.sizeof(value)] = bytes(value)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.index

    def __dlpack__(self) -> Any:
        return new_capsule(ctypes.addressof(self.raw), b"dltensor", self.destructor)


@pytest.mark.parametrize("kind", [12, 15])
def test_fields(kind: int) -> None:
    x = Tensor(0x5000, (3, 4), kind=kind, index=2, code=4, bits=16, offset=32, strides=(8, 1))
    assert on_device(x)
    got = from_dlpack(x)
    assert (got.address, got.device) == (0x5020, 2)
    assert (str(got.dtype), got.shape, got.strides) == ("bfloat16", (3, 4), (16, 2))


@pytest.mark.parametrize(
    ("code", "bits", "name"),
    [(2, 32, "float32"), (2, 16, "float16"), (4, 16, "bfloat16"), (0, 8, "int8"), (1, 8, "uint8"),
     (0, 32, "int32"), (1, 32, "uint32"), (6, 8, "bool")],
)  # fmt: skip
def test_elements(code: int, bits: int, name: str) -> None:
    got = from_dlpack(Tensor(0x5000, (5, 2), code=code, bits=bits))
    assert str(got.dtype) == name and got.strides == (2 * bits // 8, bits // 8)


@pytest.mark.parametrize(("code", "bits", "lanes"), [(2, 64, 1), (0, 4, 1), (2, 32, 2), (5, 64, 1)])
def test_elements_that_kernels_do_not_have(code: int, bits: int, lanes: int) -> None:
    with pytest.raises(ArgumentError, match=f"code {code}, {bits} bits, {lanes} lanes"):
        from_dlpack(Tensor(0x5000, (4,), code=code, bits=bits, lanes=lanes))


def test_memory_elsewhere_is_refused() -> None:
    x = Tensor(0x5000, (4,), kind=2)
    assert not on_device(x) and not on_device(np.zeros(3)) and not on_device(3)
    with pytest.raises(ArgumentError, match="device type 2"):
        from_dlpack(x)


def test_the_producer_gets_its_memory_back() -> None:
    before = len(released)
    view = from_dlpack(Tensor(0x5000, (4,), destructor=destroy))
    assert len(released) == before
    del view
    gc.collect()
    assert len(released) == before + 1


def test_launch_in_place() -> None:
    """Nothing is copied: the kernel gets the producer's addresses."""
    driver = Driver()
    driver.kernel = add
    device = opened(driver)
    own = [device.tensor(np.full(N, v, np.float32)) for v in (1.0, 2.0, 0.0)]
    kernel = Loaded(device, ADD)
    start = len(driver.calls)
    kernel(*(Tensor(t.address, (N,)) for t in own))
    assert {"memcpy", "malloc", "synchronize_stream"}.isdisjoint(driver.names()[start:])
    assert (array_at(driver, own[2].address) == 3).all()


def test_host_tensors_by_dlpack() -> None:
    class Host:
        """Not an array, but one by DLPack."""

        def __init__(self) -> None:
            self.x = np.ones(N, np.float32)

        def __dlpack__(self, **options: Any) -> Any:
            return self.x.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.x.__dlpack_device__()

    driver = Driver()
    driver.kernel = add
    out = Host()
    Loaded(opened(driver), ADD)(Host(), np.ones(N, np.float32), out)
    assert (out.x == 2).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"index": 1}, "on NPU 1, not 0"),
        ({"strides": (2,)}, "not dense"),
        ({"code": 0}, "int32"),
    ],
)
def test_tensors_that_do_not_fit(options: dict[str, Any], said: str) -> None:
    kernel = Loaded(opened(Driver()), ADD)
    fine = Tensor(0x5000, (N,))
    with pytest.raises(ArgumentError, match=said):
        kernel(fine, fine, Tensor(0x5000, (N,), **options))
