"""Marks all tests of this folder, which need libraries that only `make test-extras` installs."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the marker `extras` on each test of this folder; `items` are those of the whole session."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.extras)
