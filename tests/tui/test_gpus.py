"""The screens of the GPUs, their processes, and the doctor."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakenvml import FakeNvml
from tests.support.forking import Forks, Program, forks_with

ROOT = Path(__file__).parents[2]
NOBODY = 4_194_304  # greater than any process id of Linux
LOOK = """
import asyncio, json, os, time
from gputui.tui.screens.gpus import GpusScreen
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
    modules = "pynvml, gputui.tui.screens.gpus, tests.support.tiny, textual.command, textual.pilot"
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


def test_all_figures_of_two_gpus_and_the_host(looked: Look) -> None:
    does = """
        parts = ("SM  20 %", "busy  40 %", "read every 1.0 s", "slowed power  20 % heat   5 %")  # from two readings
        await wait_for(pilot, lambda: all(text in text_of(app) for text in parts))
        told["shown"] = text_of(app)
        await pilot.press("enter", "left"); told["chart"] = await wait_for(pilot, "after the first reading")
        await pilot.press("escape"); await wait_for(pilot, "tensor")
        await pilot.press("P"); told["users"] = await wait_for(pilot, "busy  40 %")
        told["kept"] = sorted(app.screen.active_bindings)
    """
    own = os.getpid()
    with subprocess.Popen(["sleep", "60"]) as second:
        ours = f"{own},{second.pid}"
        words = f"gpus=2 gpm=1 nvlinks=18 throttle=4 slowed=20,5 procs={ours},{NOBODY} worked={ours}"
        told = looked(words, does)
        second.kill()
    shown = told["shown"]
    for word in ("mem  12 %", "slowed power  20 % heat   5 %", "Wh so far, ", "kWh in all", "busy  40 %"):
        assert word in shown, word
    rows = [row.split() for row in told["users"].splitlines()]
    user = pwd.getpwuid(os.getuid()).pw_name
    assert any(row[:4] == [user, "0,1", "4.0", "GiB"] for row in rows), told["users"]
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
        str(min(own, second.pid)),  # the smaller screen has room for one
        "1.0 GiB",
        "read every 1.0 s",
        "host",
        "disk wait",
    ):
        assert word in shown, word
    assert "trainer" not in shown


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
