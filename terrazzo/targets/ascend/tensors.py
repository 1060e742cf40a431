"""Tensors in an NPU's memory: our own, and those of others by DLPack."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.errors import ArgumentError
from terrazzo.ir.types import DTYPES

HOST = 1  # DLPack's number of host memory
NPU = (12, 15)  # of extension devices, and of PyTorch's private one: torch_npu has used both


@dataclass(frozen=True, eq=False)
class DeviceTensor:
    """Elements of `dtype` (NumPy's) in device memory; `strides` are bytes, as with NumPy.

    `keep`: what must live as long as the memory is used.
    """

    address: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int
    keep: object = None


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class _Element(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    """DLTensor, which a DLManagedTensor begins with."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Element),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_CODES = {0: "int", 1: "uint", 2: "float", 4: "float", 6: "bool"}  # 4 is bfloat
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def on_device(x: Any) -> bool:
    """Whether `x` is a tensor in an NPU's memory."""
    if isinstance(x, DeviceTensor):
        return True
    where = getattr(x, "__dlpack_device__", None)
    return where is not None and int(where()[0]) in NPU


def from_dlpack(x: Any) -> DeviceTensor:
    """A view of `x`, which is in an NPU's memory. Its memory is the producer's: nothing is copied,
    and the producer lets go of it when the view is gone. Raises ArgumentError for other memory or
    for elements that kernels do not have."""
    capsule = x.__dlpack__()
    address = _pointer(capsule, b"dltensor")
    t = ctypes.cast(address, ctypes.POINTER(_Tensor)).contents
    if t.device.type not in NPU:
        raise ArgumentError(
            f"a tensor in memory of DLPack device type {t.device.type}",
            "pass a NumPy array or a tensor that is on the NPU",
        )
    dtype = _element(t.dtype)
    shape = tuple(t.shape[n] for n in range(t.ndim))
    if t.strides:
        strides = tuple(t.strides[n] * dtype.itemsize for n in range(t.ndim))
    else:
        strides = dense(shape, dtype.itemsize)
    # The capsule owns the tensor until it is consumed; it never is, so its end is the view's end.
    return DeviceTensor(
        (t.data or 0) + t.byte_offset, dtype, shape, strides, t.device.index, (x, capsule)
    )


def _element(e: _Element) -> np.dtype:
    kind, lanes = _CODES.get(e.code), e.lanes
    for d in DTYPES.values():
        brain = d.name == "bf16"
        if (d.kind, d.bits, brain, 1) == (kind, e.bits, e.code == 4, lanes):
            return d.numpy
    raise ArgumentError(
        f"a tensor of DLPack elements with code {e.code}, {e.bits} bits, {lanes} lanes",
        f"kernels take {', '.join(DTYPES)}",
    )


def dense(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    out, step = [], itemsize
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))
