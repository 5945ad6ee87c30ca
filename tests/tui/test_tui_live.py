"""The live view on recorded runs: every kind of run, every size, and what can be done with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run, titles
from gputui.engine.runs.titles import name_of
from gputui.engine.system.identity import Process
from gputui.tui.app import GputuiApp
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.drawing.live import head
from gputui.tui.drawing.rows import plain
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.widgets.gpu_cards import GpuCard
from gputui.tui.widgets.log_view import LogLines
from textual.pilot import Pilot
from textual.widgets._footer import FooterKey

from tests.support import recorded, recorded_proof
from tests.support.form_pilot import told
from tests.support.tiny import Tiny, lines_of, still, text_of, tiny, wait_for

SIZES = [(80, 24), (120, 40)]
OTHER_SIZES = [(120, 40), (80, 24)]  # of an application that has been opened in the first of SIZES, and back again
ESCAPES = "\x1b[31mred\x1b[0m [red]not markup[/red] \x07\n" + "".join(f"line {i}\n" for i in range(300))


def at(seconds: float) -> Any:
    """A clock that stands still, so many seconds into the recording."""
    return lambda: recorded.BEGAN + seconds


def going_on(home: Path, **changes: Any) -> Run:
    """A run whose engine seems to be this process."""
    return recorded.write(home, outcome=None, engine_pid=os.getpid(), **changes)


async def resized(pilot: Pilot[None], size: tuple[int, int], what: str) -> str:
    """In another size, with the text on the screen again; the screen's text."""
    await pilot.resize_terminal(*size)
    return await wait_for(pilot, what)


async def test_a_finished_run_with_its_summary(home: Path, snapshot: Any) -> None:
    run = recorded.write(home, gpus=2, seconds=100)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            shown = await resized(pilot, size, "✓ done")
            for word in ("throughput", "loss", "GPU 0", "GPU 1", "busy", "memory", "9,800", "first step", "input wait"):
                assert word in shown, (word, size)
            assert "TF" in shown or size[0] < 100
            assert "Run again" in shown
            assert "Stop" not in shown
            await still(pilot)
            assert lines_of(pilot.app) == snapshot


async def test_a_running_run_and_the_verdict_in_its_head(home: Path) -> None:
    said = recorded_proof.DIAGNOSIS | {"confidence": 0.6}
    run = going_on(home, gpus=1, seconds=100, diagnosis=said, mfu=0.41)
    async with Tiny(lambda: LiveScreen(run, clock=at(100))).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            await resized(pilot, size, "training")
            shown = await wait_for(pilot, "! Input-bound")
            for word in ("epoch", "elapsed", "left", "samples/s", "GPU 0", "H100 80GB", "700 W", "MHz", "GiB"):
                assert word in shown, (word, size)
            assert "Stop" in shown
            assert "host" in shown
            assert "Run again" not in shown
            verdict = shown[shown.index("Input-bound") :].split("\n")[: 2 if size[0] == 80 else 1]
            assert "steps wait 62 % of their time for input, mostly in" in verdict[0]
            assert verdict[-1].rstrip().endswith(" (likely)"), "no word of it is lost"
            assert "MFU  41 %" in shown
        longer = said | {"t": recorded.BEGAN + 100, "type": "diagnosis", "sentence": "Healthy: [b]\x1b " + "word " * 18}
        with run.file("telemetry.jsonl").open("a") as stream:
            stream.write(json.dumps(longer | {"verdict": "healthy", "confidence": 0.95}) + "\n")
        for size in OTHER_SIZES:
            shown = await resized(pilot, size, "✓ Healthy: [b]? word")
            lines = shown[shown.index("Healthy") :].split("\n")
            words = " ".join(lines[: 2 if size[0] == 80 else 1])
            assert words.split() == ["Healthy:", "[b]?", *["word"] * 18, "(sure)"], "in two rows if need be"


@pytest.mark.parametrize(("seconds", "said"), [(11, False), (30, True)])
async def test_before_the_first_verdict_it_is_being_measured(home: Path, seconds: int, said: bool) -> None:
    run = going_on(home, gpus=1, seconds=30)
    lines = run.file("events.jsonl").read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["t"] < recorded.BEGAN + seconds]
    run.file("events.jsonl").write_text("\n".join(kept) + "\n")
    async with Tiny(lambda: LiveScreen(run, clock=at(seconds))).run_test(size=(80, 24), notifications=True) as pilot:
        shown = await wait_for(pilot, "training" if said else "compiling")
        assert ("measuring what limits the speed ..." in shown) == said


@pytest.mark.parametrize("outcome", ["ok", None])
async def test_all_keys_of_the_footer_fit_at_80_columns(home: Path, outcome: str | None) -> None:
    more = {"outcome": outcome} if outcome else {"outcome": None, "engine_pid": os.getpid()}
    run = recorded.write(home, gpus=1, seconds=60, warnings=(("input", "odd"),), **more)
    app = GputuiApp(watch=run)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "m Messages")
        shown = await wait_for(pilot, "r Run again" if outcome else "x Stop")
        last = shown.rstrip("\n").split("\n")[-1]
        for word in ("w Diagnosis", "v GPUs", "l Log", "m Messages", "e Edit options", "esc Back", "? Help"):
            assert word in last, last
        keys = [key.description for key in app.screen.query(FooterKey)]
        assert last.rstrip().endswith(keys[-1])
        assert "F4 Runs" in shown.split("\n")[0]  # and not again below
        assert "F4 Runs" not in last
        await pilot.resize_terminal(120, 40)
        await wait_for(pilot, "t Tags")


def detailed(pilot: Pilot[None]) -> int:
    """The GPU whose figures stand below the cards."""
    return pilot.app.screen.query_one("#detail", GpuCard).gpu.index


async def test_zoomed_in_on_gpus_everything_is_told(home: Path) -> None:
    run = recorded.write(home, gpus=8, seconds=60)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            await resized(pilot, size, "✓ done")
            await pilot.press("v")
            shown = await wait_for(pilot, "this run")
            for word in ("tensor", "DRAM", "memory clock 2,619 MHz", "PCIe", "NVLink", "ECC", "MIG    off"):
                assert word in shown, (word, size)
            assert "Xorg" not in shown.split("procs")[-1]
            await pilot.press("down")
            await wait_for(pilot, lambda: "Xorg" in text_of(pilot.app).split("procs")[-1])
            await pilot.press("up", "up")
            await wait_for(pilot, lambda: detailed(pilot) == 7)
            await pilot.click(offset=(3, 5))
            await wait_for(pilot, lambda: detailed(pilot) == 0)
            await pilot.press("v")
            await wait_for(pilot, "throughput")


async def test_an_ended_run_that_never_trained_has_its_last_readings(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=10, outcome="error")
    async with Tiny(lambda: LiveScreen(run)).run_test(size=SIZES[1], notifications=True) as pilot:
        shown = await resized(pilot, SIZES[1], "✗ failed")
        assert "GPUs, last reading" in shown
        assert " last  cpu" in shown


async def test_the_first_step_has_a_name_and_seconds(home: Path) -> None:
    run = going_on(home, gpus=1, seconds=10)
    text = run.file("events.jsonl").read_text().splitlines()
    run.file("events.jsonl").write_text("\n".join(line for line in text if '"training"' not in line) + "\n")
    async with Tiny(lambda: LiveScreen(run, clock=at(11))).run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("enter")
        shown = await wait_for(pilot, "compiling the first step")
        assert "0:03" in shown
        await pilot.press("enter")  # there is no chart yet
        await pilot.pause()
        assert isinstance(pilot.app.screen, LiveScreen)


async def test_without_a_gpu_the_host_stands_there_and_says_why(home: Path) -> None:
    run, blind = going_on(home, gpus=0, seconds=60), going_on(home, gpus=0, seconds=60, name="blind")
    events = blind.file("events.jsonl")
    events.write_text(events.read_text().replace("/device:CPU:0", "/device:GPU:0"))
    async with Tiny(lambda: LiveScreen(run, clock=at(60))).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in SIZES:
            shown = await resized(pilot, size, "no GPU: no NVIDIA driver on this machine")
            assert not pilot.app.screen.query(GpuCard)
            assert "100 %" in shown
            assert "trainer" in shown
        await pilot.app.push_screen(LiveScreen(blind, clock=at(60)))  # a GPU that trains without readings
        shown = await resized(pilot, (80, 24), "no GPU readings: no NVIDIA driver")
        assert "no GPU: " not in shown


async def test_sixteen_gpus_one_of_them_lost(home: Path) -> None:
    run = recorded.write(home, gpus=16, seconds=60, outcome="oom", lost_gpu=5, warnings=(("input", "[red]odd[/]"),))
    async with Tiny(lambda: LiveScreen(run)).run_test(size=SIZES[0], notifications=True) as pilot:
        for size in (*SIZES, (200, 60)):
            shown = await resized(pilot, size, "no readings")
            assert len([card for card in pilot.app.screen.query(GpuCard) if card.id != "detail"]) == 16
            for word in ("out of memory at batch size 512", "try input.batch_size=256", "[red]odd[/]", "throughput"):
                assert word in shown, (word, size)
            await pilot.press("v")
            await wait_for(pilot, lambda: "throughput" not in text_of(pilot.app))
            assert all(card.size.height for card in pilot.app.screen.query(GpuCard))
            assert "the GPU is lost" in text_of(pilot.app)
            await pilot.press("v")
            await wait_for(pilot, "throughput")


ENDS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    ("error", ("✗ failed", "no such folder: /data/[red]images", "look at workload.data")),
    ("crashed", ("✗ crashed", "signal SIGABRT", "see the end of engine.log")),
    (None, ("✗ crashed", "the run ended without a result")),
    ("stopped", ("■ stopped",)),
)


async def test_how_a_run_ended_is_said(home: Path, snapshot: Any) -> None:
    runs = [recorded.write(home, gpus=1, seconds=40, outcome=outcome, name=f"as-{outcome}") for outcome, _ in ENDS]
    async with Tiny(lambda: LiveScreen(runs[0])).run_test(size=(80, 24), notifications=True) as pilot:
        for run, (outcome, words) in zip(runs, ENDS, strict=True):
            if run is not runs[0]:
                await pilot.app.push_screen(LiveScreen(run))
            await wait_for(pilot, run.id)
            shown = await wait_for(pilot, words[0])
            assert all(word in shown for word in words), outcome
            await still(pilot)
            assert lines_of(pilot.app) == snapshot
            assert "R Resume" not in shown, outcome  # there is no checkpoint
        run.file("checkpoints/step-0000000100").mkdir(parents=True)
        screen = pilot.app.screen
        assert isinstance(screen, LiveScreen)
        screen.read_again()
        await wait_for(pilot, "R Resume")


async def test_foreign_text_is_shown_as_it_is_and_the_log_is_searched(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=30, log=ESCAPES, description="[bold]odd\x1b[2J[/bold]")
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "line 299")
        assert "[bold]odd?[2J[/bold]" in shown
        await pilot.press("l", "home")
        shown = await wait_for(pilot, "?[31mred?[0m [red]not markup[/red] ?")
        assert "\x1b" not in shown
        await pilot.press("escape")
        await resized(pilot, (80, 24), "✓ done")  # so small a screen leaves the log to a key
        await pilot.press("l", "end")
        await wait_for(pilot, "line 299")
        await pilot.press("slash", *"line 12", "enter")
        shown = await wait_for(pilot, "11 of 11")
        assert "line 129" in shown
        await pilot.press("f")
        shown = await wait_for(pilot, "1 of 11")
        assert "line 12" in shown
        await pilot.press("F", "F")
        await wait_for(pilot, "10 of 11")
        await pilot.press("escape")
        assert "of 11" not in await wait_for(pilot, "lines")
        assert pilot.app.screen.query_one(LogLines).sought == ""


async def test_the_log_keeps_its_end_in_view_until_the_user_scrolls_up(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=30, log=ESCAPES)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("l")
        await wait_for(pilot, "line 299")
        log = pilot.app.screen.query_one(LogLines)
        await pilot.resize_terminal(80, 100)
        await wait_for(pilot, lambda: log.size.height > 80 and log.is_vertical_scroll_end)
        await pilot.resize_terminal(80, 24)
        await wait_for(pilot, lambda: log.size.height < 24 and log.is_vertical_scroll_end)
        log.show((*log.lines, "line 300"))
        await wait_for(pilot, "line 300")
        await pilot.press("up")
        log.show((*log.lines, "line 301"))
        await pilot.pause()
        assert "line 301" not in await wait_for(pilot, "line 299")
        await pilot.press("end")
        await wait_for(pilot, "line 301")
        log.show((*log.lines, "line 302"))
        await wait_for(pilot, "line 302")


async def test_a_key_counts_that_comes_before_the_log_is_laid_out(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=30, log=ESCAPES)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        live, log = pilot.app.screen, pilot.app.screen.query_one(LogLines)
        assert isinstance(live, LiveScreen)
        live.action_zoom("log")
        assert not log.size
        log.action_scroll_home()
        assert "line 299" not in await wait_for(pilot, "not markup")


async def test_more_charts_than_there_is_room_for_at_any_size_and_runs_that_are_broken(home: Path) -> None:
    run = recorded.write(home, gpus=1, seconds=60)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(80, 24), notifications=True) as pilot:
        assert " accuracy ─" not in await wait_for(pilot, "✓ done")
        await pilot.press("right_square_bracket", "right_square_bracket")
        await wait_for(pilot, "accuracy")
        await pilot.press("z")
        shown = await wait_for(pilot, "throughput")
        assert "step time" in shown
        await pilot.press("escape")
        await wait_for(pilot, "GPU 0")
        await pilot.app.push_screen(LiveScreen(recorded.write(home, gpus=4, seconds=60, name="four")))
        await wait_for(pilot, "✓ done")
        await wait_for(pilot, "GPU 3")
        for size in ((40, 12), (10, 3), (200, 60), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            text_of(pilot.app)
        assert "GPU" in await wait_for(pilot, "throughput")
        broken = recorded.write(home, gpus=0, seconds=30, name="broken")
        broken.file("preset.yaml").write_text("schema_version: 1\ndescription: ''\nworkload: {modle: [red]}\n")
        await pilot.app.push_screen(LiveScreen(broken))
        await wait_for(pilot, broken.id)
        await wait_for(pilot, "✓ done")
        await pilot.press("r")
        await wait_for(pilot, "cannot run it again")
        assert not tiny(pilot).opened
        (home / "runs" / "empty").mkdir(parents=True)
        await pilot.app.push_screen(LiveScreen(Run(home / "runs" / "empty")))
        await wait_for(pilot, "crashed")


async def test_two_viewers_see_the_same_and_what_is_new(home: Path) -> None:
    run = going_on(home, gpus=1, seconds=60)
    first, second = Tiny(lambda: LiveScreen(run, clock=at(60))), Tiny(lambda: LiveScreen(run, clock=at(60)))
    async with first.run_test(size=(80, 24), notifications=True) as one, second.run_test(size=(80, 24)) as other:
        await wait_for(one, "training")
        await wait_for(other, "training")
        event = {"t": recorded.BEGAN + 60, "type": "progress", "step": 4321, "steps": 9999, "epoch": 1}
        with run.file("events.jsonl").open("a") as stream:
            stream.write(json.dumps(event) + "\n")
        await wait_for(one, "4,321/9,999")
        await wait_for(other, "4,321/9,999")


async def test_replay_plays_as_if_it_happened(home: Path) -> None:
    run, ahead = recorded.write(home, gpus=2, seconds=60), [0.0]  # its clock stands still until it is put forward

    def clock() -> float:
        return 1000.0 + ahead[0]

    app = Tiny(lambda: LiveScreen(run, replay_speed=40.0, clock=clock))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "replay")
        assert "✓ done" not in shown
        for seconds in (0.75, 1.0):  # 30 and 40 s of the recording
            ahead[0] = seconds
            shown = await wait_for(pilot, "samples/s")
            assert "✓ done" not in shown
        ahead[0] = 2.0
        shown = await wait_for(pilot, "✓ done")
        assert "9,800" in shown


async def test_plain_console_and_no_colour(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    run = recorded.write(home, gpus=3, seconds=90, lost_gpu=1, outcome="error")
    async with Tiny(lambda: LiveScreen(run), PLAIN).run_test(size=(120, 40), notifications=True) as pilot:
        shown = await wait_for(pilot, "X failed")
    assert set(filter(str.isprintable, shown)) - set("°▁▂▃▄▅▆▇") < set(map(chr, range(128)))  # Textual's scrollbar
    assert "X no readings" in shown


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
        assert "of 480 steps, 0:59 of training, cannot be resumed" in shown, shown
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


async def test_a_question_whether_to_stop_closes_when_the_run_has_ended(
    home: Path, engine: subprocess.Popen[bytes]
) -> None:
    run = recorded.write(home, gpus=1, seconds=60, outcome=None, engine_pid=engine.pid)
    async with Tiny(lambda: LiveScreen(run, clock=at(60))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "Stop")
        await pilot.press("x")
        await wait_for(pilot, "keeps no checkpoint")
        engine.kill()
        engine.wait()
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, LiveScreen))
        assert told(pilot) == "recorded has ended meanwhile: crashed"


@pytest.mark.parametrize("every", ["epoch", "100"])
async def test_one_with_checkpoints_stops_at_once(home: Path, engine: subprocess.Popen[bytes], every: str) -> None:
    settings = (f"checkpoint={every}",)
    run = recorded.write(home, gpus=1, seconds=60, outcome=None, engine_pid=engine.pid, settings=settings)
    assert engine.stdout is not None
    async with Tiny(lambda: LiveScreen(run, clock=at(60))).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "Stop")
        await pilot.press("x")
        await wait_for(pilot, "stopping  training")
        assert engine.stdout.readline() == b"1\n"
        await pilot.press("n", *"slow disk", "enter")
        await wait_for(pilot, "slow disk")
        await pilot.press("t", *"a b", "enter")
        await wait_for(pilot, "#a #b  note: slow disk")
    assert titles.read_notes(run) == titles.Notes("slow disk", ("a", "b"))


async def test_run_again_and_change(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded.write(home, name="20260921-120000-mine-2", gpus=0, seconds=30, settings=("batch_size=96",))
    started: list[Any] = []

    def start(preset: Any) -> tuple[Run, str]:
        started.append(preset)
        return run, "engine"

    monkeypatch.setattr("gputui.engine.process.launch.start", start)
    async with Tiny(lambda: LiveScreen(run)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "✓ done")
        await pilot.press("r")
        await wait_for(pilot, lambda: tiny(pilot).opened)
        assert started[0].name == "mine"
        assert started[0].options.input.batch_size == 96
        assert tiny(pilot).engines == ["engine"]
        await pilot.press("e")
        assert tiny(pilot).opened == [("run", run), ("form", run.file("preset.yaml"))]


def test_the_name_of_a_run() -> None:
    for name in ("20261121-001249-quick-start", "20261121-001249-quick-start-12"):
        assert name_of(Run(Path(name))) == "quick-start"
    drawn = plain(head.RunName("fast", "20261121-001249-fast", "Images").row(60, RICH))
    assert drawn.rstrip() == "fast  20261121-001249-fast  Images"
