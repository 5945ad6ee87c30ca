"""Start an engine for a run folder, in a session of its own, so that it outlives the terminal.

Separates the viewer from the run: after `start` they meet only in the run folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from . import checkpoint_files, paths, runs, stop_signals
from .presets import Preset
from .runs import Run, RunError
from .spawn import WARM

RESUMABLE = ("stopped", "crashed", "timeout", "oom", "error")


def settle(preset: Preset, folder: Path) -> Preset:
    """The preset as it is launched: relative paths count from `folder`, and a seed is drawn where none was given."""
    options = paths.absolute(preset.options, dict.fromkeys(paths.KEYS, str(folder)))
    if options.train.seed is None:
        train = options.train.model_copy(update={"seed": secrets.randbelow(2**31)})
        options = options.model_copy(update={"train": train})
    return Preset(preset.name, options, preset.description, preset.origins)


def start(
    preset: Preset, path: Path | None = None, paths_from: Path | None = None
) -> tuple[Run, subprocess.Popen[bytes]]:
    """Create the run folder and start its engine; the caller may forget the returned process.

    `path` is the run folder, if it is to be another than a new one among the runs; the preset's relative paths count
    from `paths_from`, the current folder if not given.
    """
    text = settle(preset, paths_from or Path.cwd()).to_yaml()
    run = runs.create(preset.name, text) if path is None else runs.create_at(path, text)
    return run, _spawn_or_remove(run)


class Warm:
    """An engine and a trainer that have imported TensorFlow and wait for a run, so that it starts 5 seconds sooner.

    They touch no device and hold about 0.6 GB of memory. They end by themselves when whoever started them goes.
    """

    def __init__(self) -> None:
        with stop_signals.held():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gputui.engine", WARM],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self, preset: Preset) -> tuple[Run, subprocess.Popen[bytes]]:
        """As `start`; a warm engine that has died in the meantime is replaced by a cold one."""
        run = runs.create(preset.name, settle(preset, Path.cwd()).to_yaml())
        try:
            self._say(f"{run.path}\n")
        except OSError:
            self.process = _spawn_or_remove(run)
        return run, self.process

    def close(self) -> None:
        """Nobody wants a run: engine and trainer end."""
        with contextlib.suppress(OSError):
            self._say("")

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        if self.process.stdin.closed:
            raise BrokenPipeError("the warm engine has its run already")
        with self.process.stdin as stdin:
            stdin.write(line.encode())


def resume(run: Run) -> subprocess.Popen[bytes]:
    """Start an engine that goes on from the last checkpoint, in the same run folder; raises RunError."""
    state = run.state
    if state not in RESUMABLE:
        why = "it ended well" if state == "ok" else f"it is {state}"
        raise RunError(f"{run.id} cannot be resumed: {why}")
    if not _has_whole_checkpoint(run):
        raise RunError(f"{run.id} has no checkpoint to resume from; set run.checkpoint before the next run")
    if run.file("result.json").exists():
        number = len(list(run.path.glob("result-*.json"))) + 1
        run.file("result.json").rename(run.file(f"result-{number}.json"))
    run.file("status.json").unlink(missing_ok=True)
    os.utime(run.file("preset.yaml"))
    return _spawn(run)


def _spawn_or_remove(run: Run) -> subprocess.Popen[bytes]:
    """A new run whose engine cannot be started leaves nothing behind."""
    try:
        return _spawn(run)
    except OSError:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def _has_whole_checkpoint(run: Run) -> bool:
    """Raises RunError where there are checkpoints and none is whole."""
    try:
        return checkpoint_files.whole_step(run.file("checkpoints")) is not None
    except checkpoint_files.Damage as damage:
        again = f"gputui --preset {run.file('preset.yaml')} trains anew"
        raise RunError(f"{run.id} has no whole checkpoint to resume from ({damage})\n{again}") from None


def _spawn(run: Run) -> subprocess.Popen[bytes]:
    with run.file("engine.log").open("ab") as log, stop_signals.held():
        return subprocess.Popen(
            # -P: a file in the current folder must not stand in for a module of ours.
            [sys.executable, "-P", "-m", "gputui.engine", str(run.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
