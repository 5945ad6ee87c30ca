"""The screen of all GPUs, with the stand-in for NVML behind the real `pynvml`: calm without, fluid with slow ones."""

from __future__ import annotations

import json
import os
import pwd
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from gputui.engine.runs.events import HostReading
from gputui.engine.system.identity import Place, Process
from gputui.engine.telemetry import resource_limits
from gputui.tui.reading.machine import MachineReader
from gputui.tui.reading.run.snapshot import Snapshot
from gputui.tui.screens.gpus.screen import GpusScreen
from textual.screen import Screen

from tests.support import recorded
from tests.support.fakenvml import FakeNvml
from tests.support.forking import Forks, Program, forks_with
from tests.support.form_pilot import told
from tests.support.tiny import Tiny, text_of, wait_for

pytest_plugins = ("tests.support.fakenvml.fixture",)

ROOT = Path(__file__).parents[2]
NOBODY = 4_194_304  # greater than any process id of Linux
SIZES = [(80, 24), (120, 40)]
LOOK = """
import asyncio, json, os, time
from gputui.tui.screens.gpus.screen import GpusScreen
from textual.screen import Screen
from tests.support.tiny import Tiny, text_of, wait_for

async def main():
    app, told = Tiny(GpusScreen), {{}}
    async with app.run_test(size={size}) as pilot:
        await wait_for(pilot, "GPUs")
        {does}
    return told

print(json.dumps(asyncio.run(main())))
"""
Look = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def viewers(nvml: FakeNvml, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What has imported the screens, and finds the stand-in where the driver's library would be."""
    environment = nvml.environment("") | {"PYTHONPATH": str(ROOT)}
    modules = "pynvml, gputui.tui.screens.gpus.screen, tests.support.tiny, textual.command, textual.pilot"
    with forks_with(modules, tmp_path_factory.mktemp("viewers"), environment) as made:
        yield made


@pytest.fixture
def looked(viewers: Forks, home: Path, tmp_path: Path) -> Look:
    """looked(WORDS, DOES): what a program tells that opens the screen and does something with `pilot` and `told`."""

    def look(words: str, does: str, size: tuple[int, int] = (80, 24)) -> dict[str, Any]:
        program, output = tmp_path / "look.py", tmp_path / "told"
        program.write_text(LOOK.format(size=size, does=re.sub(r"\n\s*", "\n        ", does.strip())))
        environment = {
            "FAKE_NVML": words,
            "GPUTUI_HOME": str(home),
            "GPUTUI_LEASES": str(tmp_path / "leases"),
            "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"],
        }
        viewers.run(Program(str(tmp_path), str(output), [str(program)], environment=environment))
        found: dict[str, Any] = json.loads(output.read_text().splitlines()[-1])
        return found

    return look


@pytest.mark.parametrize("size", SIZES)
def test_all_figures_of_two_gpus_and_the_host(looked: Look, size: tuple[int, int]) -> None:
    does = """
        parts = ("SM  20 %", "read every 1.0 s", "slowed power  20 % heat   5 %")  # from two readings
        await wait_for(pilot, lambda: all(text in text_of(app) for text in parts))
        told["shown"] = text_of(app)
        await pilot.press("enter", "left"); told["chart"] = await wait_for(pilot, "after the first reading")
        await pilot.press("escape"); await wait_for(pilot, "tensor")
        await pilot.press("P"); told["users"] = await wait_for(pilot, "busy  40 %")
        told["kept"] = sorted(app.screen.active_bindings)
    """
    own = os.getpid()
    words = f"gpus=2 gpm=1 nvlinks=18 throttle=4 slowed=20,5 procs={own},{NOBODY} worked={own}"
    told = looked(words, does, size)
    shown = told["shown"]
    for word in ("mem  12 %", "slowed power  20 % heat   5 %", "Wh so far, ", "kWh in all", "busy  40 %"):
        assert word in shown, word
    rows = [row.split() for row in told["users"].splitlines()]
    user = pwd.getpwuid(os.getuid()).pw_name
    assert any(row[:4] == [user, "0,1", "2.0", "GiB"] for row in rows), told["users"]
    assert re.search(rf" {own} +0,1 +2.0 GiB +\d\d:\d\d +busy  40 %", told["users"]), "with the time of its start"
    (nobody,) = (row for row in rows if str(NOBODY) in row)
    assert nobody[:4] == ["not", "visible", "from", "here"]
    assert nobody[-4:-1] == ["idle", "at", "least"]
    assert not {"d", "x", "delete"} & set(told["kept"]), "no key that ends a process"
    for word in ("GPU busy", "1/5", "100 %", "── GPU 0", "╌╌ GPU 1", "host"):
        assert word in told["chart"], word
    assert re.search("▌(F5 )?GPUs▐", told["chart"])  # the place from which it was opened
    for word in (
        "GPU 0",
        "GPU 1",
        "! power cap",
        "10.0/80.0 GiB",
        "321/700 W",
        "tensor  50 %",
        "clock 2,619 MHz",
        "P0",
        "210 MiB/s",
        "600 MiB/s",
        "4 corrected",
        "MIG    off",
        str(os.getpid()),
        "1.0 GiB",
        "read every 1.0 s",
        "host",
        "disk wait",
    ):
        assert word in shown, word
    assert "trainer" not in shown


def test_the_lease_of_each_gpu_is_shown_and_what_others_have_written_moves_no_cursor(
    looked: Look, tmp_path: Path
) -> None:
    does = """
        from gputui.engine.leases import free_gpus, lease
        await wait_for(pilot, "lease  free")
        first, second = (use.uuid for use in free_gpus.read())
        held = lease.take([first], "a night's work" + chr(27) + "[2J")
        told["shown"] = await wait_for(pilot, "night")
        lease.take([second], "gone")[0].release(stuck="its run has ended")
        await pilot.press("P"); told["above"] = await wait_for(pilot, "GPU 1: stuck: its run has ended")
        held[0].release()
        await wait_for(pilot, "GPU 0: free")
    """
    told = looked(f"gpus=2 use={tmp_path / 'use'} mem_used=2048@1", does)
    user = pwd.getpwuid(os.getuid()).pw_name
    assert re.search(rf"lease  {user}'s a night's work\S* since \d\d:\d\d", told["shown"]), told["shown"]
    assert "lease  2.0 GiB of its memory are in use" in told["shown"], told["shown"]
    assert re.search(rf"GPU 0: {user}'s a night's work\S* since \d\d:\d\d; GPU 1: stuck", told["above"]), told["above"]
    assert chr(27) not in told["shown"] + told["above"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mig=3", ("busy: not offered", "3 instances", "in all of the whole card")),
        (
            "fail=DeviceGetViolationStatus:3 fail=DeviceGetTotalEnergyConsumption:3 na=1",
            ("slowed power   0 %", "energy not offered"),
        ),
        (
            " ".join(
                f"fail=DeviceGet{name}:3"
                for name in ("ViolationStatus", "CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
            ),
            ("slowed not offered",),
        ),
        ("mig=0", ("on, no instances",)),
        ("fail=DeviceGetTemperature:4", ("temperature: no permission",)),
        ("unified=1", ("shared with host",)),
        ("gpus=2 lost=1+3", ("no readings: the GPU is lost", "GPU 0")),
        ("gpus=0", (" time", "no GPU: the NVIDIA driver sees no GPU", "50 %", "2 s")),  # the host's chart with its axes
    ],
)
def test_what_real_boxes_do_is_said_in_words(looked: Look, words: str, said: tuple[str, ...]) -> None:
    does = f"await wait_for(pilot, {said[0]!r}); told['shown'] = text_of(app)"
    shown = looked(words, does)["shown"]
    for word in said:
        assert word in shown, word


def test_beside_a_run_its_process_is_marked_and_its_traffic_not_asked_for(looked: Look, home: Path) -> None:
    run = recorded.write(home, outcome=None, gpus=1, seconds=20)
    trainer = Process.current()
    status = Place.here().as_fields() | trainer.as_fields("trainer")
    run.file("status.json").write_text(json.dumps(status))
    does = """
        await wait_for(pilot, lambda: all(text in text_of(app) for text in ("this run", "read every 1.0 s")))
        told["shown"] = text_of(app)
    """
    shown = looked(f"procs={trainer.pid}", does, (120, 40))["shown"]
    assert f"{run.id} is running, read every 1.0 s" in shown
    assert "PCIe   not asked" in shown
    assert "trainer" in shown
    assert "GPU 0 •" in shown


def test_eight_slow_gpus_are_read_less_often_and_it_is_told(looked: Look) -> None:
    found = looked(
        "gpus=8 slow_ms=12",
        'await wait_for(pilot, "instead of 1 s"); told["shown"] = text_of(app)',
    )
    assert "the NVIDIA driver takes" in found["shown"]
    assert "GPU 7" in found["shown"]


def test_a_driver_that_has_not_answered_yet_holds_up_no_key(looked: Look) -> None:
    """A key that waited for it would never be answered."""
    found = looked(
        "gpus=8",
        """
        await wait_for(pilot, "Next GPU")
        os.environ["FAKE_NVML"] += " hang=DeviceGetUtilizationRates"
        await wait_for(pilot, "the NVIDIA driver has not answered for")
        await pilot.press("down")
        await wait_for(pilot, lambda: app.screen.query_one("#detail").gpu.index == 1)
        told["shown"] = text_of(app)
        """,
    )
    assert "GPU 7" in found["shown"]


def test_the_driver_is_asked_only_while_the_screen_is_seen(looked: Look, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    found = looked(
        f"log={log}",
        f"""
        from pathlib import Path
        calls = lambda: Path({str(log)!r}).read_text()
        await wait_for(pilot, "H100")
        assert "Shutdown" not in calls()
        app.push_screen(Screen())
        until = time.monotonic() + 60
        while "Shutdown" not in calls() and time.monotonic() < until: await asyncio.sleep(0.05)
        left = calls()
        await asyncio.sleep(1.5)
        told["silent"] = calls() == left
        app.pop_screen()
        await wait_for(pilot, lambda: calls().count(" Init") == 2)
        await wait_for(pilot, "H100")
        app.action_command_palette()
        await asyncio.sleep(1.5)
        told["still"] = calls().count("Shutdown")
        """,
    )
    assert found["silent"]
    assert found["still"] == 1  # the palette covers nothing
    text = log.read_text()
    assert text.count("Shutdown") == 2
    assert "IN_FLIGHT" not in text


def test_a_driver_that_never_answers_is_said_and_holds_up_nothing(looked: Look) -> None:
    found = looked(
        "hang=DeviceGetUtilizationRates",
        'await wait_for(pilot, "the NVIDIA driver has not answered for"); told["shown"] = text_of(app)',
    )
    assert "cpu" in found["shown"]


@pytest.mark.parametrize("size", SIZES)
async def test_without_a_driver_it_says_so_calmly(
    home: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", init)
    async with Tiny(GpusScreen).run_test(size=size, notifications=True) as pilot:
        await wait_for(pilot, "disk wait")
        await wait_for(pilot, "no GPU: no NVIDIA driver on this machine (libnvidia-ml.so.1 is missing)")
        await wait_for(pilot, "training runs on the CPU")
        await wait_for(pilot, "GiB")
        assert told(pilot) == ""
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, GpusScreen)


async def test_gpus_that_only_cuda_can_see_are_not_taken_for_none(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    monkeypatch.setattr(pynvml, "nvmlInit", init)
    async with Tiny(GpusScreen).run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "disk wait")
        shown = await wait_for(pilot, "no GPU readings: the NVIDIA driver")
    assert "no GPU readings: the NVIDIA driver's libnvidia-ml.so.1 is missing" in shown
    assert "CUDA may work without NVML" in shown
    assert "training runs on the CPU" not in shown


async def test_the_reading_before_is_over_when_another_begins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, going, most = 0, 0, 0
    answered = threading.Event()

    def follow(feed: MachineReader, leaving: Any) -> Iterator[Snapshot]:
        nonlocal begun, going, most
        begun += 1
        going += 1
        most = max(most, going)
        leaving.wait()
        answered.wait(60)
        going -= 1
        yield from ()

    def at_work(number: int) -> Callable[[], bool]:
        return lambda: begun == number and going == 1

    monkeypatch.setattr(MachineReader, "follow", follow)
    async with Tiny(GpusScreen).run_test(size=(80, 24)) as pilot:
        for number in range(1, 5):
            await wait_for(pilot, at_work(number))
            answered.clear()
            pilot.app.push_screen(Screen())
            await pilot.pause()
            pilot.app.pop_screen()
            await pilot.pause(0.1)  # in which another would begin
            answered.set()
        await wait_for(pilot, at_work(5))
        assert most == 1
        assert "asking the NVIDIA driver" in text_of(pilot.app)


def test_the_feed_tells_what_the_host_says() -> None:
    feed = MachineReader()
    feed._put(
        HostReading(
            cpu=0.5, memory_used_bytes=1, memory_total_bytes=2, engine_bytes=3, trainer_bytes=None, trainer_cpu=None
        )
    )
    (event,) = feed._events()
    assert isinstance(event, HostReading)
    assert (event.type, event.cpu) == ("host", 0.5)
