"""The pictures of the documents, made from runs that this script trains: `make screenshots`.

Textual draws its screen as SVG; resvg turns that into PNG with Fira Code, which has the braille of the charts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import resvg_py
from gputui.engine import presets, runs
from gputui.engine.process import launch
from gputui.engine.proof import folder, request, starting
from gputui.engine.proof.folder import Proof
from gputui.engine.proof.markdown import as_markdown
from gputui.engine.runs import Run
from gputui.tui.app import GputuiApp
from textual.pilot import Pilot

FOLDER = Path(__file__).parent
SIZE = (120, 40)
RUNS = (
    ("quickstart", ("epochs=60", "schedule=constant", "learning_rate=0.001")),
    ("quickstart", ("epochs=60", "schedule=constant", "learning_rate=0.001", "steps_per_execution=15")),
    ("quickstart", ("epochs=60", "schedule=constant", "learning_rate=0.001", "batch_size=128")),
)


def record() -> list[Run]:
    """Train, one after the other."""
    done = []
    for name, settings in RUNS:
        run, engine = launch.start(presets.resolve(name, settings))
        engine.wait()
        print(f"{run.id}: {run.state}")
        done.append(run)
    return done


def prove(anyway: bool) -> Proof:
    """Improve the slow preset, remedy by remedy; `anyway` beside other trainings of this machine, too."""
    asked = request.of_preset("loop", "input-heavy", (), ablation_repeats=1, measure_seconds=3.0)
    proof, process = starting.begin(asked, anyway)
    process.wait()
    print(as_markdown(proof.record))
    return proof


async def picture(name: str, app: GputuiApp, fonts: Path, arrange: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    """Open the application, bring it to a screen, draw that."""
    async with app.run_test(size=SIZE) as pilot:
        app.theme = "gputui"  # a test terminal tells no colours
        await pilot.pause(1.5)
        await arrange(pilot)
        await pilot.pause(1.5)
        svg = app.export_screenshot(title="gputui")
    png = resvg_py.svg_to_bytes(svg_string=svg, font_dirs=[str(fonts)], width=1100)
    (FOLDER / f"{name}.png").write_bytes(bytes(png))
    print(f"{name}.png: {len(png) // 1000} kB")


async def draw(recorded: list[Run], proof: Proof, fonts: Path) -> None:
    async def form(pilot: Pilot[None]) -> None:
        for _ in range(12):
            await pilot.press("down")

    async def nothing(pilot: Pilot[None]) -> None:
        pass

    async def compare(pilot: Pilot[None]) -> None:
        pilot.app.open_compare(recorded)  # type: ignore[attr-defined]

    async def diagnosis(pilot: Pilot[None]) -> None:
        await pilot.press("w")

    async def proved(pilot: Pilot[None]) -> None:
        pilot.app.open_proof(proof)  # type: ignore[attr-defined]

    measured = next(trial for trial in proof.trials if trial.id.endswith("-a"))
    await picture("diagnosis", GputuiApp(watch=measured), fonts, diagnosis)
    await picture("proof", GputuiApp(presets.resolve("quickstart")), fonts, proved)
    await picture("form", GputuiApp(presets.resolve("quickstart")), fonts, form)
    await picture("live", GputuiApp(watch=recorded[0]), fonts, nothing)
    await picture("compare", GputuiApp(presets.resolve("quickstart")), fonts, compare)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fonts", type=Path, default=Path("/usr/share/fonts/truetype/firacode"))
    parser.add_argument("--anyway", action="store_true", help="measure although other trainings run on this machine")
    parser.add_argument("--home", type=Path, help="keep the runs and the proof there, and draw those that are there")
    given = parser.parse_args()
    fonts = given.fonts
    if not list(fonts.glob("*.ttf")):
        raise SystemExit(f"no fonts in {fonts}; on Debian: apt-get install fonts-firacode, elsewhere --fonts FOLDER")
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["GPUTUI_HOME"] = str(given.home or temporary)
        recorded, found = runs.all_runs()[::-1], folder.proofs()
        asyncio.run(draw(recorded or record(), found[0] if found else prove(given.anyway), fonts))
        assert not any(run.alive("engine") for run in runs.all_runs())


if __name__ == "__main__":
    main()
