"""The mark of tests that need the vendor's compiler, which the `ascend` extra brings (161 MB)."""

from __future__ import annotations

import pytest

from terrazzo.errors import OptionError
from terrazzo.targets.ascend import tools


def _installed() -> bool:
    try:
        tools.find()
    except OptionError:
        return False
    return True


needs_wheel = pytest.mark.skipif(not _installed(), reason="the `ascend` extra is not installed")
