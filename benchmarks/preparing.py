"""Prepares 20,000 images while it is killed and the disk becomes full, and measures trainings before and after.

    python benchmarks/preparing.py [--images 20000] [--kills 10] [--photos 2000] [--trials 3] [--seed 1]

One image in a hundred is broken. The command or one of its processes is killed by SIGKILL at random moments, and once
the disk (a tmpfs, which needs root) is filled while it writes. In the end the hash of each file is compared with the
manifest, and the pixels and labels of all records with those of the images: each good image must be there once. The
trainings read larger images, which they resize, before and after these were prepared. The exit code is 1 if anything
was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support.class_folders import check, class_folders, manifest, png

COMMAND = str(Path(sys.executable).parent / "gputui")
SHARE_BROKEN = 0.01
SHARDS = 200  # files of the training part, so that a kill falls into one of many
EARLY, EARLY_SECONDS = 0.3, 10.0  # a share of the kills comes up to so long after the start, the others while it writes
SIDE = 64  # of the many images, which are stored as they are, so that their pixels can be compared
PHOTO, RESIZED = 256, 96  # sides of the images that trainings read
PRESET = """\
schema_version: 1
description: Images whose decoding takes longer than the training of this small model
workload: {{data: "images:{images}", shape: [{side}, {side}, 3], model: mlp, width: 0.05}}
input: {{batch_size: 64, parallel_calls: auto, prefetch: auto}}
train: {{seed: 1, epochs: 100}}
run: {{measure_seconds: 10, checkpoint: "off", save_model: false}}
"""


@contextlib.contextmanager
def tmpfs(size_bytes: int) -> Iterator[Path]:
    """A file system in memory with this size."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", place], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


def started(preset: Path, folder: Path) -> subprocess.Popen[str]:
    command = [
        COMMAND,
        "prepare",
        "--preset",
        str(preset),
        "-o",
        str(folder),
        "--shards",
        str(SHARDS),
        "--workers",
        "2",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill(process: subprocess.Popen[str], draw: random.Random) -> str:
    """Kill the command or one of its processes. Return which."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children()
        victim = draw.choice([None, *children])
        os.kill(process.pid if victim is None else victim.pid, signal.SIGKILL)
        process.communicate()
        return "the command" if victim is None else "a process of it"
    process.communicate()
    return "nothing"


def await_files(process: subprocess.Popen[str], folder: Path, number: int) -> None:
    """Wait until so many files are complete."""
    while len(manifest(folder)["written"]) < number:
        if process.poll() is not None:
            raise SystemExit(f"it has ended: {process.communicate()}")
        time.sleep(0.01)


def prepare(preset: Path, folder: Path, kills: int, draw: random.Random) -> float:
    """Prepare the data with so many kills and one full disk. Return the seconds of all starts together."""
    begun, done, filler = time.monotonic(), 0, folder.parent / "filler"
    while done < kills:
        process, before = started(preset, folder), len(manifest(folder)["written"])
        if draw.random() < EARLY:
            time.sleep(draw.uniform(0, EARLY_SECONDS))
        else:
            await_files(process, folder, before + draw.randint(1, SHARDS // (kills + 2)))
            time.sleep(draw.uniform(0, 0.2))
        what = kill(process, draw)
        done += 1
        print(f"kill {done}: {what}; {before} -> {len(manifest(folder)['written'])} files", flush=True)
    process = started(preset, folder)
    await_files(process, folder, len(manifest(folder)["written"]) + 3)
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(65536))
    _, errors = process.communicate()
    print(f"full disk: exit code {process.returncode}: {errors.strip().splitlines()[-2:]}", flush=True)
    assert process.returncode == 1
    assert "disk full" in errors
    refused = started(preset, folder)
    _, errors = refused.communicate()
    assert refused.returncode in (1, 2), errors
    print(f"still full: exit code {refused.returncode}: {errors.strip().splitlines()[-2:]}", flush=True)
    filler.unlink()
    process = started(preset, folder)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    print(out.strip(), flush=True)
    return time.monotonic() - begun


def speed(preset: Path) -> float:
    """The samples per second of a measured training."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [COMMAND, "--preset", str(preset), "--json"],
            capture_output=True, text=True, check=True, env=os.environ | {"GPUTUI_HOME": home},
        )  # fmt: skip
    (finished,) = (event for line in done.stdout.splitlines() if (event := json.loads(line))["type"] == "finished")
    return float(finished["summary"]["samples_per_second"])


def photos(root: Path, number: int) -> None:
    """Write images that compress as photographs do: a gradient with some noise."""
    for index in range(number):
        noise = random.Random(index).randbytes(3 * PHOTO**2).translate(bytes(value // 32 for value in range(256)))
        tones = bytes((index + at // 12) % 248 for at in range(3 * PHOTO))
        pixels = bytes(a + b for a, b in zip(noise, tones * PHOTO, strict=True))
        path = root / ("cat", "dog")[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(pixels, PHOTO))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("images", 20_000), ("kills", 10), ("photos", 2000), ("trials", 3), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    broken = round(given.images * SHARE_BROKEN)
    room = 2 * given.images * (3 * SIDE**2 + 100)
    with tempfile.TemporaryDirectory() as scratch:
        images, preset = Path(scratch) / "images", Path(scratch) / "preset.yaml"
        good = class_folders(images, given.images - broken, broken, SIDE)
        preset.write_text(PRESET.format(images=images, side=SIDE))
        with tmpfs(room) as disk:
            seconds = prepare(preset, disk / "ready", given.kills, random.Random(given.seed))
            check(disk / "ready", good, broken, SIDE)
        print(f"{given.images:,} images, {broken} broken: the manifest is right, each good image is there once")
        print(f"{seconds:.0f} s with {given.kills} kills and a full disk", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        images, preset, folder = Path(scratch) / "images", Path(scratch) / "preset.yaml", Path(scratch) / "ready"
        photos(images, given.photos)
        preset.write_text(PRESET.format(images=images, side=RESIZED))
        estimate = subprocess.run(
            [COMMAND, "prepare", "--preset", str(preset), "-o", str(folder), "--estimate"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        print(estimate.stdout, flush=True)
        process = started(preset, folder)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        pairs = [(speed(preset), speed(folder / "preset.yaml")) for _ in range(given.trials)]
    for before, after in pairs:
        print(f"{before:,.0f} -> {after:,.0f} samples/s")
    print(f"median of the pairs: {statistics.median(after / before for before, after in pairs):.2f} times as fast")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as fault:
        raise SystemExit(f"wrong: {fault}") from None
