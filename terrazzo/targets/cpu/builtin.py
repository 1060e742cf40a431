"""Machine code as a builtin function of Python, for calls that are made once a token.

A ctypes call walks through a few hundred lines of Python's and libffi's memory; after a step that
read a whole model none of them is in the cache any more, and the call costs some 70 µs more than a
builtin's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from terrazzo.targets.cpu.jit import Module

_METH_NOARGS = 4


class _MethodDef(ctypes.Structure):
    """PyMethodDef, part of Python's stable ABI."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def definition(module: Module, symbol: str) -> _MethodDef:
    """`symbol`, a `PyObject *(PyObject *bound, void *)` that returns an int. The module and the
    definition must live as long as the builtins made from it."""
    return _MethodDef(symbol.encode(), module.address(symbol), _METH_NOARGS, None)


def builtin(of: _MethodDef, bound: int) -> Callable[[], int]:
    """The function without arguments that passes `bound` along, as a Python int."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(of), bound, None)
