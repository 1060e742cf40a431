"""Who uses a buffer, where: the statements of its home, pipe by pipe.

A buffer's *home* is the innermost body that holds all its uses: each run of the home fills the
buffer anew. Seen from there, the uses are a sequence of *stages*: neighbouring statements of the
home (with all inside them) that one pipe executes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from terrazzo.targets.davinci.expr import Scalar
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import Buffer, CoreFn, For, Gm, If, Instr, Pipe, Stmt, View


@dataclass(frozen=True, eq=False)
class Use:
    """One operand of an instruction. `path`: the statements around it, outermost first, and the
    instruction itself."""

    path: tuple[Stmt, ...]
    pipe: Pipe
    writes: bool
    slot: Scalar

    @property
    def instr(self) -> Instr:
        s = self.path[-1]
        assert isinstance(s, Instr)
        return s


@dataclass(frozen=True, eq=False)
class Stage:
    """`first` .. `last`: statements of the home."""

    pipe: Pipe
    first: Stmt
    last: Stmt
    writes: bool


@dataclass(frozen=True, eq=False)
class Uses:
    """All uses of a buffer, in order. `home`: the loops and conditions around the home, outermost
    first."""

    buffer: Buffer
    uses: tuple[Use, ...]
    home: tuple[Stmt, ...]

    @property
    def pipes(self) -> set[Pipe]:
        return {u.pipe for u in self.uses}

    @property
    def looped(self) -> bool:
        """Whether the home runs more than once."""
        return any(isinstance(s, For) for s in self.home)

    @property
    def slots(self) -> set[Scalar]:
        return {u.slot for u in self.uses}

    def stages(self) -> list[Stage]:
        """Raises ValueError where two pipes use the buffer within one statement of the home."""
        depth = len(self.home)
        out: list[Stage] = []
        for u in self.uses:
            at = u.path[depth]
            if out and out[-1].pipe == u.pipe:
                out[-1] = Stage(u.pipe, out[-1].first, at, out[-1].writes or u.writes)
            elif out and out[-1].last is at:
                raise ValueError(f"{u.pipe} and {out[-1].pipe} in one statement")
            else:
                out.append(Stage(u.pipe, at, at, u.writes))
        return out

    @property
    def loaded(self) -> bool:
        """Whether it comes from global memory."""
        return self.uses[0].pipe == "MTE2"

    def workspace(self) -> bool:
        """Whether it is filled from another core's results."""
        source = [x.memory for x in self.uses[0].instr.ins if isinstance(x, View)]
        return any(isinstance(m, Gm) and m.workspace for m in source)


def uses(fn: CoreFn) -> list[Uses]:
    """Of every buffer that is used, in the order of their first use."""
    found: dict[Buffer, list[Use]] = {}
    for path in _paths(fn.body, ()):
        s = path[-1]
        if not isinstance(s, Instr):
            continue
        pipe = TABLE[s.op].pipe
        reads_out = s.op in ("mmad", "mmad_l1")
        ins = [x for x in s.ins if isinstance(x, View)]
        for v in (*ins, s.out, *([s.out] if reads_out else [])):
            if isinstance(v.memory, Buffer):
                found.setdefault(v.memory, []).append(Use(path, pipe, v is s.out, v.slot))
    return [Uses(b, tuple(us), _home(us)) for b, us in found.items()]


def _home(us: list[Use]) -> tuple[Stmt, ...]:
    around = us[0].path[:-1]
    for u in us[1:]:
        n = 0
        while n < min(len(around), len(u.path) - 1) and around[n] is u.path[n]:
            n += 1
        around = around[:n]
    return around


def _paths(body: tuple[Stmt, ...], around: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    for s in body:
        yield (*around, s)
        if isinstance(s, (For, If)):
            yield from _paths(s.body, (*around, s))
