"""The demo model's file for the oracle tests: fetched once, verified by hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from terrazzo.models import store


@pytest.fixture(scope="session")
def model_path() -> Path:
    return store.pull("smollm2")
