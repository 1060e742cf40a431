"""`target`: how a kernel test runs a kernel; every test runs on each target."""

import pytest
from kernel_launch import TARGETS, Target


@pytest.fixture(scope="session", params=sorted(TARGETS))
def target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]
