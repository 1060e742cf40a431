"""The algebra behind tracing a loop body once for all trips that do the same: which parts of an
expression, over the variables bound outside of a body, decide what happens inside.
"""

from __future__ import annotations

from math import gcd, lcm

from terrazzo.targets.davinci.expr import Expr, Scalar, add, make, mul, names, sub


def remainder(e: Scalar, modulus: int) -> Scalar:
    """`e` mod `modulus`, without the terms that are multiples of it."""
    rest = _congruent(e, modulus)
    if not isinstance(rest, Expr):
        return int(rest) % modulus
    return make("mod", rest, modulus)


def _congruent(e: Scalar, modulus: int) -> Scalar:
    if modulus == 1:
        return 0
    if not isinstance(e, Expr):
        return int(e) % modulus
    if e.op in ("add", "sub"):
        return make(e.op, _congruent(e.args[0], modulus), _congruent(e.args[1], modulus))
    if e.op == "mul":
        for factor, other in (e.args, e.args[::-1]):
            if isinstance(factor, int):
                return mul(_congruent(other, modulus // gcd(factor, modulus)), factor)
    if e.op == "mod" and isinstance(e.args[1], int) and e.args[1] % modulus == 0:
        return _congruent(e.args[0], modulus)
    return e


def outer_parts(e: Scalar, local: frozenset[str]) -> list[Expr]:
    """Expressions without `local` variables that, together with those, determine `e`: the largest
    ones, so that they take few values."""
    if not isinstance(e, Expr):
        return []
    read = names(e)
    if not read & local:
        return [e] if read else []
    if e.op == "mod" and isinstance(e.args[1], int):
        outside: Scalar = 0
        found: list[Expr] = []
        for sign, term in _summands(e.args[0]):
            if names(term) & local:
                found += outer_parts(term, local)
            else:
                outside = add(outside, term) if sign > 0 else sub(outside, term)
        rest = remainder(outside, e.args[1])
        return [*found, rest] if isinstance(rest, Expr) else found
    if e.op == "var":
        return []
    inner = e.args[1:] if e.op == "load" else e.args
    return [p for a in inner for p in outer_parts(a, local)]


def _summands(e: Scalar, sign: int = 1) -> list[tuple[int, Scalar]]:
    if isinstance(e, Expr) and e.op in ("add", "sub"):
        second = -sign if e.op == "sub" else sign
        return [*_summands(e.args[0], sign), *_summands(e.args[1], second)]
    return [(sign, e)]


def substitute(e: Scalar, known: dict[str, Scalar]) -> Scalar:
    """`e` with the variables of `known` replaced."""
    if not isinstance(e, Expr) or not known:
        return e
    if e.op == "var":
        return known.get(e.args[0], e)
    if e.op == "arg":
        return e
    if e.op == "load":
        return Expr("load", (e.args[0], *(substitute(a, known) for a in e.args[1:])))
    return make(e.op, *(substitute(a, known) for a in e.args))


def modulus_of(e: Scalar, name: str) -> int:
    """m > 0 such that `e` hangs on variable `name` by its remainder modulo m alone (1: not at all),
    or 0 where there is none."""
    if not isinstance(e, Expr) or name not in names(e):
        return 1
    if e.op == "mod" and isinstance(e.args[1], int) and linear(e.args[0], name):
        return e.args[1]
    found = [0] if e.op == "var" else [modulus_of(a, name) for a in e.args if isinstance(a, Expr)]
    return 0 if 0 in found else lcm(*found)


def linear(e: Scalar, name: str) -> bool:
    """Whether `e` is a sum in which `name` has whole coefficients."""
    if not isinstance(e, Expr) or name not in names(e):
        return True
    if e.op == "var":
        return True
    if e.op in ("add", "sub"):
        return all(linear(a, name) for a in e.args)
    return e.op == "mul" and any(isinstance(a, int) for a in e.args) and all(
        linear(a, name) for a in e.args
    )  # fmt: skip


def bytes_of(elements: Scalar, bits: int) -> Scalar:
    """Elements as bytes (whole ones: a packed type's offsets are)."""
    if bits >= 8:
        return mul(elements, bits // 8)
    return make("div", add(mul(elements, bits), 7), 8)
