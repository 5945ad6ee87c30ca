"""Draws every screen in each size and theme, from recorded runs of the tests: `docs/screenshots.py --every FOLDER`.

Nothing is trained. A screen that looks at this machine finds the stand-in for NVML with eight GPUs.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from gputui.engine import presets
from gputui.engine.files import run_numbers
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run, part_of_sweep
from gputui.tui.app import GputuiApp
from gputui.tui.base.themes import HIGH_CONTRAST, THEMES
from gputui.tui.screens.dialogs import Ask
from gputui.tui.screens.live.screen import LiveScreen
from rich.color import Color, ColorSystem
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from textual.pilot import Pilot

from tests.support import recorded, recorded_proof, swept

ROOT = Path(__file__).parent.parent
SIZES = ((80, 24), (120, 40), (200, 60))
WIDTH_OF_CHARACTER = 8  # in pixels
SETTLED_SECONDS = 1.2
Arrange = Callable[[Pilot[Any]], Awaitable[None]]


def stand_in_for_nvml(folder: Path) -> None:
    """Compile the stand-in, and load it under the name of the driver's library, so that pynvml finds it."""
    library = folder / "libnvidia-ml.so.1"
    source = ROOT / "tests/support/fakenvml/nvml.c"
    words: list[str | Path] = [
        "cc",
        "-O1",
        "-shared",
        "-fPIC",
        "-pthread",
        f"-Wl,-soname,{library.name}",
        "-o",
        library,
        source,
    ]
    subprocess.run(words, check=True)
    ctypes.CDLL(str(library))
    mine = os.getpid()
    os.environ["FAKE_NVML"] = f"gpus=8 gpm=1 nvlinks=18 throttle=4 slowed=20,5 procs={mine},1 worked={mine}"


def recorded_home(home: Path) -> dict[str, Any]:
    """Write runs, a proof, a search and a measurement of scaling to `home`, and return them by name."""
    made: dict[str, Any] = {}
    kinds: dict[str, dict[str, Any]] = {
        "20260921-100000-cnn": {"samples_per_second": 3000.0},
        "20260921-110000-cnn": {"samples_per_second": 3100.0, "settings": ("train.seed=9", "input.batch_size=256")},
        "20260921-120000-resnet50": {"outcome": "oom", "settings": ("input.batch_size=512",)},
        "20260921-130000-vit": {"outcome": "stopped", "description": "A transformer whose description is a long one"},
        "20260921-140000-resnet50": {
            "gpus": 8, "seconds": 100, "outcome": None, "engine_pid": os.getpid(), "mfu": 0.41,
            "diagnosis": recorded.DIAGNOSIS, "input_stages": recorded.STAGES,
            "warnings": (("input", "the shuffle buffer holds 2 % of the samples"),),
        },
    }  # fmt: skip
    for number, (name, kind) in enumerate(kinds.items()):
        run = made[name] = recorded.write(home, name=name, **{"gpus": 2, "seconds": 60} | kind)
        began = recorded.BEGAN + 3600 * number
        os.utime(run.file("preset.yaml"), (began, began))
    (home / run_numbers.FILE).write_text("".join(f"{name}\n" for name in kinds))
    made["runs"] = [made[name] for name in kinds]
    made["now"] = recorded.BEGAN + 100
    made["proof"] = recorded_proof.write_proof(home)
    made["search"] = recorded_proof.write_search(home)
    trials = [recorded_proof.trials(*[(str(n), 1000.0 * n * share)] * 3, first=n) for n, share in SCALED]
    points = [
        {
            "replicas": n, "changes": {}, "trials": of, "global_batch_size": 64 * n, "why": "", "xla": False,
            "samples_per_second": 1000.0 * n * share, "step_ms": 64 / share, "input_wait": 0.12, "spread": 0.011,
            "speedup": share * n, "efficiency": share, "decision": "measured",
        }
        for (n, share), of in zip(SCALED, trials, strict=True)
    ]  # fmt: skip
    made["scaling"] = recorded_proof.write_proof(
        home, "20260921-150000-cnn", kind="scaling", comparisons=[], gain_total=2.4, changes_kept={}, diagnosis=None,
        preset_after=None, final_verdict=None, ended_because="",
        scaling={"keep": "per-replica", "shared": "", "rounds": 3, "points": points},
    )  # fmt: skip
    made["sweep"] = _sweep(home, made["now"])
    return made


def _sweep(home: Path, now: float) -> Proof:
    """Write a halved sweep of three options with simulated trainings, and the runs of its first trials."""
    over = ["learning_rate=1e-4,1e-3,3e-3,1e-2", "batch_size=16,64,256", "weight_decay=0,0.05"]
    request = swept.request_of(over, epochs=9, rungs=(1, 3), proof_seeds=3)
    path = home / "proofs" / "20260921-160000-small"
    path.mkdir()
    (path / "request.json").write_text(request.to_json())
    swept.swept(request, swept.Simulated(_loss, epochs=9), path)
    record = path / "proof.json"
    record.write_text(record.read_text().replace('"state": "running"', '"state": "done"'))
    for number in range(1, 25):
        run = recorded.write(home, name=f"{path.name}-{number:03}", gpus=1, seconds=60)
        run.file(part_of_sweep.FILE).write_text(json.dumps({"sweep": path.name}))
        os.utime(run.file("preset.yaml"), (now, now))
    return Proof(path)


def _loss(changes: Mapping[str, Any], seed: int, epoch: int) -> float:
    rate, batch, decay = changes["train.learning_rate"], changes["input.batch_size"], changes["train.weight_decay"]
    far = 0.3 * math.log10(rate / 5e-3) ** 2 + 0.04 * abs(math.log2(batch / 64)) + 1.5 * abs(decay - 0.04)
    return float(0.2 + far) + 1 / epoch + random.Random(f"{rate} {batch} {decay} {seed}").gauss(0, 0.02)


SCALED = ((1, 1.0), (2, 0.92), (4, 0.6))


def screens(made: dict[str, Any]) -> dict[str, Arrange]:
    """Return what brings the application from the form to each screen, by the name of its picture."""

    def keys(*names: str) -> Arrange:
        async def press(pilot: Pilot[Any]) -> None:
            for name in names:
                await pilot.press(name)
                await pilot.pause(0.4)

        return press

    def of_live(*names: str) -> Arrange:
        async def show(pilot: Pilot[Any]) -> None:
            now = made["now"]
            await pilot.app.push_screen(LiveScreen(made["runs"][-1], clock=lambda: now))
            await pilot.pause(1.0)
            await keys(*names)(pilot)

        return show

    def opened(method: str, thing: Any, *names: str) -> Arrange:
        async def show(pilot: Pilot[Any]) -> None:
            getattr(pilot.app, method)(thing)
            await pilot.pause(1.0)
            await keys(*names)(pilot)

        return show

    async def question(pilot: Pilot[Any]) -> None:
        pilot.app.push_screen(Ask("Delete the preset fast.yaml?\nu brings it back.", ("Delete", "Keep")))

    compared: list[Run] = made["runs"][:3]
    return {
        "first-visit": keys(),
        "form": keys("down", "down"),
        "form-field": keys("down", "down", "enter", "6"),
        "form-error": keys("slash", *"batch_size", "enter", "enter", "9", "x", "enter"),
        "form-search": keys("slash", "b", "a", "t", "c", "h"),
        "presets": keys("o"),
        "save": keys("down", "right", "S"),
        "yaml": keys("y"),
        "live": of_live(),
        "live-gpus": of_live("v"),
        "live-log": of_live("l"),
        "live-charts": of_live("z"),
        "live-ended": opened("open_run", made["runs"][0]),
        "live-failed": opened("open_run", made["runs"][2]),
        "diagnosis": of_live("w"),
        "chart": of_live("z", "enter"),
        "runs": keys("f4", "down"),
        "runs-sweep": keys("f4", "end", "up", "right"),
        "runs-columns": keys("f4", "C"),
        "runs-delete": keys("f4", "down", "d"),
        "compare": opened("open_compare", compared),
        "proofs": keys("f4", "p"),
        "proof": opened("open_proof", made["proof"], "home", "down"),
        "tune": opened("open_proof", made["search"]),
        "tune-dialog": keys("T"),
        "scaling": opened("open_proof", made["scaling"]),
        "sweep": opened("open_proof", made["sweep"], "down"),
        "sweep-curves": opened("open_proof", made["sweep"], "right_square_bracket"),
        "gpus": keys("f5"),
        "processes": keys("f5", "P"),
        "doctor": keys("f6"),
        "settings": keys("comma"),
        "help": keys("question_mark"),
        "palette": keys("ctrl+p"),
        "question": question,
    }


def in_sixteen_colours(svg: str) -> str:
    """Return the SVG with the colours that a terminal of sixteen shows instead, as Rich chooses them."""

    def nearest(found: re.Match[str]) -> str:
        return Color.parse(found[0]).downgrade(ColorSystem.STANDARD).get_truecolor(DEFAULT_TERMINAL_THEME).hex

    return re.sub('#[0-9a-f]{6}(?=[;"])', nearest, svg)


async def draw(save: Callable[[str, str, int], None], only: str) -> None:
    """Draw the screens. `save` gets the name of each picture (screen, columns, theme), its SVG and its width in pixels.

    `only` is a regular expression: pictures whose names do not have it are left out.
    """
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        stand_in_for_nvml(home)
        made = recorded_home(home)
        for theme, (name, arrange), size in itertools.product(THEMES, screens(made).items(), SIZES):
            picture = f"{name}-{size[0]}-{theme.name}"
            if not re.search(only, picture):
                continue
            os.environ["GPUTUI_HOME"] = str(home / "empty" if name == "first-visit" else home)
            app = GputuiApp(presets.resolve("quickstart"))
            async with app.run_test(size=size) as pilot:
                app.theme = theme.name
                await pilot.pause(SETTLED_SECONDS)
                await arrange(pilot)
                await pilot.pause(SETTLED_SECONDS)
                svg = app.export_screenshot(title=picture)
                save(picture, in_sixteen_colours(svg) if theme is HIGH_CONTRAST else svg, WIDTH_OF_CHARACTER * size[0])
