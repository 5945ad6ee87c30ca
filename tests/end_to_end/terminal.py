"""A real terminal for the tests: tmux runs the command, types keys and shows the screen."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.front_door import COMMAND, until

needs_tmux = pytest.mark.needs("tmux")

_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")  # of the cursor, and colours: between the pieces of a line


class Terminal:
    """One tmux server with one window, in which one command runs."""

    def __init__(
        self, arguments: list[str], size: tuple[int, int], environment: Mapping[str, str], written: str, then: str
    ) -> None:
        self._socket = f"gputui-{uuid.uuid4().hex[:8]}"
        width, height = size
        self._environment = dict(environment)
        command = shlex.join([*COMMAND, *arguments])
        shell = f"{command}; echo exit code $?; {then}"
        self._written, self._before_keys = Path(written), 0
        log = f"exec cat > {shlex.quote(written)}"
        words = ["new-session", "-d", "-s", "t", "-x", str(width), "-y", str(height), shell]
        self._tmux(*words, ";", "pipe-pane", "-t", "t", log)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self._socket, "-f", "/dev/null", *words]
        environment = self._environment  # and nothing of the tests' own, such as COLUMNS
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, *keys: str) -> None:
        """Press keys, named as tmux names them."""
        self._before_keys = len(self._written.read_bytes())
        self._tmux("send-keys", "-t", "t", *keys)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-t", "t", "-x", str(width), "-y", str(height))

    @property
    def screen(self) -> str:
        """What is seen."""
        return self._tmux("capture-pane", "-p", "-t", "t")

    @property
    def pid(self) -> int:
        """The process id of the shell in the window."""
        return int(self._tmux("display-message", "-p", "-t", "t", "#{pane_pid}"))

    def shows(self, *texts: str, seconds: float = 120) -> str:
        """Wait until all texts are seen at once; the screen then."""
        try:
            until(lambda: all(text in self.screen for text in texts), seconds)
        except AssertionError:
            raise AssertionError(f"{texts} not seen on:\n{self.screen}") from None
        return self.screen

    def has_said(self, text: str) -> None:
        """Wait until the text has been written since the last keys: a message that may be gone again before a look."""
        try:
            until(lambda: text.encode() in _MOVES.sub(b"", self._written.read_bytes()[self._before_keys :]))
        except AssertionError:
            raise AssertionError(f"{text!r} not said on:\n{self.screen}") from None

    def still(self, seconds: float = 0.5) -> None:
        """Wait until the screen has not changed for as long as a person takes to read it."""
        shown, since, looks = self.screen, time.monotonic(), 0
        while looks < 7 or time.monotonic() - since < seconds:
            time.sleep(0.05)
            looks += 1
            if (now := self.screen) != shown:
                shown, since, looks = now, time.monotonic(), 0

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self._socket, "kill-server"], capture_output=True, check=False)


@contextmanager
def terminal(
    *arguments: str, size: tuple[int, int] = (120, 40), then: str = "exec cat", **more: str
) -> Iterator[Terminal]:
    """A terminal in which gputui runs, with the test's own home; more environment by keyword.

    `then` is what the window does after the command has ended; `cat` keeps its last words, so that they can be read.
    """
    kept = [name for name in ("GPUTUI_HOME", "XDG_CONFIG_HOME", "PATH", "HOME") if name in os.environ]
    environment = {name: os.environ[name] for name in kept} | {"LANG": "C.UTF-8", "COLORTERM": "truecolor"} | more
    with tempfile.NamedTemporaryFile() as written:
        opened = Terminal(list(arguments), size, environment, written.name, then)
        try:
            yield opened
        finally:
            opened.close()
