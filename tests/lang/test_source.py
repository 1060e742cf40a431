"""Finding a kernel's source: wherever it is defined, places are those of the file."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from terrazzo.errors import KernelError
from terrazzo.lang.kernel import Kernel

TEXT = '''"""A module with kernels in unusual places."""
import terrazzo.lang as tz

n, = tz.dims("n")

def other(f): return f

if True:
    class Holder:
        @staticmethod
        def make():
            @tz.kernel(
                aliases=[("y", "x")],
            )
            def deep(x: tz.gm[tz.f32, n],
                     y: tz.gm[tz.f32, n]):
                """Text
            less indented."""
                for i in tz.grid(n, step=4):
                    y[i] = "µ" * x[i]
            return deep

@tz.kernel
def plain(x: tz.gm[tz.f32, n]):
    for i in tz.grid(n, step=4):
        x[i] = x[i] + 1.0
'''


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def test_nested_definition(tmp_path: Path) -> None:
    file = tmp_path / "unusual_places.py"
    file.write_text(TEXT)
    kernel: Kernel = module(file).Holder.make()
    assert kernel.source.startswith("@tz.kernel(\n    aliases")
    with pytest.raises(KernelError) as e:
        kernel.specialise()
    line = TEXT.splitlines().index('                    y[i] = "µ" * x[i]') + 1
    # Columns count characters, although Python's own count bytes.
    assert str(e.value) == (
        f"{file}:{line}:28: `*` takes tiles and numbers, got 'µ'\n"
        '    y[i] = "µ" * x[i]\n'
        "           ^^^^^^^^^^"
    )


def test_later_edits_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "edited_later.py"
    file.write_text(TEXT)
    made = module(file)
    file.write_text("# gone\n" + TEXT)
    assert "x[i] + 1.0" in made.plain.source
    made.plain.specialise()
