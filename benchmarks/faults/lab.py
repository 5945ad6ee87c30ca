"""What all cases share: a home of its own for each case, the command as a user runs it, and functions that wait and
check.

A case is judged by what can be seen from outside: exit codes, what the terminal shows, the files of the run, and the
processes that are left. Every process that a case starts is found by a mark in its environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).parent / "gputui")
MARK = "GPUTUI_FAULTS_CASE"
LIVES = ("running", "starting", "stopping")
# Exact, resumable, and long enough to be disturbed: about 1,500 steps.
LONG = (
    "model=mlp",
    "width=0.1",
    "epochs=5",
    "steps_per_epoch=300",
    "deterministic=true",
    "run.checkpoint=100",
    "batch_size=16",
    "shuffle=500",
)
SHORT = ("model=mlp", "width=0.1", "epochs=1", "steps_per_epoch=30", "batch_size=16")
ENDLESS = ("model=mlp", "width=0.1", "epochs=100000", "batch_size=16", "run.checkpoint=20")

Done = subprocess.CompletedProcess[str]


class Violation(Exception):
    """A case has shown a wrong behaviour of gputui, which the text describes."""


def settings(*options: str) -> list[str]:
    return [part for option in options for part in ("--set", option)]


class Lab:
    """One case: a folder with a home, the environment of its processes, and functions that run commands and read
    results.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="faults-")) if folder is None else folder
        self.home = self.folder / "home"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "GPUTUI_HOME": str(self.home), "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config"),
            "TMPDIR": str(self.folder), MARK: self.mark, "CUDA_VISIBLE_DEVICES": "-1",
        }  # fmt: skip

    # ---- commands -----------------------------------------------------------------------------

    def gputui(self, *arguments: str, before: tuple[str, ...] = (), timeout: float = 180, **more: Any) -> Done:
        """Run the command until it ends, and return its exit code and output. Raises Violation if it prints a
        traceback.

        `before` are words of a command that runs it. `more` are arguments of subprocess.run.
        """
        told: dict[str, Any] = {"env": self.environment, "cwd": self.folder} | more
        done = subprocess.run(
            [*before, COMMAND, *arguments], capture_output=True, text=True, timeout=timeout, errors="replace",
            stdin=subprocess.DEVNULL, check=False, **told,
        )  # fmt: skip
        if "Traceback" in done.stderr or "unexpected " in done.stderr:
            raise Violation(f"{arguments[0]}: {done.stderr[-300:]}")
        return done

    def open(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        """Start the command and return its process, without waiting for its end. `more` are arguments of
        subprocess.Popen.
        """
        pipe = subprocess.PIPE
        told: dict[str, Any] = {"env": self.environment, "cwd": self.folder, "stdout": pipe, "stderr": pipe} | more
        return subprocess.Popen([COMMAND, *arguments], stdin=subprocess.DEVNULL, text=True, **told)

    def detached(self, *options: str, preset: str = "quickstart") -> Path:
        """Start a run in the background with these options (KEY=VALUE), and return its folder."""
        done = self.gputui("--preset", preset, *settings(*options), "--detach")
        check(done.returncode == 0, f"a run cannot be started: {done.stderr}")
        return self.home / "runs" / done.stdout.strip()

    # ---- looking ------------------------------------------------------------------------------

    def states(self, before: tuple[str, ...] = ()) -> dict[str, str]:
        """Return the state of each run by its id, as `gputui runs` prints them. `before` are words of a command that
        runs it.
        """
        done = self.gputui("runs", "--json", before=before)
        check(done.returncode == 0, f"runs: exit code {done.returncode}: {done.stderr}")
        words = {"done": "ok", "failed": "error"}  # those of results
        states = {run["id"]: run["state"] for run in map(json.loads, done.stdout.splitlines())}
        return {name: words.get(state, state) for name, state in states.items()}

    def state(self, run: Path, before: tuple[str, ...] = ()) -> str:
        return self.states(before).get(run.name, "not listed")

    def processes(self, module: str = "") -> list[int]:
        """Return the ids of the case's processes that are alive and have `module` in their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    mine = f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
                    zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if mine and not zombie and module in line:
                        found.append(int(entry.name))
        return found

    def engines(self) -> list[int]:
        return self.processes("-m gputui.engine ")

    def trainers(self) -> list[int]:
        return self.processes("-m gputui.engine.trainer ")

    def end(self, run: Path, seconds: float = 120) -> dict[str, Any]:
        """Wait at most `seconds` until no engine and no trainer of the case is alive. Return the run's result, empty
        without one.
        """
        until(lambda: not self.engines() and not self.trainers(), seconds, "the run has ended")
        return result(run)

    def close(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), 20, "what was killed is gone")
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def lab() -> Iterator[Lab]:
    made = Lab()
    try:
        yield made
    finally:
        made.close()


def lives(pid: int) -> bool:
    """Return True if the process has not ended. A zombie process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def check(holds: object, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise Violation(f"not within {seconds:g} s: {what}")


def result(run: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((run / "result.json").read_text()))
    return {}


def events(run: Path, *types: str, name: str = "events.jsonl") -> list[dict[str, Any]]:
    """Return the events of the given types in the file `name` of a run. An incomplete last line is left out."""
    try:
        lines = (run / name).read_text(errors="replace").split("\n")[:-1]
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [event for event in found if event.get("type") in types]


def step(run: Path) -> int:
    return max((event["step"] for event in events(run, "progress")), default=0)


def losses(run: Path) -> dict[int, float]:
    """Return the loss of each epoch by its number. If a resumed run has repeated an epoch, the last loss counts."""
    return {event["epoch"]: event["metrics"]["loss"] for event in events(run, "epoch")}
