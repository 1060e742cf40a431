"""What an expression's value hangs on: the algebra behind tracing a loop body only once for all
trips that do the same.

A *key* of a statement list is a list of expressions over the variables bound outside of it; when
they have the same values, every size, slot, event and alignment inside is the same.
"""

from __future__ import annotations

from math import gcd

from terrazzo.targets.davinci.expr import Expr, Scalar, add, make, mul, names


def remainder(e: Scalar, modulus: int) -> Scalar:
    """`e` mod `modulus`, without the terms that are multiples of it."""
    rest = _linear(e, modulus)
    if not isinstance(rest, Expr):
        return int(rest) % modulus
    return make("mod", rest, modulus)


def _linear(e: Scalar, modulus: int) -> Scalar:
    """Something congruent to `e`."""
    if modulus == 1:
        return 0
    if not isinstance(e, Expr):
        return int(e) % modulus
    if e.op in ("add", "sub"):
        return make(e.op, _linear(e.args[0], modulus), _linear(e.args[1], modulus))
    if e.op == "mul":
        for factor, other in (e.args, e.args[::-1]):
            if isinstance(factor, int):
                common = gcd(factor, modulus)
                return mul(_linear(other, modulus // common), factor)
    if e.op == "mod" and isinstance(e.args[1], int) and e.args[1] % modulus == 0:
        return _linear(e.args[0], modulus)
    return e


def parts(e: Scalar, local: frozenset[str], counters: frozenset[str]) -> list[Expr]:
    """Expressions without `local` variables that, with those, determine `e`. Counters (variables
    that a body sets anew) stand for their values at its start: only sums and remainders of them
    keep that meaning, so anything else hangs on the counter itself."""
    if not isinstance(e, Expr):
        return []
    read = names(e)
    if not read and e.op != "arg":
        return []
    if not read & (local | counters):
        return [e] if read else []
    if e.op == "mod" and isinstance(e.args[1], int):
        found: list[Expr] = []
        for term in terms(e.args[0]):
            if names(term) <= counters:
                reduced = remainder(term, e.args[1])
                found += [reduced] if isinstance(reduced, Expr) else []
            else:
                found += parts(term, local, counters)
        return found
    if e.op == "var":
        return [e] if e.args[0] in counters else []
    inner = e.args[1:] if e.op == "load" else e.args
    return [p for a in inner for p in parts(a, local, counters)]


def terms(e: Scalar) -> list[Scalar]:
    """The summands of `e`."""
    if isinstance(e, Expr) and e.op in ("add", "sub"):
        return [t for a in e.args for t in terms(a)]
    return [e]


def substitute(e: Scalar, known: dict[str, Scalar]) -> Scalar:
    """`e` with the variables of `known` replaced."""
    if not isinstance(e, Expr) or not known:
        return e
    if e.op == "var":
        return known.get(e.args[0], e)
    if e.op == "arg":
        return e
    head, rest = (e.args[:1], e.args[1:]) if e.op == "load" else ((), e.args)
    args = tuple(substitute(a, known) for a in rest)
    return Expr(e.op, head + args) if e.op == "load" else make(e.op, *args)


def bytes_of(elements: Scalar, bits: int) -> Scalar:
    """Elements as bytes (whole ones: a packed type's offsets are)."""
    if bits >= 8:
        return mul(elements, bits // 8)
    return make("div", add(mul(elements, bits), 7), 8)
