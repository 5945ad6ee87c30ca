"""What the terminal gets while runs go on and when one ends: its title, the bell, a notification, a message."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from gputui.tui.base.settings import Settings
from gputui.tui.reading.queue_places import Queue, Waiting
from gputui.tui.reading.run_list import Ended, Now
from gputui.tui.screens.base import FollowingScreen
from gputui.tui.screens.runs import watch as run_watch
from gputui.tui.screens.runs.watch import RunWatch, TerminalTitle, notification, title_of, titled, words_of

from tests.support.tiny import wait_for

RUNS = tuple(Run(Path("/runs") / name) for name in ("a", "b", "c"))


@pytest.mark.parametrize(
    ("now", "title"),
    [
        (Now(), ""), (Now(title="r1 cnn", done=0.5), ""),
        (Now(RUNS[:1], "r1 cnn", 0.5), "50 % r1 cnn - gputui"), (Now(RUNS[:1], "r1 cnn", 0.0), "0 % r1 cnn - gputui"),
        (Now(RUNS[:1], "r1 cnn"), "r1 cnn - gputui"), (Now(RUNS[:2], "r1 cnn", 1.0), "100 % r1 cnn (+1) - gputui"),
        (Now(RUNS, "r1 cnn"), "r1 cnn (+2) - gputui"),
    ],
)  # fmt: skip
def test_the_title_names_the_newest_run_its_progress_and_how_many_more_there_are(now: Now, title: str) -> None:
    assert title_of(now) == title


def test_the_header_names_measurements_that_are_under_way_before_the_queue() -> None:
    queued = Now(RUNS[:1], queue=Queue({"b": Waiting("b", 1), "c": Waiting("c", 2)}))
    assert words_of(Now(), ["proof", "search", "proof"]) == ("proof, search under way",)
    assert words_of(queued, ["sweep"]) == (
        "sweep under way, 1 train, 2 wait", "sweep under way, 2 wait", "sweep under way", "1 train, 2 wait", "2 wait",
    )  # fmt: skip
    assert words_of(queued, []) == ("1 train, 2 wait", "2 wait")


def test_the_title_of_the_terminal_is_kept_once_and_brought_back() -> None:
    written: list[str] = []
    title = TerminalTitle(written.append)
    for text in ("", "a", "a", "b", "", "", "c"):
        title.show(text)
    keep, back = "\x1b[22;2t", "\x1b[23;2t"
    assert written == [f"{keep}{titled('a')}", titled("b"), titled("") + back, f"{keep}{titled('c')}"]


def test_titles_and_notifications_are_one_line_of_at_most_120_characters() -> None:
    assert titled("a\nb\x1b[2J") == "\x1b]2;a b?[2J\x07"
    assert titled("x" * 121) == f"\x1b]2;{'x' * 120}\x07"
    assert notification("x" * 121, {}) == f"\x1b]9;{'x' * 120}\x07"


@pytest.mark.parametrize(
    ("environment", "passes", "sequence"),
    [
        ({}, "off", "\x1b]9;done\x07"), ({"TERM": "xterm"}, "on", "\x1b]9;done\x07"),
        ({"TERM": "screen-256color"}, "on", ""), ({"STY": "1"}, "on", ""),
        ({"TMUX": "1", "TERM": "screen"}, "on", "\x1bPtmux;\x1b\x1b]9;done\x07\x1b\\"),
        ({"TMUX": "1"}, " all \n", "\x1bPtmux;\x1b\x1b]9;done\x07\x1b\\"),
        ({"TMUX": "1"}, "off", ""), ({"TMUX": "1"}, "", ""), ({"TMUX": "1"}, None, ""),
    ],
)  # fmt: skip
def test_tmux_gets_a_notification_only_if_its_user_lets_it_pass(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], passes: str | None, sequence: str
) -> None:
    def run(command: list[str], **given: Any) -> Any:
        assert command == ["tmux", "show-options", "-Apqv", "-t", "%7", "allow-passthrough"]
        assert (given["env"], given["timeout"]) == (environment, 1.0)
        if passes is None:
            raise subprocess.TimeoutExpired(command, 1.0)
        return SimpleNamespace(stdout=passes)

    environment = environment | {"TMUX_PANE": "%7"}
    monkeypatch.setattr(subprocess, "run", run)
    assert notification("done", environment) == sequence


class App:
    """The application, as far as the watch knows it, in a terminal."""

    is_headless = False
    running_count, queue_words = 0, ()

    def __init__(self) -> None:
        self.settings = Settings(Path("/none"))
        self.did: list[Any] = []
        self.screen = SimpleNamespace()

    def bell(self) -> None:
        self.did.append("bell")

    def withdraw(self) -> None:
        self.did.append("withdrawn")

    def run_worker(self, work: Any, group: str, thread: bool) -> None:
        assert (group, thread) == ("running", True)
        work()

    def call_later(self, do: Any, *given: Any) -> None:
        do(*given)

    def write_sequence(self, sequence: str) -> None:
        self.did.append(sequence)

    def notify(self, text: str, **more: Any) -> None:
        self.did.append((text, more))


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setattr(sys, "__stderr__", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(os, "environ", {"TERM": "xterm"})
    return App()


@pytest.mark.parametrize(
    ("state", "words", "severity"),
    [
        ("ok", "done", "information"), ("stopped", "stopped", "information"),
        ("timeout", "ended by its time limit", "information"), ("oom", "out of memory", "error"),
        ("error", "failed", "error"), ("crashed", "crashed", "error"),
    ],
)  # fmt: skip
def test_the_end_of_a_run_is_said_once_and_announced_as_the_settings_say(
    app: App, state: Any, words: str, severity: str
) -> None:
    watching = RunWatch(app)  # type: ignore[arg-type]
    ended = Now(ended=(Ended("r1 cnn\x1b", "a", state),))
    message = (f"r1 cnn?: {words}", {"severity": severity, "markup": False, "timeout": 8.0})
    sequence = f"\x1b]9;gputui: r1 cnn?: {words}\x07"
    for bell, desktop in ((False, False), (True, False), (False, True), (True, True)):
        app.settings.change("notify.bell", bell)
        app.settings.change("notify.desktop", desktop)
        app.did.clear()
        watching._take(ended)
        announced = [*(["bell"] if bell else []), *([sequence] if desktop else [])]
        assert app.did == ["withdrawn", *announced, message]
    app.did.clear()
    app.screen = SimpleNamespace(run_folder=RUNS[0])
    watching._take(ended)
    assert app.did == ["withdrawn", "bell", sequence], "the screen shows it"
    app.screen = SimpleNamespace(run_folder=RUNS[1])
    watching._take(ended)
    assert app.did[-1] == message


def test_a_title_is_set_only_if_the_settings_and_the_terminal_allow_it_and_is_brought_back_at_the_end(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def titles() -> list[Any]:
        app.did.clear()
        watching = RunWatch(app)  # type: ignore[arg-type]
        started: list[Any] = []
        app.run_worker = lambda *work, **more: started.append(more)  # type: ignore[method-assign]
        watching.start()
        assert started == [{"group": "running", "thread": True}]
        watching._take(Now(RUNS[:2], "r1 cnn"))
        assert app.running_count == 2
        watching.close()
        watching._take(Now(RUNS[:1], "r1 cnn"))
        return app.did

    on = ["\x1b[22;2t\x1b]2;r1 cnn (+1) - gputui\x07", "\x1b]2;\x07\x1b[23;2t"]
    app.settings.change("notify.title", True)
    assert titles() == on
    app.settings.change("notify.title", False)
    assert titles() == []
    app.settings.change("notify.title", True)
    app.is_headless = True
    assert titles() == []
    app.is_headless = False
    os.environ["TERM"] = "linux"
    assert titles() == []
    os.environ["TERM"] = "xterm"
    assert titles() == on
    monkeypatch.setattr(sys, "__stderr__", SimpleNamespace(isatty=lambda: False))
    assert titles() == []


async def test_what_reads_in_threads_ends_also_if_the_application_fails_while_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process would wait for them."""

    async def fails(_app: GputuiApp) -> None:
        raise ValueError("left badly")

    monkeypatch.setattr(run_watch, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(GputuiApp, "_close_all", fails)
    app = GputuiApp(presets.resolve("quickstart"))

    async def read_and_leave() -> None:
        async with app.run_test() as pilot:
            app.action_show("gpus")
            await wait_for(pilot, lambda: isinstance(app.screen, FollowingScreen) and app.screen.latest is not None)

    with pytest.raises(ValueError, match="left badly"):
        await read_and_leave()
    reading = [worker for worker in app.workers if worker.group in ("running", "reading")]
    assert {worker.group for worker in reading} == {"running", "reading"}
    try:
        async with asyncio.timeout(60):
            while not all(worker.is_finished for worker in reading):
                await asyncio.sleep(0.02)
    finally:
        app.run_watch.close()
        for screen in app.screen_stack:
            if isinstance(screen, FollowingScreen):
                screen.on_unmount()
