"""The pictures of the documents, made from runs that this script trains: `make screenshots`.

Textual draws its screen as SVG; resvg turns that into PNG with Fira Code, which has the braille of the charts. The
picture of README is animated: a PNG with several frames (APNG), of which other viewers show the first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import struct
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import resvg_py
from gputui.engine import presets, runs
from gputui.engine.process import launch
from gputui.engine.proof import folder, proof_start, request
from gputui.engine.proof.folder import Proof
from gputui.engine.runs import Run
from gputui.engine.trials.report import as_markdown
from gputui.tui.app import GputuiApp
from textual.pilot import Pilot

FOLDER = Path(__file__).parent
SIZE = (120, 40)
WIDTH, README_WIDTH = 1100, 860
FRAME_MS = 3500
PNG = b"\x89PNG\r\n\x1a\n"
RGBA = 4  # bytes of a pixel as resvg writes it
COLOURS = 256
RUNS = (
    ("quickstart", ("epochs=60", "schedule=constant", "learning_rate=0.001")),
    ("quickstart", ("epochs=60", "schedule=constant", "learning_rate=0.001", "steps_per_execution=15")),
    ("quickstart", ("epochs=60", "schedule=constant", "learning_rate=0.001", "batch_size=128")),
    ("input-heavy", ("epochs=40",)),
)


def record() -> list[Run]:
    """Train the runs of RUNS, one after the other, and return them."""
    done = []
    for name, settings in RUNS:
        run, engine = launch.start(presets.resolve(name, settings))
        engine.wait()
        print(f"{run.id}: {run.state}")
        done.append(run)
    return done


def prove(anyway: bool) -> Proof:
    """Measure the remedies of the slow preset, and return the proof. With `anyway`, other trainings may run at the same
    time.
    """
    asked = request.of_preset("loop", "input-heavy", (), ablation_repeats=1, measure_seconds=3.0)
    proof, process = proof_start.begin(asked, anyway)
    process.wait()
    print(as_markdown(proof.record))
    return proof


async def screenshot(app: GputuiApp, arrange: Callable[[Pilot[None]], Awaitable[None]]) -> str:
    """Open the application, bring it to a screen by `arrange`, and return the picture of the screen as SVG."""
    async with app.run_test(size=SIZE) as pilot:
        app.theme = "gputui"  # a test terminal reports no colours
        await pilot.pause(1.5)
        await arrange(pilot)
        await pilot.pause(1.5)
        return app.export_screenshot(title="gputui")


def as_png(svg: str, fonts: Path, width: int) -> bytes:
    """Draw with Fira Code, or with DejaVu if that is what the folder has."""
    if not list(fonts.glob("Fira*")):
        svg = re.sub(r"""font-family([:=]) *"?[^;"}]+"?""", r'font-family\1"DejaVu Sans Mono"', svg)
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, font_dirs=[str(fonts)], width=width))


def write(name: str, png: bytes) -> None:
    (FOLDER / f"{name}.png").write_bytes(png)
    print(f"{name}.png: {len(png) // 1000} kB")


async def draw(recorded: list[Run], proof: Proof, fonts: Path) -> None:
    async def form(pilot: Pilot[None]) -> None:
        for _ in range(4):  # to the batch size
            await pilot.press("down")

    async def nothing(pilot: Pilot[None]) -> None:
        pass

    async def compare(pilot: Pilot[None]) -> None:
        pilot.app.open_compare(recorded[:3])  # type: ignore[attr-defined]

    async def diagnosis(pilot: Pilot[None]) -> None:
        await pilot.press("w")

    async def proved(pilot: Pilot[None]) -> None:
        pilot.app.open_proof(proof)  # type: ignore[attr-defined]
        await pilot.pause(1.5)
        await pilot.press("home", "down")  # the first remedy, after the trial without input

    slow = recorded[3]
    quickstart = presets.resolve("quickstart")
    drawn = {
        "form": await screenshot(GputuiApp(quickstart), form),
        "live": await screenshot(GputuiApp(opens=("live", recorded[0])), nothing),
        "compare": await screenshot(GputuiApp(quickstart), compare),
        "diagnosis": await screenshot(GputuiApp(opens=("live", slow)), diagnosis),
        "proof": await screenshot(GputuiApp(quickstart), proved),
    }
    for name, svg in drawn.items():
        write(name, smaller([as_png(svg, fonts, WIDTH)]))
    frames = [await screenshot(GputuiApp(opens=("live", slow)), nothing), drawn["diagnosis"], drawn["proof"]]
    write("faster", smaller([as_png(svg, fonts, README_WIDTH) for svg in frames], FRAME_MS))


# ---- PNG with 256 colours: a third of the size of what resvg writes; several frames make an animation -----------


def smaller(pictures: Sequence[bytes], milliseconds: int = 0) -> bytes:
    """Return the pictures, RGBA PNGs of one size, as one PNG with a palette of 256 colours.

    Several pictures become an animation (APNG), each shown for `milliseconds`.
    """
    frames = [_pixels(picture) for picture in pictures]
    width, height, _ = frames[0]
    counts = Counter(pixel for _, _, pixels in frames for pixel in pixels)
    palette = [pixel for pixel, _ in counts.most_common(COLOURS)]
    place = {pixel: index for index, pixel in enumerate(palette)}
    for pixel in counts:
        place.setdefault(pixel, min(range(len(palette)), key=lambda index: _distance(pixel, palette[index])))
    parts = [_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))]
    if len(frames) > 1:
        parts.append(_chunk(b"acTL", struct.pack(">II", len(frames), 0)))
    parts.append(_chunk(b"PLTE", b"".join(pixel[:3] for pixel in palette)))
    parts.append(_chunk(b"tRNS", bytes(pixel[3] for pixel in palette)))
    number = 0  # of the chunks of the animation
    for _, _, pixels in frames:
        indices = bytes(place[pixel] for pixel in pixels)
        rows = b"".join(b"\0" + indices[start : start + width] for start in range(0, len(indices), width))
        data = zlib.compress(rows, 9)
        if len(frames) > 1:
            timing = struct.pack(">IIIIIHHBB", number, width, height, 0, 0, milliseconds, 1000, 0, 0)
            parts.append(_chunk(b"fcTL", timing))
            number += 1
        if number > 1:
            parts.append(_chunk(b"fdAT", struct.pack(">I", number) + data))
            number += 1
        else:
            parts.append(_chunk(b"IDAT", data))
    return PNG + b"".join(parts) + _chunk(b"IEND", b"")


def _distance(one: bytes, other: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Return width, height and the pixels (four bytes each, row by row) of an RGBA PNG."""
    parts = list(_chunks(png))
    width, height, depth, kind = struct.unpack(">IIBB", dict(parts)[b"IHDR"][:10])
    assert (depth, kind) == (8, 6), "no RGBA"
    rows = zlib.decompress(b"".join(data for name, data in parts if name == b"IDAT"))
    stride, above, pixels = RGBA * width, bytearray(RGBA * width), []
    for start in range(0, height * (stride + 1), stride + 1):
        above = _unfiltered(rows[start], bytearray(rows[start + 1 : start + 1 + stride]), above)
        pixels += [bytes(above[place : place + RGBA]) for place in range(0, stride, RGBA)]
    return width, height, pixels


def _unfiltered(kind: int, row: bytearray, above: bytearray) -> bytearray:
    """Undo PNG's filter of the type `kind` in a row of bytes, and return the row. `above` is the row above it."""
    for place in range(len(row)) if kind else ():
        left, corner = (row[place - RGBA], above[place - RGBA]) if place >= RGBA else (0, 0)
        up = above[place]
        if kind == 4:  # Paeth: the neighbour that is nearest to left + up - corner
            guess = left + up - corner
            value = min((left, up, corner), key=lambda neighbour: abs(guess - neighbour))
        else:
            value = (left, up, (left + up) // 2)[kind - 1]
        row[place] = (row[place] + value) & 255
    return row


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type and the data of each chunk of a PNG."""
    place = len(PNG)
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += 12 + length


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fonts", type=Path, default=Path("/usr/share/fonts/truetype/firacode"))
    parser.add_argument("--anyway", action="store_true", help="measure although other trainings run on this machine")
    parser.add_argument("--home", type=Path, help="keep the runs and the proof there, and draw those that are there")
    parser.add_argument("--every", type=Path, metavar="FOLDER", help="draw all screens in all sizes and themes there")
    parser.add_argument("--only", default="", help="with --every: a regular expression that the pictures' names have")
    given = parser.parse_args()
    fonts = given.fonts
    if not list(fonts.glob("*.ttf")):
        raise SystemExit(f"no fonts in {fonts}; on Debian: apt-get install fonts-firacode, elsewhere --fonts FOLDER")
    if given.every:
        sys.path.insert(0, str(FOLDER.parent))
        from docs.every_screen import draw as draw_every  # needs the tests' folder and a C compiler

        given.every.mkdir(parents=True, exist_ok=True)

        def save(name: str, svg: str, width: int) -> None:
            (given.every / f"{name}.png").write_bytes(as_png(svg, fonts, width))

        asyncio.run(draw_every(save, given.only))
        return
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["GPUTUI_HOME"] = str(given.home or temporary)
        recorded, found = runs.all_runs()[::-1], folder.proofs()
        asyncio.run(draw(recorded or record(), found[0] if found else prove(given.anyway), fonts))
        assert not any(run.alive("engine") for run in runs.all_runs())


if __name__ == "__main__":
    main()
