"""A launch on a DaVinci chip that is not here: bind the arguments, lower, schedule, profile.

`lang.Kernel.profile` and the commands `kernel compile`, `profile`, `check` start here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from terrazzo.errors import ArgumentError, OptionError
from terrazzo.ir.ops import Kernel as TileIr
from terrazzo.ir.types import DTYPES
from terrazzo.lang.bind import Binding, bind
from terrazzo.lang.kernel import Kernel, ParamSpec
from terrazzo.targets.davinci import chips
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.lowering.lower import Options, lower
from terrazzo.targets.davinci.program import Program

if TYPE_CHECKING:
    from terrazzo.profile.report import Report

PLANS = ("own", "vendor")


@dataclass(frozen=True)
class Lowered:
    """`ir`: the kernel specialised for this launch. `program`: at the buffer level."""

    binding: Binding
    ir: TileIr
    program: Program

    @property
    def tensors(self) -> dict[str, Any]:
        """The arrays by parameter."""
        return {n: t.array for n, t in self.binding.tensors.items()}

    @property
    def scalars(self) -> dict[str, int | float]:
        return self.binding.scalars

    @property
    def indices(self) -> dict[str, np.ndarray]:
        """The tensors of whole numbers, which a kernel may take addresses from."""
        return {n: x for n, x in self.tensors.items() if x.dtype.kind in "iu"}

    @property
    def spelt(self) -> dict[str, str]:
        """The arguments as people write them: "a" -> "f16[64, 576]"."""
        b = self.binding
        shapes = {n: f"{t.dtype}[{', '.join(map(str, t.shape))}]" for n, t in b.tensors.items()}
        return shapes | {n: str(x) for n, x in (b.scalars | b.consts).items()}


def lowered(
    kernel: Kernel,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    chip: Chip,
    options: Options | None = None,
) -> Lowered:
    """Binds and lowers one launch. A tensor is an array, or its shape as in the signature:
    `(64, 576)`, with its type in front where that is not fixed: `(f16, 64, 576)`; then its elements
    are 0. Of values only those of numbers and index tensors matter here. Raises ArgumentError,
    KernelError, OptionError for options that `chip` or the kernel cannot follow."""
    given = [_array(kernel, p, x) for p, x in zip(kernel.params, args, strict=False)]
    given += args[len(given) :]
    b = bind(kernel, given, {n: _array(kernel, kernel.param(n), x) for n, x in kwargs.items()})
    options = options or Options()
    _check(options, kernel, chip)
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics, "davinci")
    return Lowered(b, ir, lower(ir, b.dims, chip, options))


def _check(o: Options, kernel: Kernel, chip: Chip) -> None:
    for name, value, least, most in (
        ("cores", o.cores, 1, chip.cube_cores),
        ("vector_cores", o.vector_cores, 1, chip.vector_cores),
        ("ratio", o.ratio, 1, 2),
        ("swizzle", o.swizzle, 1, None),
        ("slots", o.slots, 1, None),
        ("ahead", o.ahead, 0, None),
    ):
        if value is None or (value >= least and (most is None or value <= most)):
            continue
        room = f"at least {least}" if most is None else f"{least} to {most} on {chip.name}"
        raise OptionError(f"option {name} is {value}", f"choose {room}")
    for name in o.bypass:
        if kernel.param(name).kind != "tensor":
            raise OptionError(f"option bypass has {name!r}, which is no tensor of `{kernel.name}`")


def _array(kernel: Kernel, p: ParamSpec, x: Any) -> Any:
    """An argument for `bind`: a shape becomes zeros, whose memory nobody touches."""
    if p.kind != "tensor":
        return x
    if not isinstance(x, tuple):
        return np.from_dlpack(x) if _foreign(x) else x
    head, extents = (x[0], x[1:]) if x and not isinstance(x[0], int) else (p.dtype, x)
    dtype = DTYPES.get(str(head))
    if dtype is None or not all(isinstance(n, int) and n >= 0 for n in extents):
        dims = ", ".join(d.name for d in p.dims)
        raise ArgumentError(
            f"argument `{p.name}` of `{kernel.name}`: {x!r} is no shape of a tensor",
            f"give its type and extents, as in (tz.f16, {dims}), or an array",
        )
    return np.zeros(extents, dtype.numpy)


def _foreign(x: Any) -> bool:
    return not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__")


def prepare(
    kernel: Kernel,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    chip: Chip,
    plan: str = "own",
    options: Options | None = None,
) -> tuple[Program, Lowered]:
    """The scheduled program of one launch (see `lowered`), and its arguments. `plan`: "own", or
    "vendor" for the addresses and events of the vendor's compiler, read back (needs the extra
    `ascend`). Raises OptionError, CapacityError too."""
    if plan not in PLANS:
        raise OptionError(f"there is no plan {plan!r}", f"choose from {', '.join(PLANS)}")
    low = lowered(kernel, args, kwargs, chip, options)
    for name, x in low.tensors.items():
        if not x.flags.c_contiguous:
            raise ArgumentError(
                f"argument `{name}` of `{kernel.name}`: its rows do not lie densely",
                "core programs take dense tensors: pass np.ascontiguousarray(…)",
            )
    if plan == "vendor":
        from terrazzo.targets.ascend.compile import compile

        planned = compile(low.program, chip).planned
        return replace(planned, notes=low.program.notes), low
    from terrazzo.targets.davinci.scheduling.schedule import schedule

    return schedule(low.program, chip), low


def profile(
    kernel: Kernel,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    chip: str = "910b2",
    plan: str = "own",
    options: Options | None = None,
) -> Report:
    """What one launch takes on `chip`, by simulation; see `prepare`."""
    from terrazzo.profile.listing import Listing
    from terrazzo.profile.replay import Inputs
    from terrazzo.profile.report import report
    from terrazzo.targets.davinci.timing.simulate import simulate

    program, low = prepare(kernel, args, kwargs, chips.chip(chip), plan, options)
    timeline = simulate(program, chips.chip(chip), low.scalars, low.indices)
    inputs = Inputs(low.scalars, low.indices)
    listing = Listing(*kernel.listing)
    return report(timeline, program, listing, inputs=inputs, plan=plan, arguments=low.spelt)
