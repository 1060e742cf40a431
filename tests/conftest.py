"""Golden files: `pytest --update-goldens` writes what the code gives now instead of comparing."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

# NumPy's own threads only get in the way: of each other on a busy machine, and of our pool.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A shell's background job (`make test &`) ignores Ctrl-C; what tests start and stop must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="rewrite golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """`golden(path, text)`: the file at `path` holds `text`."""
    update = request.config.getoption("--update-goldens")

    def check(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest --update-goldens and review it"
        assert path.read_text() == text

    return check
