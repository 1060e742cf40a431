"""What one core is given to do, without numbers and without time: its trace.

A trace is a tree of interned parts, known by number. A *node* is a list of items, among them loops;
a *loop* is the tuple of its trips' nodes. What does the same has the same number: trips, blocks,
and the whole traces of cores with the same work. A loop body is walked once for every value of its
key: the expressions over variables from outside that decide sizes, order and costs inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from terrazzo.ir.ops import Loc
from terrazzo.targets.davinci import program as p
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.timing.cost import Shape, Work
from terrazzo.targets.davinci.timing.steps import Env, Step, compiled_steps

PIPES: tuple[p.Pipe, ...] = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
PIPE = {name: i for i, name in enumerate(PIPES)}
ALL = len(PIPES)  # a barrier for all pipes
DO, SET, WAIT, BARRIER, RAISE, TAKE, LOOP = range(7)
# (kind, pipe's number, what): an instruction's number · (src, dst, event) · a cross flag · a loop's
# number (pipe 0).
Item = tuple[int, int, Any]


class Tracer:
    """Traces of all cores of one function. `cost` says what an instruction demands; instructions
    that demand the same are one. `tensors`: index tensors that expressions load."""

    def __init__(
        self, fn: p.CoreFn, tensors: Mapping[str, np.ndarray],
        cost: Callable[[p.Instr, tuple[Shape, ...]], Work],
    ) -> None:  # fmt: skip
        self.gm, self.cost = tensors, cost
        self.instrs: list[tuple[p.Instr, tuple[Shape, ...]]] = []  # by an instruction's number
        self.nodes: list[tuple[Item, ...]] = []
        self.loops: list[tuple[int, ...]] = []
        self.locs: dict[Item, Loc | None] = {}
        self._numbers: dict[Any, int] = {}
        self._known: dict[Any, int] = {}
        self._root, self._moduli = compiled_steps(fn.body)

    def trace(self, env: Mapping[str, Any]) -> int:
        """The node of one core's whole work. `env`: values of "core", "half" and the scalar
        parameters."""
        return self._node(self._root, dict(env))

    def counts(self, root: int) -> dict[int, int]:
        """How often each instruction is done below node `root`, by its number."""
        known: dict[int, dict[int, int]] = {}

        def of(node: int) -> dict[int, int]:
            if node not in known:
                total: dict[int, int] = {}
                for kind, _, what in self.nodes[node]:
                    if kind == DO:
                        total[what] = total.get(what, 0) + 1
                    elif kind == LOOP:
                        trips, times = np.unique(self.loops[what], return_counts=True)
                        for trip, n in zip(trips.tolist(), times.tolist(), strict=True):
                            for number, each in of(trip).items():
                                total[number] = total.get(number, 0) + n * each
                known[node] = total
            return known[node]

        return of(root)

    def _node(self, steps: tuple[Step, ...], env: Env) -> int:
        items: list[Item] = []
        self._visit(steps, env, items)
        return _intern(self._known, self.nodes, ("node", *items), tuple(items))

    def _visit(self, steps: tuple[Step, ...], env: Env, items: list[Item]) -> None:
        for step in steps:
            s = step.stmt
            match s:
                case p.Instr():
                    item = (DO, PIPE[TABLE[s.op].pipe], self._number(step, s, env))
                case p.SetFlag():
                    item = (SET, PIPE[s.src], (PIPE[s.src], PIPE[s.dst], *step.read(env, self.gm)))
                case p.WaitFlag():
                    item = (WAIT, PIPE[s.dst], (PIPE[s.src], PIPE[s.dst], *step.read(env, self.gm)))
                case p.PipeBarrier():
                    item = (BARRIER, ALL if s.pipe == "ALL" else PIPE[s.pipe], None)
                case p.CrossSet():
                    item = (RAISE, PIPE[s.pipe], *step.read(env, self.gm))
                case p.CrossWait():
                    item = (TAKE, PIPE[s.pipe], *step.read(env, self.gm))
                case p.Let():
                    (value,) = step.read(env, self.gm)
                    modulus = self._moduli.get(s.name, 0)
                    env[s.name] = value % modulus if modulus else value
                    continue
                case p.If():
                    if step.read(env, self.gm)[0]:
                        self._visit(step.body, env, items)
                    continue
                case p.For():
                    trips = self._trips(step, s, env)
                    if not trips:
                        continue
                    item = (LOOP, 0, _intern(self._known, self.loops, ("loop", trips), trips))
            self.locs.setdefault(item, s.loc)
            items.append(item)

    def _number(self, step: Step, s: p.Instr, env: Env) -> int:
        values = step.read(env, self.gm)
        at = (id(step), values)
        number = self._numbers.get(at)
        if number is None:
            shapes = _shapes(s, values)
            same = (id(s), self.cost(s, shapes))
            number = _intern(self._known, self.instrs, same, (s, shapes))
            self._numbers[at] = number
        return number

    def _trips(self, step: Step, s: p.For, env: Env) -> tuple[int, ...]:
        values = range(*step.read(env, self.gm))
        count = len(values)
        if not count:
            return ()
        assert step.key is not None and step.key_arrays is not None
        if count < 8:
            keys = [step.key({**env, s.var: value}, self.gm) for value in values]
        else:
            # All trips' keys at a time; an instruction's loads from index tensors are arrays too.
            all_trips = {**env, s.var: np.arange(values.start, values.stop, values.step)}
            columns = step.key_arrays(all_trips, self.gm)
            keys = list(zip(*(np.broadcast_to(c, (count,)).tolist() for c in columns), strict=True))
            keys = keys or [()] * count
        trips: list[int] = []
        known, counters = step.known, step.counters
        state = tuple(env.get(c) for c in counters)
        for value, key in zip(values, keys, strict=True):
            found = known.get((key, state))
            if found is None:
                inside = {**env, s.var: value, **dict(zip(counters, state, strict=True))}
                node = self._node(step.body, inside)
                found = (node, tuple(inside.get(c) for c in counters))
                known[key, state] = found
            trips.append(found[0])
            state = found[1]
        env.update(zip(counters, state, strict=True))
        return tuple(trips)


def _intern(known: dict[Any, int], store: list[Any], name: Any, content: Any) -> int:
    number = known.get(name)
    if number is None:
        number = known[name] = len(store)
        store.append(content)
    return number


def _shapes(instr: p.Instr, values: tuple[Any, ...]) -> tuple[Shape, ...]:
    found, at = [], 0
    for v in p.views(instr):
        n = len(v.sizes)
        found.append(Shape(values[at : at + n], values[at + n : at + 2 * n], values[at + 2 * n]))
        at += 2 * n + 1
    return tuple(found)
