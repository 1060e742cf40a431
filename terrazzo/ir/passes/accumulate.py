"""Accumulate: acc = f(acc) + a @ b in a loop becomes dot_acc(f(acc), a, b).

A matrix unit adds to its accumulator in place; this finds where a kernel means that. It applies
where the sum is what the loop carries to its next trip, f(acc) is elementwise in the value carried
in and has all axes of the product, and nothing else reads the product. Several products added one
after another become a chain, dot_acc(dot_acc(f(acc), a, b), c, d). Non-goals: sums outside of
loops, and products added to each other first.
"""

from __future__ import annotations

from collections import Counter

from terrazzo.ir.graph import index_values, operands, walk
from terrazzo.ir.ops import Kernel, Load, Loop, Op, Store
from terrazzo.ir.rewrite import Rewriter
from terrazzo.ir.types import Value


def accumulate(kernel: Kernel) -> Kernel:
    """See the top of the file. The products it takes in are dropped."""
    return _Accumulate(kernel).run()


class _Accumulate(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        uses: Counter[int] = Counter()
        self.defs: dict[int, Op] = {}
        for s in walk(kernel.body):
            if isinstance(s, Loop):
                for c in s.carries:
                    uses.update((c.init.id, c.next.id))
                continue
            uses.update(v.id for v in (operands(s) if not isinstance(s, Store) else _stored(s)))
            if isinstance(s, Op):
                self.defs[s.result.id] = s
        self.sums: dict[int, tuple[Value, Op]] = {}  # id of the sum -> f(acc), the product
        self.taken: set[int] = set()
        for s in walk(kernel.body):
            if isinstance(s, Loop):
                for c in s.carries:
                    self._match(s, c.var, c.next, uses)

    def _match(self, loop: Loop, var: Value, next_: Value, uses: Counter[int]) -> None:
        own = {s.result.id for s in loop.body if isinstance(s, (Op, Load))}
        found: dict[int, tuple[Value, Op]] = {}
        rest = next_
        while (link := self._link(rest, var, own, uses)) is not None:
            found[rest.id] = link
            rest = link[0]
            if uses[rest.id] != 1:
                break
        self.sums |= found
        self.taken |= {dot.result.id for _, dot in found.values()}

    def _link(
        self, total: Value, var: Value, own: set[int], uses: Counter[int]
    ) -> tuple[Value, Op] | None:
        """`total` as f(acc) and a product of this loop's body that is added to it."""
        d = self.defs.get(total.id)
        if d is None or d.op != "add" or total.id not in own:
            return None
        for acc, product in (d.args, d.args[::-1]):
            dot = self.defs.get(product.id)
            if (
                dot is not None
                and dot.op == "dot"
                and product.id in own
                and uses[product.id] == 1
                and set(product.axes) <= set(acc.axes)
                and self._elementwise_in(acc, var)
            ):
                return acc, dot
        return None

    def _elementwise_in(self, v: Value, var: Value) -> bool:
        """Whether v is the carried value, or made of it by elementwise ops."""
        if v == var:
            return True
        d = self.defs.get(v.id)
        if d is None or d.op in ("dot", "reduce", "quantize") or v.dtype != var.dtype:
            return False
        return any(self._elementwise_in(a, var) for a in d.args)

    def op(self, s: Op) -> Value:
        if s.result.id in self.taken:
            return s.result  # read only by the sum, which takes the product's operands
        if s.result.id in self.sums:
            acc, dot = self.sums[s.result.id]
            args = tuple(map(self.value, (acc, *dot.args)))
            return self.emit(Op(s.result, "dot_acc", args, (), dot.loc))
        return self.emit(s)


def _stored(s: Store) -> tuple[Value, ...]:
    return (s.value, *index_values(s))
