"""A user's own training in the process of the tests: what their code changes of the process is put back."""

from __future__ import annotations

import random
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.training import Build, Training

Write = Callable[..., Training]
PROGRAMS = Path(__file__).parent / "programs"


def program(file: str, function: str) -> str:
    """One of the programs in that folder, as workload.entry names it."""
    return f"{PROGRAMS}/{file}.py:{function}"


@pytest.fixture
def own(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """own("source of train.py", "epochs=1", ...): a training of it, built in a folder of its own; nothing has run.

    For a program that is there already: own(program("own_steps", "gan"), ...).
    """
    import keras
    import tensorflow as tf

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))

    def make(source: str, *settings: str) -> Training:
        entry = source if source.startswith(f"{PROGRAMS}/") else f"{tmp_path}/train.py:build"
        folder = Path(entry).parent
        if entry != source:
            (folder / "train.py").write_text(textwrap.dedent(source))
        _forget(folder)
        return build(f"entry={entry}", f"folder={folder}", *settings)

    yield make
    _forget(tmp_path)
    _forget(PROGRAMS)
    keras.config.enable_traceback_filtering()
    tf.debugging.enable_traceback_filtering()


def _forget(folder: Path) -> None:
    """The modules of their code: each process of gputui's runs one program only."""
    within = f"{folder}/"  # as text: TensorFlow has thousands of modules
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(within):
            del sys.modules[name]


def resumed(own: Write, source: str, whole: Training, step: int, *settings: str) -> Training:
    """Another training of the same program, in which everything random stands elsewhere, from that step on."""
    import tensorflow as tf

    random.seed(99)
    np.random.seed(99)
    again = own(source, *settings)
    random.seed(77)
    np.random.seed(77)
    tf.random.get_global_generator().reset_from_seed(3)
    name = f"step-{step:010d}"
    shutil.copytree(whole.run.file("checkpoints") / name, again.run.file("checkpoints") / name)
    again.loop.run(step)
    return again
