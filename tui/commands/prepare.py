"""The command `gputui prepare`: makes data ready once."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ...engine.prepare.manifest import DTYPES, FORMATS, MOST_SHARDS, SHARD_BYTES
from ...engine.units import counted, seconds, size
from ..base.errors import DONE, FAILED, INTERRUPTED, WRONG, Refused, clean, complain
from . import is_called
from .shared_options import preset_option, settings_option

if is_called():
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from ...engine import presets as preset_files
    from ...engine.files.values import to_json
    from ...engine.interpreter import interpreter
    from ...engine.prepare import manifest as manifests
    from ...engine.prepare import preparing, request
    from ...engine.prepare.manifest import Manifest, ManifestError
    from ...engine.prepare.preparing import Estimate
    from ...engine.prepare.request import PrepareError
    from ...engine.presets.saving import SaveError
    from ..base.glyphs import in_cell

NAMED = 5  # broken samples that are printed


def _height_and_width(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    if value is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,3})[xX]([1-9]\d{0,3})", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not HEIGHTxWIDTH, such as 224x224")
    return int(match[1]), int(match[2])


@click.command("prepare")
@preset_option("The preset whose data to prepare.", required=True)
@settings_option()
@click.option(
    "-o", "--output", metavar="FOLDER", required=True, help="Write to this folder; one that was begun goes on."
)
@click.option(
    "--size", callback=_height_and_width, metavar="HEIGHTxWIDTH", help="Resize images (default: to workload.shape)."
)
@click.option("--dtype", type=click.Choice(DTYPES),
    help="Type of the stored inputs; floats are scaled as in the training (default: uint8 for "
    "bytes, else float32).")  # fmt: skip
@click.option("--format", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True,
    help="TFRecord files, or one file with arrays.")  # fmt: skip
@click.option("--shards", type=click.IntRange(1, MOST_SHARDS), metavar="N",
    help=f"Number of files of the training part (default: about {size(SHARD_BYTES)} each).")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 256), metavar="N",
    help="Number of processes (default: as many as CPUs, fewer for little work).")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Take at most N samples, to try it.")
@click.option("--estimate", is_flag=True, help="Only measure a sample: the time, the room, and whether it pays.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest, or the estimate, as JSON on stdout.")
def prepare(preset: str, settings: Sequence[str], output: str, estimate: bool, as_json: bool, **options: Any) -> int:
    """Training then only reads it. FOLDER gets the files, a preset that trains on them, and a manifest that names
    broken samples, which are left out. After an interruption the same command goes on.

    \b
    gputui prepare --preset mine.yaml -o ready
    gputui prepare --preset mine.yaml -o ready --size 224x224 --dtype float16
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(output).absolute()
    try:
        asked = request.of(preset_files.resolve(preset, settings), folder, options)
        try:
            interpreter.require(interpreter.chosen(asked.preset.options.run.python))
        except interpreter.Unusable as fault:
            raise Refused(f"{fault}\n{fault.change}") from None
        if estimate:
            _show_estimate(preparing.estimate(asked), asked, as_json)
            return DONE
        with progress_view() as (say, show):
            manifest = preparing.prepare(asked, say, show)
    except KeyboardInterrupt:
        if not estimate:
            begun = None
            with contextlib.suppress(ManifestError):
                begun = manifests.read(folder)
            written = f"{len(begun.written)} of {counted(begun.files, 'files')} are complete" if begun else ""
            complain(f"stopped: {written}; {preparing.AGAIN}" if written else "stopped: nothing was written")
        return INTERRUPTED
    except (PrepareError, ManifestError, SaveError) as fault:
        complain(fault)
        return FAILED if isinstance(fault, PrepareError) and fault.began else WRONG
    finally:
        signal.signal(signal.SIGTERM, before)
    _show(manifest, asked, as_json)
    return DONE


def _show_estimate(estimate: Estimate, asked: request.Request, as_json: bool) -> None:
    if as_json:
        print(to_json(asdict(estimate) | {"passes": estimate.passes}))
        return
    ms = {name: f"{1000 * (getattr(estimate, name) or 0.0):.3g} ms" for name in ("again_seconds", "read_seconds")}
    broken = f"; {estimate.broken} of {estimate.sample} are broken" if estimate.broken else ""
    processes = f" with {estimate.workers} processes" if estimate.workers > 1 else ""
    print(f"measured on {counted(estimate.sample, 'samples')} of {estimate.left:,}{broken}")
    print(
        f"one CPU takes {ms['again_seconds']} to read and decode a sample now, and {ms['read_seconds']} once it is "
        "prepared, with its file in memory"
    )
    print(clean(f"prepared: {size(estimate.bytes)}; {size(estimate.free_bytes)} are free at {asked.folder}"))
    print(f"preparing takes about {seconds(estimate.seconds)}{processes}, and TensorFlow's start")
    if estimate.passes is None:
        print("it does not pay: a prepared sample takes about as long to read")
    else:
        passes = counted(estimate.passes, "passes")
        print(f"it pays after {passes} over the data, in a training that waits for its input all the time")


def _show(manifest: Manifest, asked: request.Request, as_json: bool) -> None:
    folder = asked.folder
    if as_json:
        print((folder / manifests.FILE).read_text(encoding="utf-8"), end="")
        return
    broken = manifest.broken
    for each in broken[:NAMED]:
        complain(f"left out: {each.sample}: {each.reason}")
    if more := len(broken[NAMED:]):
        complain(f"and {more} more; {folder / manifests.FILE} names all")
    parts = ", ".join(f"{manifest.good(part):,} for {part}" for part in ("train", "validation"))
    left_out = f", {len(broken):,} broken left out" if broken else ""
    print(clean(f"{folder}: {counted(manifest.samples, 'samples')} ({parts}{left_out}), {size(manifest.bytes)}"))
    if (folder / request.PRESET).exists():
        print(clean(f"gputui --preset {shlex.quote(str(folder / request.PRESET))} trains on them"))
    print(clean(f"{folder / request.READER} reads them with plain TensorFlow"))
    sys.stdout.flush()


LINE_SECONDS = 10.0  # between two lines if there is no terminal


@contextlib.contextmanager
def progress_view() -> Iterator[tuple[Callable[[str], None], Callable[[preparing.Progress], None]]]:
    """Yield what prints a text, and what shows the progress: a bar on a terminal, else a line every LINE_SECONDS."""
    if not sys.stderr.isatty() or in_cell():
        due = time.monotonic() + LINE_SECONDS

        def show_line(progress: preparing.Progress) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + LINE_SECONDS
                complain(_figures(progress))

        yield complain, show_line
        return
    columns = BarColumn(bar_width=20), TextColumn("{task.fields[figures]}", markup=False), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as bar:
        task = bar.add_task("", total=None, figures="")

        def show(progress: preparing.Progress) -> None:
            bar.update(task, completed=progress.samples, total=progress.all_samples, figures=_figures(progress))

        yield lambda text: bar.console.print(clean(text), markup=False, highlight=False), show


def _figures(progress: preparing.Progress) -> str:
    broken = f", {progress.broken:,} broken" if progress.broken else ""
    samples = f"{progress.samples:,} of {progress.all_samples:,} samples"
    return f"{samples}, {progress.files} of {progress.all_files} files{broken}"
