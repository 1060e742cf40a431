"""docs/kernels.md runs as it stands."""

import importlib.util
import re
from pathlib import Path

DOC = Path(__file__).parents[2] / "docs" / "kernels.md"


def test_document_runs(tmp_path: Path) -> None:
    """All its Python blocks, one after the other, as one module; its asserts hold."""
    blocks = re.findall(r"^```python\n(.*?)^```", DOC.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    file = tmp_path / "document.py"
    file.write_text("\n".join(blocks))
    spec = importlib.util.spec_from_file_location("document", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.attention.doc == "Causal attention of sequences of unequal lengths in one launch."
