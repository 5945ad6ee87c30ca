"""The live view of a run: its keys, the mouse, what is copied, and how its end is said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widget import Widget

from tests.doors.engine import Process, Run, launch
from tests.doors.tui import (
    ChartScreen,
    CopyScreen,
    GputuiApp,
    LiveScreen,
    LogLines,
    RunsScreen,
    ValueInput,
    base_app,
)
from tests.support import recorded
from tests.support.form_pilot import form, opened, seen, settled, told
from tests.support.tiny import Tiny, still, tiny, wait_for

ESCAPES = "\x1b[31mred\x1b[0m [red]not markup[/red] \x07\n" + "".join(f"line {i}\n" for i in range(300))


def at(seconds: float) -> Any:
    """A clock that stands still, so many seconds into the recording."""
    return lambda: recorded.BEGAN + seconds


async def test_foreign_text_is_shown_as_it_is(home: Path) -> None:
    told = tuple(("input", f"warning {number}") for number in range(12))
    run = recorded.write(home, gpus=1, seconds=30, log=ESCAPES, description="[bold]odd\x1b[2J[/bold]", warnings=told)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "line 299")
        assert "[bold]odd?[2J[/bold]" in shown
        await pilot.press("l", "home")
        shown = await wait_for(pilot, "?[31mred?[0m [red]not markup[/red] ?")
        assert "\x1b" not in shown
        await pilot.press("escape")
        await pilot.resize_terminal(80, 24)  # so small a screen leaves the log to a key
        shown = await wait_for(pilot, "12 warnings: l m shows all")
        assert "input: warning 11 " in shown, "the newest are shown"


@pytest.fixture
def engine(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for an engine: counts the requests to stop, and ends with the second."""
    code = (
        "import signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: (seen.append(1), print(len(seen), flush=True)))\n"
        "print('ready', flush=True)\n"
        "while len(seen) < 2: time.sleep(0.01)\n"
    )
    words = ["-m", "gputui.engine", str(home / "runs" / "recorded")]  # by which it is known as this run's
    process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


async def test_stop_then_stop_now(home: Path, engine: subprocess.Popen[bytes]) -> None:
    run = recorded.write(home, gpus=1, seconds=60, outcome=None, engine_pid=engine.pid)
    assert Process.of(engine.pid).alive()
    assert engine.stdout is not None
    async with Tiny(lambda: LiveScreen(run, clock=at(60))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "Stop")
        await pilot.press("x")
        shown = await wait_for(pilot, "keeps no checkpoint")
        assert "of 480 steps, 0:52 of training, cannot be resumed" in shown, shown
        await pilot.press("enter")  # Keep running is the answer unless another is chosen
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, LiveScreen))
        await pilot.press("x")
        await wait_for(pilot, "keeps no checkpoint")
        await pilot.press("s")
        assert engine.stdout.readline() == b"1\n"
        await wait_for(pilot, "stopping  training")
        await pilot.press("x")
        await wait_for(pilot, "Stop it now?")
        await pilot.press("k")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, LiveScreen))
        assert engine.poll() is None
        await pilot.press("x")
        await wait_for(pilot, "Stop it now?")
        await pilot.press("s")
        await wait_for(pilot, lambda: engine.poll() is not None)
        await wait_for(pilot, "crashed")


async def test_a_run_that_ends_while_it_is_asked_about_is_said_to_have_ended(
    home: Path, engine: subprocess.Popen[bytes]
) -> None:
    run = recorded.write(home, gpus=1, seconds=60, outcome=None, engine_pid=engine.pid)
    async with Tiny(lambda: LiveScreen(run, clock=at(60))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "Stop")
        await pilot.press("x")
        await wait_for(pilot, "keeps no checkpoint")
        engine.kill()
        engine.wait()
        await pilot.press("s")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, LiveScreen) and told(pilot) != "")
        assert told(pilot) == "recorded is not running (it is crashed)"


async def test_run_again_and_change(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded.write(home, name="20260921-120000-mine-2", gpus=0, seconds=30, settings=("batch_size=96",))
    started: list[Any] = []

    def start(preset: Any) -> tuple[Run, str]:
        started.append(preset)
        return run, "engine"

    monkeypatch.setattr(launch, "start", start)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("r")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        assert started[0].name == "mine"
        assert started[0].options.input.batch_size == 96
        assert tiny(pilot).engines == ["engine"]
        await pilot.press("e")
        assert tiny(pilot).opened == [("run", run), ("form", run.file("preset.yaml"))]


async def click(pilot: Pilot[None], text: str, line: int | None = None) -> None:
    """Click the text where it stands on the screen; `line`: of those that have it."""
    await wait_for(pilot, text)
    before = None
    while before != (found := _places(pilot, text)) or not found:  # a screen that was just opened is laid out anew
        before = found
        await pilot.pause(0.1)
    y, x = found[line or 0]
    await pilot.click(offset=(x + len(text) // 2, y))


def _places(pilot: Pilot[None], text: str) -> list[tuple[int, int]]:
    return [(at, shown.index(text)) for at, shown in enumerate(seen(pilot).split("\n")) if text in shown]


async def wheel(pilot: Pilot[None], over: Widget, down: bool = True) -> None:
    kind = events.MouseScrollDown if down else events.MouseScrollUp
    await pilot._post_mouse_events([kind], over, offset=(10, 3), button=0)


async def test_places_rows_headers_charts_buttons_and_footer_keys_can_be_clicked(home: Path) -> None:
    runs = [recorded.write(home, name=f"20260921-1{n}0000-run{n}", gpus=1, seconds=40) for n in range(2)]
    async with opened((120, 40)) as pilot:
        app = pilot.app
        assert isinstance(app, GputuiApp)
        options = form(pilot).options
        await pilot.resize_terminal(120, 24)
        await wheel(pilot, options)
        await wait_for(pilot, lambda: max(column.scroll_y for column in [options, *options.children]) > 0)
        await wheel(pilot, options, down=False)
        await pilot.resize_terminal(120, 40)
        await click(pilot, "batch_size ")
        await click(pilot, "32 samples")
        await wait_for(pilot, lambda: isinstance(app.focused, ValueInput))
        await pilot.press("escape")
        await click(pilot, "Runs")
        await wait_for(pilot, "2 of 2 runs")
        screen = app.screen
        assert isinstance(screen, RunsScreen)
        before = screen.table.order
        await click(pilot, "state")
        await wait_for(pilot, lambda: screen.table.order != before)
        await click(pilot, "Delete", line=-1)
        await click(pilot, " Keep ")
        await wait_for(pilot, lambda: app.screen is screen)
        assert all(run.path.exists() for run in runs)
        await click(pilot, "run1")
        await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen))
        await still(pilot, "✓ done", "throughput")
        await click(pilot, "throughput")
        await wait_for(pilot, lambda: isinstance(app.screen, ChartScreen))
        chart = app.screen
        assert isinstance(chart, ChartScreen)
        await wheel(pilot, chart.chart, down=False)
        await wait_for(pilot, lambda: chart.view.window is not None)
        await click(pilot, "esc Back", line=-1)
        await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen))
        await click(pilot, "Form")
        await settled(pilot)
        assert app.screen is form(pilot)


async def test_id_folder_log_and_chart_values_are_copied(home: Path) -> None:
    for name in ("a-run", "z-run"):  # long before, and afterwards
        recorded.write(home, name=name, gpus=0, seconds=20)
    before = recorded.write(home, name="b-run", gpus=0, seconds=20)
    run = recorded.write(home, gpus=1, seconds=40, log="first line\nsecond line\nthird line\n")
    changes = {"train.epochs": {"from": 5, "to": 9}}
    run.file("origin.json").write_text(json.dumps({"preset": "mine", "file": "/x/mine.yaml", "changes": changes}))
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(120, 40), notifications=True) as pilot:
        await wait_for(pilot, "third line")
        for keys, copied in (
            (["y", "y"], run.id),
            (["y", "2"], str(run.path)),
            (["y", "3"], f"gputui --preset run:{run.id}"),
            (["y", "4"], "gputui --preset mine --set train.epochs=9"),
            (["y", "5"], run.file("preset.yaml").read_text()),
            (["y", "6"], None),
        ):
            await pilot.press(*keys)
            await wait_for(pilot, lambda: isinstance(pilot.app.screen, LiveScreen))
            assert copied is None or pilot.app.clipboard == copied
        assert "first line\nsecond line" in pilot.app.clipboard
        assert str(base_app.file()) in told(pilot)
        await wait_for(pilot, lambda: base_app.file().read_text() == pilot.app.clipboard)
        await pilot.press("y")
        screen = pilot.app.screen
        assert isinstance(screen, CopyScreen)
        names = [one.name for one in screen.offered]
        assert all("\n" in one.text() for one in screen.offered[4:])  # also charts are empty that have no values yet
        await pilot.press(*["down"] * names.index("GPU 0 busy"), "enter")
        await wait_for(pilot, lambda: "\t" in pilot.app.clipboard)
        assert pilot.app.clipboard.startswith("seconds\tGPU 0 (%)\n0.7\t92\n")
        await selected(pilot)
        await pilot.press("c")
        await wait_for(pilot, lambda: tiny(pilot).opened == [("compare", [before, run])])


async def selected(pilot: Pilot[None]) -> None:
    """What is marked with the mouse in the log is copied without a question."""
    log = pilot.app.screen.query_one(LogLines)
    at = next(y for y in range(log.size.height) if "second line" in log.render_line(y).text)
    await pilot.mouse_down(log, offset=(0, at))
    await pilot.hover(log, offset=(6, at))
    await pilot.mouse_up(log, offset=(6, at))
    await pilot.press("y")
    await wait_for(pilot, lambda: pilot.app.clipboard.strip() == "second")


def test_where_the_terminal_takes_nothing_there_is_a_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert base_app.keep("text", {}).endswith(f"it is in {home / 'copied.txt'}")
    assert base_app.file().read_text() == "text"
    assert home.stat().st_mode & 0o077 == 0
    base_app.file().unlink()
    base_app.file().mkdir()
    assert "there is no other way" in base_app.keep("text", {})
    asked: list[Any] = []

    def run(command: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
        asked.append((command, more["input"]))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert "prefix, then ]" in base_app.keep("tëxt", {"TMUX": "/tmp/tmux,1,0"})
    assert asked == [(["tmux", "load-buffer", "-w", "-"], "tëxt".encode())]


async def test_a_click_on_a_key_hint_does_what_the_key_does(home: Path) -> None:
    async with opened((200, 24)) as pilot:
        app = pilot.app
        await click(pilot, "/ finds options")
        await wait_for(pilot, lambda: app.focused is not None and app.focused.id == "search")
        await pilot.press("escape")
        await pilot.press("S")
        await wait_for(pilot, "enter accepts, esc leaves")
        await click(pilot, "esc leaves")
        await wait_for(pilot, lambda: app.screen is form(pilot))
        await pilot.press("T", "s")
        await wait_for(pilot, "Find the fastest settings of")
        await click(pilot, "esc leaves")
        await wait_for(pilot, lambda: app.screen is form(pilot))
        recorded.write(home, gpus=0, seconds=40)
        await click(pilot, "Runs")
        await wait_for(pilot, "1 of 1 run")
        await pilot.press("C")
        await click(pilot, "space shows or hides")
        await click(pilot, "enter takes it")
        await wait_for(pilot, lambda: isinstance(app.screen, RunsScreen) and "run" not in app.screen.table.names)
        await pilot.press("u")
        await wait_for(pilot, lambda: isinstance(app.screen, RunsScreen) and "run" in app.screen.table.names)
        assert not app.screen.query("FooterKey.-disabled"), "no hint that a click could not act on"
