"""Faults of the storage: damaged checkpoints, and disks that are full, read-only or limited.

A case is a function that gets a random generator. It raises Violation if gputui behaves wrongly.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .ends import send
from .lab import LONG, SHORT, Lab, check, events, lab, losses, result, settings, step, until

Damage = Callable[[Path, random.Random], None]


# ---- checkpoints ------------------------------------------------------------------------------


def _flip(where: float) -> Damage:
    def damage(checkpoint: Path, chance: random.Random) -> None:
        file = next(checkpoint.glob("*.data-*"))
        block = bytearray(file.read_bytes())
        block[min(int(len(block) * where), len(block) - 1)] ^= 1 << chance.randrange(8)
        file.write_bytes(block)

    return damage


def _cut(pattern: str, share: float) -> Damage:
    def damage(checkpoint: Path, _chance: random.Random) -> None:
        file = next(checkpoint.glob(pattern))
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])

    return damage


def _without(pattern: str) -> Damage:
    return lambda checkpoint, _chance: next(checkpoint.glob(pattern)).unlink()


def _replaced(make: Callable[[Path], object]) -> Damage:
    def damage(checkpoint: Path, _chance: random.Random) -> None:
        shutil.rmtree(checkpoint)
        make(checkpoint)

    return damage


def _noise(checkpoint: Path, chance: random.Random) -> None:
    file = next(checkpoint.glob("*.index"))
    file.write_bytes(chance.randbytes(file.stat().st_size))


DAMAGES: dict[str, Damage] = {
    "bit flipped at the start": _flip(0.0),
    "bit flipped in the middle": _flip(0.5),
    "bit flipped at the end": _flip(1.0),
    "data missing": _without("*.data-*"),
    "data half": _cut("*.data-*", 0.5),
    "data empty": _cut("*.data-*", 0.0),
    "index missing": _without("*.index"),
    "index half": _cut("*.index", 0.5),
    "index empty": _cut("*.index", 0.0),
    "index noise": _noise,
    "an empty folder": _replaced(lambda place: place.mkdir()),
    "a file in its place": _replaced(lambda place: place.write_text("x")),
    "a link to nothing": _replaced(lambda place: place.symlink_to("nothing")),
}
FOREIGN = ("step-abc", "step-0000000096 (copy)", "step-0000000100.tar", "step-0000099999", "notes")


@functools.cache
def _stopped_run() -> Path:
    """Return a folder whose `home` has a run with at least two checkpoints that was killed. The run is trained only at
    the first call.
    """
    home = Path(tempfile.mkdtemp(prefix="faults-template-"))
    with lab() as case:
        run = case.detached(*LONG)
        until(lambda: len(list((run / "checkpoints").glob("step-*"))) > 1, 120, "two checkpoints")
        send(case, 9, "engine and trainer")
        case.end(run)
        shutil.copytree(case.home, home / "home")
    return home


@contextmanager
def copied() -> Iterator[tuple[Lab, Path, list[Path]]]:
    """A context with a case, the folder of a copy of the killed run, and the copy's checkpoints, the newest last."""
    with lab() as case:
        shutil.copytree(_stopped_run() / "home", case.home)
        run = next((case.home / "runs").glob("2*"))
        yield case, run, sorted((run / "checkpoints").glob("step-*"))


def damaged(damage: Damage) -> Callable[[random.Random], None]:
    """Return a case that damages the newest checkpoint and resumes the run. The run must continue from the checkpoint
    before it with a warning, and have the losses of an undisturbed run.
    """

    def case_of(chance: random.Random) -> None:
        from .ends import undisturbed

        with copied() as (case, run, checkpoints):
            damage(checkpoints[-1], chance)
            done = case.gputui("resume", run.name)
            check(done.returncode == 0, f"resume: exit code {done.returncode}: {done.stderr[-300:]}")
            began = events(run, "started")[-1]["resumed_at_step"]
            check(began == int(checkpoints[-2].name[5:]), f"it went on from step {began}")
            check(any("checkpoint" in event["kind"] for event in events(run, "warning")), "nothing was said of it")
            later = {epoch: loss for epoch, loss in losses(run).items() if epoch > 1}
            check(later.items() <= undisturbed().items(), "the losses differ")

    return case_of


def foreign(name: str) -> Callable[[random.Random], None]:
    """Return a case with a file or a folder `name` among the checkpoints that is no checkpoint. The run must be resumed
    from its newest checkpoint, and the foreign file must stay.
    """

    def case_of(_chance: random.Random) -> None:
        with copied() as (case, run, checkpoints):
            place = run / "checkpoints" / name
            if name.endswith(".tar"):
                place.write_text("x")
            else:
                shutil.copytree(checkpoints[-1], place)
            done = case.gputui("resume", run.name)
            check(done.returncode == 0, f"resume: exit code {done.returncode}: {done.stderr[-300:]}")
            began = events(run, "started")[-1]["resumed_at_step"]
            check(began == int(checkpoints[-1].name[5:]), f"it went on from step {began}")
            check(place.exists(), "something that is not ours was removed")

    return case_of


def all_damaged(chance: random.Random) -> None:
    """Damage all checkpoints. A resume must be refused with exit code 2, and no file of the run may be lost."""
    with copied() as (case, run, checkpoints):
        for checkpoint in checkpoints:
            _cut("*.data-*", 0.5)(checkpoint, chance)
        before = sorted(path.name for path in run.iterdir())
        done = case.gputui("resume", run.name)
        check(done.returncode == 2, f"exit code {done.returncode}")
        check("checkpoint" in done.stderr, done.stderr)
        missing = set(before) - {path.name for path in run.iterdir()}
        check(not missing, f"lost: {missing}")


def draft_left(_chance: random.Random) -> None:
    """Leave an incomplete checkpoint, as a killed trainer does. A resume must delete it."""
    with copied() as (case, run, checkpoints):
        draft = run / "checkpoints" / ".draft-99999"
        shutil.copytree(checkpoints[-1], draft)
        check(case.gputui("resume", run.name).returncode == 0, "it does not go on")
        check(not draft.exists(), "the draft is still there")


# ---- disks ------------------------------------------------------------------------------------


@contextmanager
def small_disk(options: str = "size=8m") -> Iterator[tuple[Lab, Path]]:
    """A context with a case and its home, which is a file system (tmpfs) of its own with the mount `options`. Needs
    root.
    """
    with lab() as case:
        case.home.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(case.home)], check=True)
        try:
            yield case, case.home
        finally:
            for pid in case.processes():
                os.kill(pid, 9)
            until(lambda: not case.processes(), 20, "what was killed is gone")
            subprocess.run(["umount", "-l", str(case.home)], check=True)


def fill(home: Path) -> Path:
    """Fill the file system of the home to the last byte, and return the file that fills it."""
    filler = home / "filler"
    with filler.open("ab", buffering=0) as stream:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                continue
    return filler


def full_for_a_while(seconds: float, *options: str) -> Callable[[random.Random], None]:
    """Return a case whose disk is full for `seconds` during the training. The run must end well, and no epoch may be
    missing.

    `options` are those of the run (KEY=VALUE).
    """

    def case_of(chance: random.Random) -> None:
        with small_disk() as (case, home):
            run = case.detached(*(options or LONG))
            at = chance.randrange(50, 400)
            until(lambda: step(run) >= at, 90, f"step {at}")
            filler = fill(home)
            time.sleep(seconds)
            filler.unlink()
            end = case.end(run)
            check(end.get("outcome") == "ok", f"outcome {end.get('outcome')}: {end.get('error')}")
            check(sorted(losses(run)) == [1, 2, 3, 4, 5], f"epochs {sorted(losses(run))}")
            lines = (run / "events.jsonl").read_text().splitlines()
            check(len(lines) == len(events(run, *_TYPES)), "a broken line in events.jsonl")
            left = [path.name for path in run.iterdir() if path.name.startswith(".")]
            check(not left, f"left behind: {left}")

    return case_of


_TYPES = ("started", "phase", "progress", "input_stages", "allocator", "epoch", "warning", "error", "finished")


def full_to_the_end(chance: random.Random) -> None:
    """Fill the disk during the training, for good. All processes must end, and the output must name the full disk."""
    with small_disk() as (case, home):
        viewer = case.open("--preset", "quickstart", *settings(*LONG))
        run = until(lambda: next(iter((home / "runs").glob("2*")), None), 30, "a run")
        until(lambda: step(run) >= chance.randrange(20, 300), 90, "it trains")
        fill(home)
        out, err = viewer.communicate(timeout=170)
        until(lambda: not case.engines() and not case.trainers(), 30, "all have ended")
        check("Traceback" not in err, err[-300:])
        check("full" in out + err or "No space" in out + err, f"nothing names the disk: {(out + err)[-400:]}")


def full_at_start(_chance: random.Random) -> None:
    with small_disk() as (case, home):
        (home / "runs").mkdir(mode=0o700)
        filler = fill(home)
        done = case.gputui("--preset", "quickstart", *settings(*SHORT))
        check(done.returncode == 2, f"exit code {done.returncode}")
        check("No space" in done.stderr or "full" in done.stderr, done.stderr)
        check(not list((home / "runs").iterdir()), f"left: {list((home / 'runs').iterdir())}")
        filler.unlink()


def no_inodes(chance: random.Random) -> None:
    with small_disk("size=20m,nr_inodes=60") as (case, home):
        run = case.detached(*LONG)
        until(lambda: step(run) >= chance.randrange(20, 300), 90, "it trains")
        for number in range(100):
            try:
                (home / f"file-{number}").touch()
            except OSError:
                break
        time.sleep(3)
        for file in home.glob("file-*"):
            file.unlink()
        check(case.end(run).get("outcome") == "ok", f"outcome {result(run)}")


def immutable(chance: random.Random) -> None:
    """Prevent new files in the run folder for 3 s, as on a file system that has become read-only. The run must end
    well.
    """
    with lab() as case:
        run = case.detached(*LONG)
        until(lambda: step(run) >= chance.randrange(20, 300), 90, "it trains")
        subprocess.run(["chattr", "+i", str(run)], check=True)
        time.sleep(3)
        subprocess.run(["chattr", "-i", str(run)], check=True)
        check(case.end(run).get("outcome") == "ok", f"outcome {result(run)}")


def file_size_limit(_chance: random.Random) -> None:
    """Limit the size of files (ulimit -f), so that checkpoints do not fit. The run must end well, or the output must
    name the reason.
    """
    with lab() as case:
        limited = ("sh", "-c", 'ulimit -f 60; exec "$0" "$@"')
        done = case.gputui("--preset", "quickstart", *settings(*LONG), before=limited)
        run = next((case.home / "runs").glob("2*"), None)
        if run is None:
            check(done.returncode == 2 and done.stderr, "refused without a word")
            return
        said = done.stdout + done.stderr
        check(done.returncode == 0 or "large" in said or "full" in said, f"exit code {done.returncode}: {said[-300:]}")
