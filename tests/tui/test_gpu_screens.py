"""The screens of all GPUs and of their processes over readings that need no driver: every line, title and message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from gputui.engine.runs import Run
from gputui.engine.telemetry import chips
from gputui.tui.base.glyphs import PLAIN, RICH, Glyphs
from gputui.tui.base.settings import Charts
from gputui.tui.drawing import charts
from gputui.tui.drawing.live.layout import arrange_whole
from gputui.tui.drawing.plot.scales import soon
from gputui.tui.reading.machine import Line, Users
from gputui.tui.reading.run.gpu_reading import Gpu, GpuProcess
from gputui.tui.reading.run.snapshot import Message, Snapshot
from gputui.tui.screens.gpus import screen as gpus_screen
from gputui.tui.screens.gpus.screen import GpusScreen, ProcessesScreen
from gputui.tui.widgets.gpu_cards import GpuCards
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import DataTable

from tests.support.tiny import Tiny, lines_of, wait_for

Written = Any  # a text of `__snapshots__`
GIB = 1024**3
HOST = {"cpu": 0.5, "memory_used_bytes": 8.0 * GIB, "memory_total_bytes": 64.0 * GIB, "io_wait": 0.0}
OWN = GpuProcess(5303, own=True, use=0.9, idle_seconds=0.0, idle_at_least=False, started=1.0)
IDLE = GpuProcess(911, use=0.0, idle_seconds=90.0, started=2.0)
LINES = (
    Line("user ann", "ann", gpus=(0, 1), memory_bytes=3.0 * GIB, count=2),
    Line("process 1", "bash", (True,), GpuProcess(1)),
    Line("process 5303", "python train.py\x1b", (True, False), OWN, (0, 1), 2.0 * GIB),
    Line("process 911", "3 x jupyter", (False,), IDLE, (1,), 1.0 * GIB, alike=3),
    Line("user not visible", "not visible", gpus=(2,), memory_bytes=None, count=1),
    Line("process 7", "of another container", (), GpuProcess(7), (2,), None),
)
GPUS = tuple(Gpu(n, name="NVIDIA H100", busy=0.5, lease=lease) for n, lease in enumerate(("free", "free", "")))


class Below(Screen[None]):
    """The screen of the GPUs, as far as that of the processes sees it."""

    now = Snapshot(gpus=GPUS)

    def compose(self) -> ComposeResult:
        yield from ()


async def processes(pilot: Pilot[None], users: Users) -> ProcessesScreen:
    screen = pilot.app.screen
    assert isinstance(screen, ProcessesScreen)
    screen.read_again()
    await wait_for(pilot, lambda: screen.latest is users, 30)
    await pilot.pause()
    return screen


@pytest.mark.parametrize(("size", "glyphs"), [((100, 16), RICH), ((80, 16), PLAIN)])
async def test_the_tree_of_users_and_processes(
    monkeypatch: pytest.MonkeyPatch, snapshot: Written, size: tuple[int, int], glyphs: Glyphs
) -> None:
    monkeypatch.setattr(gpus_screen, "when_text", lambda then: f"at {then:g}")
    monkeypatch.setattr(gpus_screen, "READ_SECONDS", 600.0)
    given = [Users(LINES, unknown="GPU 3: no permission\x1b")]
    asked: list[Any] = []

    def read(gpus: Any) -> Users:
        asked.append(gpus)
        return given[0]

    monkeypatch.setattr(gpus_screen, "read", read)
    below, parts = Below(), []
    async with Tiny(lambda: ProcessesScreen(below), glyphs).run_test(size=size) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, ProcessesScreen))
        for keys, lines in (
            (["home"], LINES), (["down", "down"], LINES), (["end"], LINES), ([], ()),
        ):  # fmt: skip
            given[0] = replace(given[0], lines=lines)
            await processes(pilot, given[0])
            await pilot.press(*keys)
            await pilot.pause()
            parts.append(f"---- {keys}, {len(lines)} lines\n{lines_of(pilot.app)}")
        for now, said in (
            (Snapshot(gpus=GPUS), "no process uses a GPU"), (Snapshot(), "asking the NVIDIA driver ..."),
            (Snapshot(no_gpu_reason="no NVIDIA driver"), "no NVIDIA driver"),
        ):  # fmt: skip
            below.now, given[0] = now, Users()
            await processes(pilot, given[0])
            assert said in lines_of(pilot.app).split("\n")[-3]
        busy = replace(GPUS[0], lease=f"ann's {'long ' * 60}work")
        below.now, given[0] = Snapshot(gpus=(busy, *GPUS[1:])), Users(LINES[:1])
        await processes(pilot, given[0])
        parts.append(f"---- leases\n{lines_of(pilot.app)}")
        table = pilot.app.screen.query_one(DataTable)
        width = table.ordered_columns[0].width
        await pilot.resize_terminal(size[0] + 20, 16)
        await wait_for(pilot, lambda: table.ordered_columns[0].width == width + 20, 30)
    assert asked[0] == GPUS
    assert "\n".join(parts) == snapshot


# ---- all GPUs -------------------------------------------------------------------------------------------


class Machine:
    """The readings of a machine, whose snapshots are `given`."""

    given: list[Snapshot]
    run: Run | None = None
    stuck_seconds = 0.0

    def follow(self, leaving: threading.Event) -> Iterator[Snapshot]:
        yield from self.given
        leaving.wait(60)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> type[Machine]:
    class Made(Machine):
        given: list[Snapshot] = []

    monkeypatch.setattr(gpus_screen, "MachineReader", Made)
    monkeypatch.setattr(chips, "has_device_nodes", lambda: False)
    return Made


async def gpus(pilot: Pilot[None], machine: type[Machine], *given: Snapshot) -> GpusScreen:
    machine.given = list(given)
    screen = pilot.app.screen
    assert isinstance(screen, GpusScreen)
    screen.read_again()
    await wait_for(pilot, lambda: screen.latest is given[-1], 30)
    await pilot.pause()
    return screen


async def test_beside_a_run_the_host_is_not_alone(machine: type[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[Any] = []
    for name in ("host", "host_line"):

        def note(*given: Any, name: str = name) -> Any:
            alone.append((name, given[-1]))
            return [] if name == "host_line" else [[]]

        monkeypatch.setattr(gpus_screen, name, note)
    async with Tiny(GpusScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, GpusScreen))
        for run in (None, Run(Path("/runs/cnn"))):
            machine.run = run
            for gpus_now, name in ((GPUS, "host_line"), ((), "host")):
                reason = "" if gpus_now else "none"
                screen = await gpus(
                    pilot, machine, Snapshot(host=HOST, gpus=gpus_now, gpu_seconds=1.0, no_gpu_reason=reason)
                )
                assert alone[-1] == (name, run is None)
                screen.foot(80)
                assert alone[-1] == ("host_line", run is None), "below its charts, too"


async def test_the_title_says_which_gpus_there_are_and_how_often_they_are_read(machine: type[Machine]) -> None:
    h100 = "H100 80GB"
    two = (Gpu(0, name="NVIDIA H100 80GB"), Gpu(1, name="NVIDIA H100 80GB"), Gpu(2, name="Tesla T4"), Gpu(3))
    async with Tiny(GpusScreen).run_test(size=(120, 30)) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, GpusScreen))
        for now, stuck, run, title in (
            (Snapshot(host=HOST), 0.0, None, "the host|asking the NVIDIA driver ..."),
            (Snapshot(host=HOST, no_gpu_reason="none"), 0.0, None, "the host|"),
            (Snapshot(gpus=two, gpu_seconds=1.0), 5.0, None, f"2 x {h100}, 1 x Tesla T4, 1 x GPU|read every 1.0 s"),
            (Snapshot(gpus=two[:1], gpu_seconds=2.25), 0.0, "cnn\x1b", f"1 x {h100}|cnn? is running, read every 2.2 s"),
            (Snapshot(gpus=two[:1], gpu_seconds=2.25), 5.4, "cnn",
             f"1 x {h100}|the NVIDIA driver has not answered for 5 s"),
        ):  # fmt: skip
            machine.stuck_seconds, machine.run = stuck, Run(Path("/runs") / run) if run else None
            await gpus(pilot, machine, now)
            left, right = title.split("|")
            assert lines_of(pilot.app).split("\n")[0].split("Doctor", 1)[1].split() == [*left.split(), *right.split()]


async def test_without_gpus_the_reason_and_what_follows_from_it_stand_there(
    machine: type[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Tiny(GpusScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, GpusScreen))
        screen = await gpus(pilot, machine, Snapshot(host=HOST, no_gpu_reason="no NVIDIA driver"))
        assert [line.strip() for line in lines_of(pilot.app).split("\n")[1:3]] == [
            "no GPU: no NVIDIA driver", "→ training runs on the CPU; F6 (doctor) shows why",
        ]  # fmt: skip
        assert not screen.query_one("#devices").display
        assert screen.query_one("#host").size.height == 20, "all that the messages leave"
        monkeypatch.setattr(chips, "has_device_nodes", lambda: True)
        await gpus(pilot, machine, Snapshot(host=HOST, no_gpu_reason="no libnvidia-ml.so.1"))
        assert [line.strip() for line in lines_of(pilot.app).split("\n")[1:3]] == [
            "no GPU readings: no libnvidia-ml.so.1", "→ CUDA may work without NVML; F6 (doctor) says what to do",
        ]  # fmt: skip
        await gpus(pilot, machine, Snapshot(host=HOST, gpus=GPUS, gpu_seconds=1.0))
        assert screen.query_one("#devices").display
        assert [screen.query_one(name).size.height for name in ("#devices", "#host")] == [21, 1]
        assert not screen.query_one("#messages").display


async def test_the_cards_have_the_room_that_messages_the_host_and_their_edges_leave(
    machine: type[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    shown: list[Any] = []
    show = GpuCards.show

    def arrange_and_note(*given: Any) -> Any:
        asked.append(given)
        return arrange_whole(*given)

    def show_and_note(cards: GpuCards, *given: Any) -> None:
        shown.append(given)
        show(cards, *given)

    monkeypatch.setattr(gpus_screen, "arrange_whole", arrange_and_note)
    monkeypatch.setattr(GpuCards, "show", show_and_note)
    slow = (Message("slow", "the driver is slow"),)
    async with Tiny(GpusScreen).run_test(size=(97, 32)) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, GpusScreen))
        for (width, height), warnings, around in (
            ((97, 32), (), 0), ((98, 31), (), 0), ((98, 32), (), 2), ((98, 32), slow, 2),
        ):  # fmt: skip
            await pilot.resize_terminal(width, height)
            await gpus(pilot, machine, Snapshot(host=HOST, gpus=GPUS, gpu_seconds=1.0, elapsed=71.0, warnings=warnings))
            assert asked[-1] == (width - 2 - around, height - 2 - len(warnings) - 1 - around, 3)
            assert shown[-1] == (GPUS, soon(71.0), arrange_whole(*asked[-1]), bool(around))
    assert soon(71.0) > 71.0, "the axis goes on"


async def test_gpus_that_were_shown_stay_until_the_driver_has_answered_again(machine: type[Machine]) -> None:
    shown, empty = Snapshot(gpus=GPUS, gpu_seconds=1.0), Snapshot(host=HOST)
    async with Tiny(GpusScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, GpusScreen))
        await gpus(pilot, machine, shown)
        seen: list[Snapshot] = []

        def note(now: Snapshot) -> None:
            seen.append(now)

        pilot.app.screen.watch(pilot.app.screen, "latest", note, init=False)
        later = replace(shown, elapsed=1.0)
        await gpus(pilot, machine, empty, later)
        assert seen == [later]
        machine.stuck_seconds = 5.1
        await gpus(pilot, machine, empty)  # which is said in the title
        machine.stuck_seconds = 0.0
        await gpus(pilot, machine, later)
        await gpus(pilot, machine, Snapshot(no_gpu_reason="the driver is gone"))
        await gpus(pilot, machine, empty)


@pytest.mark.parametrize(("before", "stuck", "left_out"), [(True, 5.0, True), (True, 5.1, False), (False, 0.0, False)])
def test_readings_without_gpus_are_left_out_only_after_gpus_and_while_the_driver_may_answer(
    machine: type[Machine], before: bool, stuck: float, left_out: bool
) -> None:
    shown, empty, gone = Snapshot(gpus=GPUS), Snapshot(host=HOST), Snapshot(no_gpu_reason="the driver is gone")
    machine.given, machine.stuck_seconds = [empty, shown, gone], stuck
    screen, leaving = GpusScreen(), threading.Event()
    screen.set_reactive(cast("Any", GpusScreen).latest, shown if before else None)
    leaving.set()
    assert list(screen.readings(leaving)) == [*([] if left_out else [empty]), shown, gone]


async def test_the_selected_gpu_is_that_of_the_charts_and_its_keys_work_only_with_its_figures(
    machine: type[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    def of_machine(_now: Snapshot, picked: int | None, _drawn: Charts) -> list[Any]:
        drawn.append(picked)
        return []

    monkeypatch.setattr(charts, "of_machine", of_machine)
    many = tuple(Gpu(number, name="NVIDIA H100", busy=0.5) for number in range(8))
    async with Tiny(GpusScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, GpusScreen))
        screen = await gpus(pilot, machine, Snapshot(gpus=many, gpu_seconds=1.0))
        assert [screen.check_action(action, ()) for action in ("pick", "pick_edge", "chart")] == [True] * 3
        for key, index in (("down", 1), ("down", 2), ("up", 1), ("end", 7), ("home", 0), ("up", 7)):
            await pilot.press(key)
            picked = screen.query_one(GpuCards).picked
            assert picked is not None
            assert picked.index == index
            screen.charts(Charts())
            assert drawn.pop() == index
        assert (screen.about, screen.axes()) == ("this machine", ("time",))
        await gpus(pilot, machine, Snapshot(gpus=many[:1], gpu_seconds=1.0))
        assert screen.check_action("pick", ()) is False, "its card has all figures"
        assert screen.check_action("chart", ()) is True
