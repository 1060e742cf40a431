"""Who may import whom, as data (docs/architecture.md has the picture), and what an import may
cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "terrazzo"

# A folder may import itself, `terrazzo.errors`, and of the others:
ALLOWED: dict[str, set[str]] = {
    "ir": set(),
    "lang": {"ir"},
    "targets.reference": {"ir"},
    "targets.cpu": {"ir"},
    "targets.davinci": {"ir"},
    "targets.ascend": {"ir", "targets.davinci"},
    "profile": {"ir", "targets.davinci"},
    "kernels": {"lang", "ir"},
    "runtime": {
        "ir",
        "lang",
        "targets.reference",
        "targets.cpu",
        "targets.davinci",
        "targets.ascend",
        "profile",
    },
    # models name the layout that weights are repacked to, which is the CPU target's own
    "models": {"kernels", "runtime", "ir", "targets.cpu"},
    # sampling is kernels over the logits in place, in memory of the target
    "engine": {"models", "runtime", "kernels", "targets.cpu"},
    # the engine's values, and the text that goes around it
    "serve": {"engine", "models"},
    "cli": {
        "serve",
        "engine",
        "models",
        "runtime",
        "kernels",
        "lang",
        "ir",
        "targets.cpu",
        "targets.ascend",
        "targets.davinci",
        "profile",
    },
}
# The package itself is a facade: it brings in the engine and the language when they are asked for.
FACADE = "terrazzo"


def folder(module: str) -> str:
    """The row of the table that a module of ours belongs to; "" for the package itself."""
    parts = module.split(".")[1:]
    if parts[:1] == ["targets"]:
        return ".".join(parts[:2])
    return parts[0] if parts else ""


def imports(path: Path, inner: bool) -> set[str]:
    """Our own modules that a file imports at its top, and with `inner` inside functions too."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if inner else tree.body:
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if is_module(full) else node.module)
    return {m for m in found if m.split(".")[0] == FACADE}


def is_module(name: str) -> bool:
    at = PACKAGE.parent.joinpath(*name.split("."))
    return at.is_dir() or at.with_suffix(".py").is_file()


def modules(inner: bool) -> dict[str, set[str]]:
    """Every module of the package by its dotted name, with what it imports."""
    out: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        out[name] = imports(path, inner)
    return out


MODULES = modules(inner=True)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_import_table(name: str) -> None:
    if name in (FACADE, f"{FACADE}.__main__"):
        return
    row = folder(name)
    if row in ("errors", "targets"):
        assert not MODULES[name]
        return
    assert row in ALLOWED, f"a new folder: give {row!r} a row in ALLOWED, and in the documentation"
    for other in MODULES[name]:
        column = folder(other)
        if other != "terrazzo.errors" and column not in ("", row):
            assert column in ALLOWED[row], f"{name} may not import {other}"


def test_table_has_no_cycle() -> None:
    tuple(TopologicalSorter(ALLOWED).static_order())


def test_modules_have_no_cycle() -> None:
    """While modules load: what a function imports when it is called may well be its importer."""
    top = modules(inner=False)
    graph = {n: {m for m in needs if m in top} - {n, FACADE} for n, needs in top.items()}
    tuple(TopologicalSorter(graph).static_order())


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `statement`."""
    code = f"{statement}\nimport sys\nprint(*{{m.split('.')[0] for m in sys.modules}})"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(run.stdout.split())


def test_package_alone_brings_nothing() -> None:
    assert not loaded_by("import terrazzo") & {"numpy", "llvmlite", "tokenizers", "typer", "torch"}


def test_engine_needs_no_heavy_peer() -> None:
    heavy = {"torch", "transformers", "gguf", "llama_cpp", "onnx", "scipy"}
    assert not loaded_by("import terrazzo.engine.model") & heavy


def test_command_line_starts_lean() -> None:
    """`terrazzo --help` and a mistyped option answer without the compiler, and without NumPy."""
    heavy = {"numpy", "llvmlite", "tokenizers", "jinja2", "torch", "prompt_toolkit"}
    assert not loaded_by("import terrazzo.cli.main, terrazzo.cli.commands") & heavy
