"""`@tz.kernel`: the object a kernel function becomes, its signature, its specialisation to IR."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

from terrazzo.errors import ArgumentError, KernelError
from terrazzo.ir import ops
from terrazzo.ir.types import DType, ElemType, plain
from terrazzo.lang import types as t
from terrazzo.lang.frontend import Frontend
from terrazzo.lang.source import Source, locate
from terrazzo.lang.symbols import Dim, Memory, Tile
from terrazzo.lang.trace import Builder, tracing

# What has call, explain, reference and profile(kernel, args, kwargs, …), which run a kernel; None:
# the module terrazzo.runtime.launch, imported when first needed because the language itself knows
# no target.
launcher: Any = None


def _launcher() -> Any:
    global launcher
    if launcher is None:
        launcher = importlib.import_module("terrazzo.runtime.launch")
    return launcher


@dataclass(frozen=True)
class ParamSpec:
    """One parameter of a signature. `default` is `...` where there is none."""

    name: str
    kind: Literal["tensor", "scalar", "const"]
    dtype: ElemType | t.TypeVar | None = None
    dims: tuple[Dim, ...] = ()
    default: Any = ...

    @property
    def optional(self) -> bool:
        """A tensor that may be left out (its default is None)."""
        return self.kind == "tensor" and self.default is None


class Kernel:
    """A kernel in source form: call it on arrays, or specialise it to IR."""

    def __init__(
        self, fn: Callable[..., Any], aliases: tuple[tuple[str, str], ...], scope: Mapping[str, Any]
    ) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__module__ = fn.__module__
        self._source = Source(fn)
        self.params = self._signature(scope)
        self.aliases = aliases
        for name in {n for pair in aliases for n in pair}:
            if self.param(name).kind != "tensor":
                raise self._at_def(f"aliases: `{name}` is not a tensor parameter")
        self._made: dict[Any, ops.Kernel] = {}
        self._lock = threading.RLock()

    # -- signature ----------------------------------------------------------------------------
    @property
    def source(self) -> str:
        """The kernel's own source text."""
        return textwrap.dedent(self._source.text)

    @property
    def listing(self) -> tuple[str, int, tuple[str, ...]]:
        """Its file, the number of its first line there, and its lines."""
        s = self._source
        return s.file, s.first, tuple(s.text.rstrip("\n").split("\n"))

    @property
    def doc(self) -> str:
        """First line of the docstring."""
        return (self.__doc__ or "").strip().split("\n")[0]

    def param(self, name: str) -> ParamSpec:
        for p in self.params:
            if p.name == name:
                return p
        raise ArgumentError(
            f"kernel `{self.name}` has no parameter `{name}`",
            f"it has: {', '.join(p.name for p in self.params)}",
        )

    @property
    def dims(self) -> dict[str, Dim]:
        """Dims by name, in order of first appearance in the signature."""
        return {d.name: d for p in self.params for d in p.dims}

    def _at_def(self, what: str, remedy: str = "", arg: str = "") -> KernelError:
        node: Any = self._source.function
        args = node.args
        node = next(
            (a for a in [*args.posonlyargs, *args.args, *args.kwonlyargs] if a.arg == arg), node
        )
        return locate(KernelError(what, remedy), self._source.loc(node))

    def _signature(self, scope: Mapping[str, Any]) -> tuple[ParamSpec, ...]:
        try:
            notes = inspect.get_annotations(
                self.fn, locals={**scope, **_closure(self.fn)}, eval_str=True
            )
        except NameError as e:
            raise self._at_def(f"the signature uses `{e.name}`, which is not defined") from e
        out = []
        for p in inspect.signature(self.fn).parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise self._at_def(
                    f"`*{p.name}` is not a kernel parameter", "name every parameter", p.name
                )
            default = ... if p.default is p.empty else p.default
            out.append(self._spec(p.name, notes.get(p.name), default))
        return tuple(out)

    def _spec(self, name: str, note: Any, default: Any) -> ParamSpec:
        if isinstance(note, t.Gm):
            if default not in (..., None):
                raise self._at_def(
                    f"tensor `{name}` has default {default!r}", "only None is possible", name
                )
            return ParamSpec(name, "tensor", note.dtype, note.dims, default)
        if note is t.const:
            return ParamSpec(name, "const", default=default)
        if isinstance(note, (DType, t.TypeVar)):
            return ParamSpec(name, "scalar", note, default=default)
        said = "no annotation" if note is None else f"annotation {note!r}"
        raise self._at_def(
            f"parameter `{name}` has {said}",
            "annotate it with tz.gm[…], an element type or tz.const",
            name,
        )

    # -- specialisation -----------------------------------------------------------------------
    def specialise(
        self,
        dtypes: Mapping[str, Any] | None = None,
        consts: Mapping[str, Any] | None = None,
        present: Collection[str] = (),
        statics: Mapping[str, int] | None = None,
        target: str = "",
    ) -> ops.Kernel:
        """The kernel as IR, with types, constants, optional tensors and static dims resolved.

        dtypes: type variable -> element type. consts: values of `tz.const` parameters that differ
        from their defaults; `target` says whose defaults apply (`tz.by_target`).
        present: names of the optional tensors that are given. statics: extents of static dims.
        The same request gives the same object. Raises ArgumentError for a wrong request,
        KernelError for an error in the source.
        """
        types = dict(dtypes or {})
        values = self._consts(consts or {}, target)
        given = [
            p for p in self.params if p.kind == "tensor" and (not p.optional or p.name in present)
        ]
        for name in present:
            if self.param(name).kind != "tensor":
                raise ArgumentError(f"`{name}` of kernel `{self.name}` is not a tensor")
        extents = self._statics(given, statics or {})
        key = (
            tuple(sorted(types.items(), key=lambda kv: kv[0])),
            tuple((n, type(v), v) for n, v in values.items()),
            tuple(p.name for p in given),
            tuple(sorted(extents.items())),
        )
        with self._lock:
            if key not in self._made:
                self._made[key] = self._trace(types, values, given, extents)
            return self._made[key]

    def _consts(self, consts: Mapping[str, Any], target: str) -> dict[str, Any]:
        for name in consts:
            if self.param(name).kind != "const":
                raise ArgumentError(f"`{name}` of kernel `{self.name}` is not a tz.const")
        out = {}
        for p in self.params:
            if p.kind == "const":
                value = consts.get(p.name, p.default)
                if value is ...:
                    raise ArgumentError(f"kernel `{self.name}`: constant `{p.name}` is missing")
                out[p.name] = value.on(target) if isinstance(value, t.ByTarget) else value
        return out

    def _statics(self, given: list[ParamSpec], statics: Mapping[str, int]) -> dict[str, int]:
        needed = {d.name for p in given for d in p.dims if d.static}
        missing = sorted(needed - statics.keys())
        if missing:
            raise ArgumentError(
                f"kernel `{self.name}`: the extent of static dim `{missing[0]}` is missing"
            )
        return {d: int(statics[d]) for d in statics if d in needed}

    def _type(self, p: ParamSpec, types: Mapping[str, ElemType]) -> ElemType:
        if not isinstance(p.dtype, t.TypeVar):
            assert p.dtype is not None
            return p.dtype
        bound = types.get(p.dtype.name)
        if bound is None:
            raise ArgumentError(
                f"kernel `{self.name}`: type `{p.dtype}` of `{p.name}` is not given"
            )
        if plain(bound) not in p.dtype.choices:
            names = ", ".join(map(str, p.dtype.choices))
            raise ArgumentError(
                f"argument `{p.name}` of `{self.name}`: expected one of {names}, got {bound}"
            )
        return bound

    def _trace(
        self,
        types: dict[str, ElemType],
        consts: dict[str, Any],
        given: list[ParamSpec],
        statics: dict[str, int],
    ) -> ops.Kernel:
        node = self._source.function.args
        places = {
            a.arg: self._source.loc(a) for a in [*node.posonlyargs, *node.args, *node.kwonlyargs]
        }
        params: dict[str, ops.Param] = {}
        for p in self.params:
            if p in given or p.kind == "scalar":
                dims = tuple(d.name for d in p.dims)
                dtype = self._type(p, types)
                params[p.name] = ops.Param(p.name, dtype, dims, p.kind == "tensor", places[p.name])
        builder = Builder(self.name, params, types, statics)
        with tracing(builder):
            arguments: dict[str, Any] = dict(consts)
            for p in self.params:
                if p.kind == "tensor":
                    got = params.get(p.name)
                    arguments[p.name] = got and Memory(p.name, got.dtype, got.dims)
                elif p.kind == "scalar":
                    builder.loc = places[p.name]
                    arguments[p.name] = Tile(
                        builder.op("arg", (), params[p.name].dtype, (), name=p.name)
                    )
            outer = {**self.fn.__globals__, **_closure(self.fn)}
            Frontend(self._source, builder, arguments, outer).run()
        aliases = tuple(a for a in self.aliases if a[0] in params and a[1] in params)
        return ops.Kernel(
            self.name,
            tuple(params.values()),
            tuple(builder.axes.values()),
            tuple(builder.scopes[0].body),
            tuple((n, _printable(v)) for n, v in consts.items()),
            tuple(sorted(statics.items())),
            aliases,
        )

    # -- running ------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays, device buffers or DLPack tensors; outputs are written in place.

        On this CPU, or on the NPU that a tensor is on; `target="ascend"` takes arrays there and
        back.
        """
        return _launcher().call(self, args, kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """IR after each pass, memory plan and target code for these arguments."""
        return _launcher().explain(self, args, kwargs)

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the reference target, which defines what every op means."""
        return _launcher().reference(self, args, kwargs)

    def profile(
        self, *args: Any, chip: str = "910b2", plan: str = "own", options: Any = None, **kwargs: Any
    ) -> Any:
        """What a launch would take on a DaVinci chip, by simulation: a `profile.report.Report`.

        A tensor is an array, or only its shape, with its type in front where the signature leaves
        it open: `add.profile(*3 * [(tz.f16, 1 << 20)])`. `plan`: "own" or "vendor"; `options`: how
        to lower, `targets.davinci.lowering.lower.Options`.
        """
        return _launcher().profile(self, args, kwargs, chip, plan, options)

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(p.name for p in self.params)})>"


def _printable(value: Any) -> int | float | str:
    """A constant as it is printed: numbers and text as they are, functions by their name."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        if callable(value):
            return f"{value.__module__}.{value.__qualname__}"
        return str(value)
    return value


def _closure(fn: Callable[..., Any]) -> dict[str, Any]:
    """Variables of enclosing functions that the kernel uses."""
    names = fn.__code__.co_freevars
    out = {}
    for name, cell in zip(names, fn.__closure__ or (), strict=True):
        try:
            out[name] = cell.cell_contents
        except ValueError:  # not yet bound, such as the kernel's own name
            continue
    return out


_registry: dict[str, Kernel] = {}


def registry() -> dict[str, Kernel]:
    """Every kernel defined so far, by name; the latest of equal names."""
    return dict(_registry)


@overload
def kernel(fn: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(
    *, aliases: Collection[tuple[str, str]] = ()
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    fn: Callable[..., Any] | None = None, /, *, aliases: Collection[tuple[str, str]] = ()
) -> Any:
    """Make a kernel of a function. `aliases`: pairs of tensors that may share memory."""
    scope = dict(
        sys._getframe(1).f_locals
    )  # names in postponed annotations may be local to the caller

    def make(f: Callable[..., Any]) -> Kernel:
        made = Kernel(f, tuple((a, b) for a, b in aliases), scope)
        _registry[made.name] = made
        return made

    return make if fn is None else make(fn)
