"""Compiles the stand-in with the system's compiler; without one the tests that need it fail."""

from __future__ import annotations

import pytest

from tests.support.fakenvml import FakeNvml, compiled, compiler
from tests.support.needs import lacks


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    if compiler() is None:
        lacks("cc")
    return compiled(tmp_path_factory.mktemp("nvml"))
