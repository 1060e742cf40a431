"""The demo model for tests: fetched once into the user's own models folder, verified by hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from terrazzo.models import store
from terrazzo.models.gguf import GGUF


@pytest.fixture(scope="session")
def model_path() -> Path:
    return store.pull("smollm2")


@pytest.fixture(scope="session")
def model(model_path: Path) -> GGUF:
    return GGUF.open(model_path)
