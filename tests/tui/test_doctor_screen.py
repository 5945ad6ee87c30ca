"""The doctor's screen: what it shows, and that nothing it waits for keeps anybody from leaving."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import psutil
import pytest
from gputui.engine.doctor import Finding
from gputui.tui.base.base_app import BaseApp
from gputui.tui.screens.doctor import DoctorScreen
from gputui.tui.screens.help import HelpScreen
from gputui.tui.wording.doctor import conclusion
from textual.pilot import Pilot
from textual.widgets import DataTable

from tests.support.fakenvml import FakeNvml
from tests.support.front_door import until
from tests.support.machines import tensorflow, whole
from tests.support.terminal import needs_tmux, terminal
from tests.support.tiny import text_of, wait_for

pytest_plugins = ("tests.support.fakenvml.fixture",)

FOUND = [
    Finding("ok", "CPU", "2 CPUs"), Finding("warning", "memory", "little"), Finding("note", "NUMA", "one node"),
    Finding("error", "driver", "it is [broken]", "mend it"), Finding("warning", "disk", "nearly full"),
]  # fmt: skip


class App(BaseApp):
    """The application whose form names a Python."""

    training_python = "/opt/python"


class Examination:
    """Finds at once."""

    made: list[bool]
    ended = 0

    def __init__(self, deep: bool, python: str | None) -> None:
        assert python == App.training_python
        self.made.append(deep)

    def findings(self) -> list[Finding]:
        return FOUND

    def end(self) -> None:
        Examination.ended += 1


async def shown(pilot: Pilot[None], screen: DoctorScreen) -> DataTable[object]:
    """The table once the findings are in it."""
    await pilot.pause(0.05)
    await wait_for(pilot, lambda: not screen.progress_text)
    return screen.query_one(DataTable)


async def test_the_screen_shows_findings_with_words_and_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Examination, "made", [], raising=False)
    monkeypatch.setattr(Examination, "ended", 0)
    monkeypatch.setattr("gputui.tui.screens.doctor.Examination", Examination)
    app = App()
    async with app.run_test(size=(100, 30)) as pilot:
        screen = DoctorScreen()
        await app.push_screen(screen)
        table = await shown(pilot, screen)
        rows = [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]
        assert rows[0][0] in ("✗ error", "X error")
        assert rows[0][1:] == ["driver", "it is [broken]\nmend it"]
        assert [row[1] for row in rows[:3]] == ["driver", "memory", "disk"]
        levels = [row[0].split()[-1] for row in rows]
        assert levels == sorted(levels, key=("error", "warning", "note", "ok").index)
        await pilot.press("D")
        await shown(pilot, screen)
        assert Examination.made == [False, True]
        for findings, sign, style in (
            (FOUND, rows[0][0].split()[0], "bad"),  # something is broken
            ([Finding("note", "GPU", "no NVIDIA GPU"), *FOUND[:3]], "", "value"),  # no GPU is no alarm
        ):
            screen.findings = findings
            lines = [line for row in screen._status_lines(90, 1) for line in row]
            assert {look for _, look in lines} == {style}
            assert " ".join(text for text, _ in lines) == f"{sign} {conclusion(findings)}".strip()
            screen.progress_text = "importing TensorFlow ..."
            assert screen._status_lines(90, 1) == [[("importing TensorFlow ...", "label")]]
            screen.progress_text = ""
        await pilot.press("escape")
        assert app.screen is not screen
    assert Examination.ended == 1


async def test_long_findings_are_wrapped_at_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility (it is 'compute' now), or lend it a GPU"
    monkeypatch.setattr(Examination, "made", [], raising=False)
    monkeypatch.setattr(Examination, "findings", lambda self: [Finding("warning", "driver", "it is missing", long)])
    monkeypatch.setattr("gputui.tui.screens.doctor.Examination", Examination)
    app = App()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = DoctorScreen()
        await app.push_screen(screen)
        table = await shown(pilot, screen)
        assert table.virtual_size.width <= 80
        assert table.ordered_rows[0].height > 2
        words = " ".join(text_of(app).split())
        assert "No GPU has answered, so it is unknown whether training on a GPU works; 1 warning(s)." in words
        assert "(it is 'compute' now), or lend it a GPU" in words
        await pilot.resize_terminal(200, 30)
        await pilot.pause()
        assert table.ordered_rows[0].height == 2


async def test_help_over_a_deep_check_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still said to go on, and no second one is started."""
    released = threading.Event()

    class Slow(Examination):
        def findings(self) -> list[Finding]:
            if self.made[-1]:
                released.wait(200)
            return FOUND

    monkeypatch.setattr(Examination, "made", [], raising=False)
    monkeypatch.setattr("gputui.tui.screens.doctor.Examination", Slow)
    app = App()
    async with app.run_test(size=(100, 30)) as pilot:
        screen = DoctorScreen()
        await app.push_screen(screen)
        await shown(pilot, screen)
        await pilot.press("D")
        await app.push_screen(HelpScreen(screen))
        await pilot.press("escape")
        await pilot.pause(0.05)
        assert app.screen is screen
        assert screen.progress_text == "importing TensorFlow ..."
        await pilot.press("D")
        released.set()
        await shown(pilot, screen)
        assert screen.progress_text == ""
        assert Examination.made == [False, True]
        left = threading.Event()
        left.set()
        assert list(screen.readings(left)) == []  # the screen was left before the thread began
        assert Examination.made == [False, True]


def importing(pid: int) -> list[psutil.Process]:
    """The processes below one in which the doctor imports TensorFlow."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found += [process] if "list_physical_devices" in " ".join(process.cmdline()) else []
    return found


@pytest.mark.slow
@needs_tmux
def test_leaving_does_not_wait_for_a_driver_or_a_tensorflow_that_hangs(nvml: FakeNvml, tmp_path: Path) -> None:
    environment = whole(nvml, tmp_path / "machine", "hang=DeviceGetPersistenceMode", 1) | tensorflow(tmp_path, "hang")
    environment |= {"GPUTUI_WARM": "0", "TERM": os.environ.get("TERM", "xterm")}
    with terminal(size=(120, 40), **environment) as window:
        window.shows("Start")
        window.type("F6")
        window.shows("0 of 1 GPU(s) answered")
        window.type("D")
        window.shows("importing TensorFlow")
        (child,) = until(lambda: importing(window.pid))
        window.type("C-q")
        assert "exit code 0" in window.shows("exit code")
        assert not child.is_running()
