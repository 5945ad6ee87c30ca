"""A user's own training in the process of the tests: what their code changes of the process is put back."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from .training import Build, Training

Write = Callable[..., Training]


@pytest.fixture
def own(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """own("source of train.py", "epochs=1", ...): a training of it, built in a folder of its own; nothing has run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def make(source: str | Path, *settings: str) -> Training:
        path = source if isinstance(source, Path) else tmp_path / "train.py"
        if isinstance(source, str):
            path.write_text(textwrap.dedent(source))
        return build(f"entry={path}:build", f"folder={path.parent}", *settings)

    return make
