"""A launch on a DaVinci chip that is not here: bind the arguments, lower, schedule.

Nothing runs in here; simulator, checker and the vendor's compiler take the programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.errors import ArgumentError, OptionError
from terrazzo.ir.ops import Kernel as TileIr
from terrazzo.lang.bind import Binding, bind
from terrazzo.lang.kernel import Kernel
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.lower import Options, lower
from terrazzo.targets.davinci.program import Program


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
    """Binds and lowers one launch. Arguments are arrays, or anything that has their types and
    shapes; of values only those of index tensors and numbers matter. Raises ArgumentError,
    KernelError, OptionError for options that `chip` or the kernel cannot follow."""
    b = bind(kernel, args, kwargs)
    options = options or Options()
    _check(options, kernel, chip)
    for t in b.tensors.values():
        if isinstance(t.array, np.ndarray) and not t.array.flags.c_contiguous:
            raise ArgumentError(
                f"argument `{t.param.name}` of `{kernel.name}`: its rows do not lie densely",
                "DaVinci targets take dense tensors: pass np.ascontiguousarray(…)",
            )
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
