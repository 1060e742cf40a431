"""`terrazzo kernel list | show | run | explain`: the operator library, from source to assembly."""

from __future__ import annotations

import importlib
import pkgutil
import statistics
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli import options, terminal
from terrazzo.errors import OptionError

if TYPE_CHECKING:
    from terrazzo.lang.kernel import Kernel, ParamSpec
    from terrazzo.runtime.launch import Launch

commands = typer.Typer(help="Look at the kernels, and run them.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A kernel (`terrazzo kernel list`).")]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DIM=N,…",
        help="Extents, such as m=64,k=576. Common names are known too: batch, tokens, dim.",
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option("--dtype", metavar="T=f16,…", help="Element types, by the signature's variables."),
]
With = Annotated[
    list[str] | None, typer.Option("--with", metavar="NAME,…", help="Optional tensors to give.")
]
Consts = Annotated[
    list[str] | None, typer.Option("--const", metavar="TILE=N,…", help="Compile-time constants.")
]
Stage = Annotated[
    list[str] | None, typer.Option(help="Only this stage; may be repeated. Default: all.")
]

ENOUGH_S, FEWEST, MOST = 0.3, 5, 1000


@commands.command("list")
def list_(json: options.Json = False) -> None:
    """Every kernel of the library, with the first line of its contract."""
    kernels = library()
    if json:
        terminal.print_json([describe(k) for k in kernels.values()])
    else:
        rows = [(k.name, k.__module__.rpartition(".")[2], k.doc) for k in kernels.values()]
        terminal.table(("KERNEL", "FILE", "WHAT IT DOES"), rows)


@commands.command()
def show(name: Name, json: options.Json = False) -> None:
    """A kernel's signature and source."""
    kernel = find(name)
    if json:
        terminal.print_json({**describe(kernel), "source": kernel.source})
        return
    rows = [
        (p["name"], p["kind"], p["type"], p["shape"], p["default"])
        for p in describe(kernel)["parameters"]
    ]
    terminal.table(("PARAMETER", "KIND", "TYPE", "SHAPE", "DEFAULT"), rows)
    print(f"\n{kernel.source.rstrip()}")


@commands.command()
def explain(
    name: Name,
    shape: Shape = None,
    dtype: Types = None,
    with_: With = None,
    const: Consts = None,
    stage: Stage = None,
    json: options.Json = False,
) -> None:
    """A kernel's way to machine code: IR after each pass, memory plan, LLVM IR, assembly."""
    kernel = find(name)
    args = arguments(kernel, shape, dtype, with_, const)
    from terrazzo.runtime import launch
    from terrazzo.targets.cpu.isa import detect

    stages = launch.explain(kernel, (), args)
    texts = {
        "source": kernel.source, **dict(stages.passes), "nest": stages.nest, "llvm": stages.llvm,
        "assembly": "",
    }  # fmt: skip
    chosen = _pairs(stage)
    for wrong in chosen - texts.keys():
        raise OptionError(f"there is no stage {wrong!r}", f"choose from {', '.join(texts)}")
    if not chosen or "assembly" in chosen:
        texts["assembly"] = stages.assembly(detect())
    shown = {n: text for n, text in texts.items() if not chosen or n in chosen}
    if json:
        terminal.print_json({"kernel": name, "isa": detect().name, "stages": shown})
        return
    for title, text in shown.items():
        extra = {"nest": ": loops and memory plan", "assembly": f" for {detect().why()}"}.get(
            title, ""
        )
        print(f"==== {title}{extra}\n{text.rstrip()}\n")


@commands.command()
def run(
    name: Name,
    shape: Shape = None,
    dtype: Types = None,
    with_: With = None,
    const: Consts = None,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    strict: options.Strict = False,
    json: options.Json = False,
) -> None:
    """Run a kernel on random inputs: timed, and compared with the reference target."""
    kernel = find(name)
    args = arguments(kernel, shape, dtype, with_, const, seed)
    from terrazzo.cli.kernel_inputs import copied
    from terrazzo.runtime import launch
    from terrazzo.runtime import threads as thread_count

    count = thread_count.default_threads() if threads is None else threads
    if count < 1:
        raise OptionError(f"threads is {count}", "choose at least 1")
    ours, theirs = ({n: copied(x) for n, x in args.items()} for _ in range(2))
    with terminal.progress(f"compiling {name}") as line:
        start = time.perf_counter()
        with options.checked(strict):
            ready = launch.prepare(kernel, (), ours)
        compile_s = time.perf_counter() - start
        launch.run(ready, count)
        line.report("running the reference", 0, 0)
        start = time.perf_counter()
        launch.reference(kernel, (), theirs)
        reference_s = time.perf_counter() - start
        outputs = ready.code.kernel.stored()
        errors = {n: difference(ours[n], theirs[n]) for n in outputs}
        line.report("timing", 0, 0)
        times = timed(ready, count)
    result = {
        "kernel": name,
        "arguments": {n: spelt(x) for n, x in args.items()},
        "threads": count,
        "time_s": statistics.median(times),
        "fastest_s": min(times),
        "runs": len(times),
        "bytes": sum(nbytes(x) for x in args.values()),
        "compile_s": compile_s,
        "reference_s": reference_s,
        "outputs": errors,
    }
    terminal.print_json(result) if json else _report(result)


def _report(r: Mapping[str, Any]) -> None:
    terminal.table(("ARGUMENT", "VALUE"), r["arguments"].items())
    rate = r["bytes"] / r["time_s"] / 1e9
    print(
        f"\n{terminal.seconds(r['time_s'])} (median of {r['runs']}, fastest"
        f" {terminal.seconds(r['fastest_s'])}) on {r['threads']} threads; its arguments are"
        f" {terminal.nbytes(r['bytes'])}, so {rate:.2f} GB/s"
        f"\nreference {terminal.seconds(r['reference_s'])}; made ready in"
        f" {terminal.seconds(r['compile_s'])}"
    )
    for name, e in r["outputs"].items():
        print(
            f"{name}: largest difference from the reference {e['max_error']:.3g}"
            f" (largest value {e['max_value']:.3g}); {e['different']:,} of {e['values']:,} values"
            " differ"
        )


def library() -> dict[str, Kernel]:
    """The kernels defined in terrazzo/kernels, by name."""
    import terrazzo.kernels as package
    from terrazzo.lang.kernel import Kernel

    found: dict[str, Kernel] = {}
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        kernels = (x for x in vars(module).values() if isinstance(x, Kernel))
        found.update((k.name, k) for k in kernels if k.__module__ == info.name)
    return dict(sorted(found.items()))


def find(name: str) -> Kernel:
    kernels = library()
    if name not in kernels:
        raise OptionError(f"there is no kernel {name!r}", f"choose from {', '.join(kernels)}")
    return kernels[name]


def describe(kernel: Kernel) -> dict[str, Any]:
    """Name, contract and parameters, as text."""
    return {
        "name": kernel.name,
        "module": kernel.__module__,
        "doc": kernel.doc,
        "parameters": [
            {
                "name": p.name,
                "kind": p.kind,
                "type": _type(p),
                "shape": f"[{', '.join(d.name for d in p.dims)}]" if p.kind == "tensor" else "",
                "default": "" if p.default is ... else _constant(p.default),
            }
            for p in kernel.params
        ],
    }


def _type(p: ParamSpec) -> str:
    choices = getattr(p.dtype, "choices", None)
    if choices is None:
        return "" if p.dtype is None else str(p.dtype)
    return f"{p.dtype}: {', '.join(map(str, choices))}"


def _constant(value: Any) -> str:
    return value.__name__ if callable(value) else str(value)


def arguments(
    kernel: Kernel,
    shape: Iterable[str] | None,
    dtype: Iterable[str] | None,
    with_: Iterable[str] | None,
    const: Iterable[str] | None,
    seed: int = 0,
    filled: bool = True,
) -> dict[str, Any]:
    """Keyword arguments of a call, from the options of the command line. Unless `filled`, only
    index tensors have values."""
    from terrazzo.cli import kernel_inputs

    sizes = kernel_inputs.extents(kernel, _numbers("--shape", shape))
    chosen = kernel_inputs.types(kernel, named("--dtype", dtype))
    given = kernel_inputs.make(kernel, sizes, chosen, _pairs(with_), seed, filled)
    return given | _numbers("--const", const)


def _pairs(items: Iterable[str] | None) -> set[str]:
    return {part.strip() for item in items or () for part in item.split(",") if part.strip()}


def named(option: str, items: Iterable[str] | None) -> dict[str, str]:
    """What `option` gives by name: "a=1,b=2" -> {"a": "1", "b": "2"}."""
    out = {}
    for part in sorted(_pairs(items)):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise OptionError(f"{option} has {part!r}", "spell it name=value, name=value")
        out[name.strip()] = value.strip()
    return out


def _numbers(option: str, items: Iterable[str] | None) -> dict[str, int]:
    out = {}
    for name, value in named(option, items).items():
        if not value.isdecimal():
            raise OptionError(f"{option} has {name}={value}", "the value is a whole number")
        out[name] = int(value)
    return out


def timed(launch: Launch, threads: int) -> list[float]:
    """Seconds of single runs, the first few thrown away: enough of them for a median."""
    from terrazzo.runtime.launch import Ready

    ready = Ready(launch, threads)
    for _ in range(3):
        ready.run()
    out: list[float] = []
    end = time.perf_counter() + ENOUGH_S
    while len(out) < FEWEST or (time.perf_counter() < end and len(out) < MOST):
        start = time.perf_counter()
        ready.run()
        out.append(time.perf_counter() - start)
    return out


def difference(got: Any, want: Any) -> dict[str, float | int]:
    """How far an output is from the reference's, over its values."""
    import numpy as np

    from terrazzo.cli.kernel_inputs import values

    a, b = (values(x).astype(np.float64) for x in (got, want))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(a - b))
    return {
        "max_error": float(np.nan_to_num(error, nan=np.finfo(np.float64).max).max(initial=0.0)),
        "max_value": float(np.nan_to_num(np.abs(b)).max(initial=0.0)),
        "different": int((~same).sum()),
        "values": int(same.size),
    }


def spelt(x: Any) -> str:
    """An argument in a few characters: f32[64, 576], or the number."""
    shape = getattr(x, "shape", None)
    if shape is None:
        return str(x)
    from terrazzo.ir.types import element

    dtype = x.format if hasattr(x, "format") else element(x.dtype)
    return f"{dtype}[{', '.join(map(str, shape))}]"


def nbytes(x: Any) -> int:
    data = getattr(x, "data", x) if hasattr(x, "format") else x
    return int(getattr(data, "nbytes", 0))
