"""The documents' Python blocks run as they stand."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def run(name: str, blocks: int, folder: Path) -> ModuleType:
    """All Python blocks of a document, one after the other, as one module; its asserts hold."""
    found = re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.M | re.S)
    assert len(found) == blocks
    file = folder / "document.py"
    file.write_text("\n".join(found))
    spec = importlib.util.spec_from_file_location("document", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kernels(tmp_path: Path) -> None:
    module = run("kernels.md", 6, tmp_path)
    assert module.attention.doc == "Causal attention of sequences of unequal lengths in one launch."


def test_ascend_c(tmp_path: Path) -> None:
    """Its kernels run, on the CPU, and are right where it says so."""
    module = run("ascend-c.md", 4, tmp_path)
    assert module.add_custom.doc.startswith("z = x + y")


@pytest.mark.parametrize("name", sorted(p.name for p in DOCS.glob("*.md")))
def test_links_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (DOCS / name).read_text()):
        assert (DOCS / link).exists(), link
