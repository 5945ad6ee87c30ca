"""gputui as a user runs it: the installed command, in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doors.engine import Run, fields_of, runs

# Under nohup, or in the background of a script, these are ignored: by the tests, and by what they start.
AS_IN_A_TERMINAL = ["/usr/bin/env", "--default-signal=HUP,INT"]
COMMAND = [str(Path(sys.executable).parent / "gputui")]

DOCUMENTS = Path(__file__).parents[2] / "docs"


def documented(document: str, title: str) -> list[str]:
    """The indented blocks of a section of a document: its commands, presets and scripts."""
    level = title.partition(" ")[0]
    text = "\n" + (DOCUMENTS / document).read_text(encoding="utf-8")
    section = text.partition(f"\n{title}\n")[2]
    section = re.split(rf"\n#{{2,{max(2, len(level))}}} ", section)[0]
    found = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", section, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE).strip("\n") + "\n" for block in found]


def gputui(*arguments: str, timeout: float = 180, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [*AS_IN_A_TERMINAL, *COMMAND, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL, **more
    )


@dataclass(frozen=True)
class Finished:
    """A run that a command with --json has trained to its end."""

    code: int
    events: list[dict[str, Any]]
    errors: str

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def only(self, kind: str) -> dict[str, Any]:
        (event,) = self.of(kind)
        return event


def trained(*settings: str, **more: Any) -> Finished:
    """The preset quickstart with these settings, to its end."""
    arguments = [word for setting in settings for word in ("--set", setting)]
    done = gputui("--preset", "quickstart", "--json", *arguments, **more)
    return Finished(done.returncode, events(done.stdout), done.stderr)


def opened(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    """Start a command and leave it running."""
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    command = [*AS_IN_A_TERMINAL, *COMMAND, *arguments]
    process: subprocess.Popen[str] = subprocess.Popen(
        command, stdout=pipe, stderr=pipe, stdin=nothing, text=True, **more
    )
    return process


def detached(*arguments: str) -> Run:
    """Start a run in the background."""
    done = gputui(*arguments, "--detach")
    assert done.returncode == 0, done.stderr
    return runs.find(done.stdout.strip())


def events(text: str) -> list[dict[str, Any]]:
    """What --json printed."""
    return [json.loads(line) for line in text.splitlines()]


def until(condition: Callable[[], Any], seconds: float = 200, every: float = 0.1) -> Any:
    """Wait for something to become true, and return it; on a busy machine a training takes minutes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(every)
    raise AssertionError(f"not within {seconds} s")


def happened(run: Run, *types: str) -> list[dict[str, Any]]:
    """The run's events of these types so far."""
    return [event for event in _all(run) if event["type"] in types]


def step(run: Run) -> int:
    """How far the run has come."""
    steps = [event["step"] for event in happened(run, "progress")]
    return max(steps, default=0)


def last_losses(run: Run) -> dict[str, float]:
    """The metrics of the last epoch that ended."""
    return dict(happened(run, "epoch")[-1]["metrics"])


def ended(run: Run, seconds: float = 200) -> dict[str, Any]:
    """Wait for the end; the result."""
    until(lambda: run.result is not None and not run.alive("engine") and not run.alive("trainer"), seconds)
    assert run.result is not None
    return dict(run.result)


def _all(run: Run) -> Iterator[dict[str, Any]]:
    for name in ("events.jsonl", "telemetry.jsonl"):
        yield from map(fields_of, runs.Tail(run.file(name)).read())
