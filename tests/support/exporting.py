"""Exported scripts beside gputui: both train, and the losses of each epoch are compared."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gputui.engine.export.left_out import TITLE
from gputui.engine.export.script import to_script
from gputui.engine.presets import Preset
from gputui.engine.process import launch
from gputui.engine.runs import Run
from gputui.engine.runs.events import EpochEnd
from gputui.engine.runs.reading import read_events

TELL = '\nprint("LOSSES", __import__("json").dumps(model.history.history["loss"]))\n'
NOT_HERE = "raise ImportError('gputui is not installed here')\n"


def named(code: str) -> set[str]:
    """The options that the comments of its lines name, the closing list not among them."""
    above = code.partition(TITLE)[0]
    comments = re.findall(r"# ((?:\w+\.\w+(?:, |(?=[:\n])))+)", above)
    return {key for comment in comments for key in comment.rstrip(", ").split(", ")}


def closing_list(code: str) -> dict[str, str]:
    """What a script says is not in it: option -> reason."""
    return dict(re.findall(r"^# (\w+\.\w+): (.*)$", code.partition(TITLE)[2], re.M))


ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONWARNINGS": "error::DeprecationWarning:__main__"}

# Each line that it reads names a folder, a script in it, and a folder that comes first where modules are looked for.
# The script runs as `python SCRIPT` would run it there, in a process of its own.
FORKING = """
import os, runpy, sys, traceback, warnings
import keras, numpy, tensorflow
for line in sys.stdin:
    folder, name, first = line.rstrip("\\n").split("\\t")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        output = os.open(name + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.path[:1] = [folder, first]
        sys.argv = [name]
        try:
            runpy.run_path(name, run_name="__main__")
            code = 0
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Scripts:
    """Runs scripts that know no gputui, each in a process forked from one that has imported TensorFlow.

    The import takes 3 s of a core; it starts no thread of TensorFlow's and no device.
    """

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env=os.environ | ENVIRONMENT,
        )  # fmt: skip

    def losses(self, code: str, folder: Path, name: str = "exported.py") -> list[float]:
        """Run the script in `folder`; the loss of each epoch."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        first = _prepared(code, folder, name)
        print(folder, name, first, sep="\t", file=self._server.stdin, flush=True)
        returncode = self._server.stdout.readline().strip()
        output = (folder / f"{name}.out").read_text()
        assert returncode == "0", output[-2000:]
        return _losses(output)

    def losses_of_both(self, preset: Preset, folder: Path) -> tuple[list[float], list[float]]:
        """By gputui and by the exported script. Both train at once."""
        code = to_script(preset)
        run, engine = launch.start(preset)
        theirs = self.losses(code, folder)
        engine.wait(200)
        return losses_of_run(run), theirs

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(60)


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    """What runs the exported scripts of a module's tests."""
    server = Scripts()
    yield server
    server.close()


def losses_of_command(code: str, folder: Path, name: str = "exported.py") -> list[float]:
    """Run the script by `python SCRIPT` in `folder`; the loss of each epoch."""
    first = _prepared(code, folder, name)
    done = subprocess.run(
        [sys.executable, name], cwd=folder, capture_output=True, text=True, timeout=200,
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(first)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return _losses(done.stdout)


def _prepared(code: str, folder: Path, name: str) -> Path:
    """Write the script; a folder with a gputui that cannot be imported."""
    blocked = folder / "blocked"
    blocked.mkdir(exist_ok=True)
    (blocked / "gputui.py").write_text(NOT_HERE)
    (folder / name).write_text(code + TELL)
    return blocked


def _losses(output: str) -> list[float]:
    (losses,) = re.findall(r"^LOSSES (.*)$", output, re.M)
    found: list[float] = json.loads(losses)
    return found


def losses_of_run(run: Run) -> list[float]:
    """The loss of each epoch of a run that has ended."""
    assert run.result is not None
    assert run.result["outcome"] == "ok", run.result["error"]
    told = read_events(run.path).of(EpochEnd)
    return [event.metrics["loss"] or 0.0 for event in told]
