"""Machine code as a builtin function of Python, for calls that are made once a token.

A ctypes call walks through a few hundred lines of Python's and libffi's memory; after a step that
read a whole model none of them is in the cache any more, and the call costs some 70 µs more than a
builtin's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from terrazzo.targets.cpu.jit import Module

_METH_O = 8


class _MethodDef(ctypes.Structure):
    """PyMethodDef, part of Python's stable ABI."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def builtin(module: Module, symbol: str, bound: int) -> tuple[Callable[[int], int], object]:
    """`symbol`, a `PyObject *(PyObject *bound, PyObject *argument)`, as a function of one argument;
    `bound` is passed along as a Python int. The second result must live as long as the function."""
    definition = _MethodDef(symbol.encode(), module.address(symbol), _METH_O, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(definition), bound, None), (definition, module)
