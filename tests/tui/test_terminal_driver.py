"""The driver of the terminal and the mark "busy" that it shows: when it may be written, what counts as a key."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest
from textual import events
from textual.drivers import linux_driver
from textual.geometry import Size

from tests.doors.tui import TerminalDriver, TerminalInput, terminal_input


class Mark:
    """Takes the place of the mark, and notes what it is told."""

    def __init__(self, done: list[Any], write: Any = None, width: Any = None) -> None:
        self.done, self.write, self.width = done, write, width
        self.shown = False

    def start(self) -> None:
        self.done.append("may be written")

    def stop(self) -> None:
        self.done.append("may not be written")

    def key_came(self) -> None:
        self.done.append("a key")

    def answered(self) -> bool:
        self.done.append("answered")
        return self.shown


async def test_the_mark_is_written_only_while_the_terminal_is_the_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    modes = ("start_application_mode", "stop_application_mode")
    for name in (*modes, "process_message", "run_input_thread", "write", "flush"):
        monkeypatch.setattr(
            linux_driver.LinuxDriver, name, lambda _, *given, name=name: done.append((name, *given) if given else name)
        )
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(terminal_input, "BusyMark", lambda write, width: Mark(done, write, width))
    monkeypatch.setitem(vars(linux_driver), "XTermParser", None)
    app: Any = SimpleNamespace(size=Size(80, 24))
    driver = TerminalDriver(app)
    mark: Any = driver.busy_mark
    app.size = Size(100, 30)
    assert mark.width() == 100, "that of now"
    mark.write("x")
    assert done == [("write", "x"), "flush"]
    done.clear()
    driver.start_application_mode()
    key, paste, other = events.Key("a", "a"), events.Paste("b"), events.Focus()
    for message in (key, paste, other):
        driver.process_message(message)
    driver.stop_application_mode()
    assert done == [
        "start_application_mode", "may be written", "a key", ("process_message", key), "a key",
        ("process_message", paste), ("process_message", other), "may not be written", "stop_application_mode",
    ]  # fmt: skip
    done.clear()
    driver.run_input_thread()
    assert (done, vars(linux_driver)["XTermParser"]) == (["run_input_thread"], TerminalInput)
