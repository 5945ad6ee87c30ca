"""Checkpoints: what is written, what a damaged, missing or foreign one means, and what several workers share."""

from __future__ import annotations

import errno
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.engine import MANIFEST, checkpoint_files
from tests.doors.trainer import (
    Arrays,
    Checkpoints,
    Devices,
    Exchange,
    NotWritten,
    State,
    TrainerError,
)
from tests.support.training import Build, Training, built, options
from tests.trainer.test_workers import by_all


class Small:
    """The state of a training, which is a number that all workers share, and one that each has of its own."""

    begins_anew = ""
    shared_names: list[str] | None = None

    def __init__(self, shared: float = 0.0, own: bytes = b"") -> None:
        self.shared = tf.Variable(shared, dtype=tf.float64)
        self.own, self.of_workers = own, list[bytes]()
        self.fault: BaseException | None = None
        self.written: list[str] = []

    def write(self, prefix: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.written.append(prefix)
        Path(f"{prefix}.data-00000-of-00001").write_text("data")
        Path(f"{prefix}.index").write_text(json.dumps([self.shared.numpy(), [o.decode() for o in self.of_workers]]))

    def restore(self, prefix: str) -> list[str]:
        if self.fault is not None:
            raise self.fault
        shared, workers = json.loads(Path(f"{prefix}.index").read_text())
        self.shared.assign(shared)
        self.of_workers = [own.encode() for own in workers]
        return []

    def fits(self, prefix: str) -> bool:
        return Path(f"{prefix}.index").exists()

    def of_its_own(self) -> bytes:
        return self.own

    def take_own(self, own: bytes) -> None:
        self.own = own

    def the_same(self) -> list[tf.Variable]:
        return [self.shared]

    size_of, take = staticmethod(State.size_of), staticmethod(State.take)


def checkpoints(folder: Path, keep: int = 2, state: Any = None) -> tuple[Checkpoints, Any]:
    state = Small() if state is None else state
    return Checkpoints(folder, keep, state), state


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


FULL = OSError(errno.ENOSPC, "No space left on device", "/x")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (FULL, "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (tf.errors.ResourceExhaustedError(None, None, "/x/state; No space left on device"), "No space left on device"),
        (tf.errors.UnknownError(None, None, "a {{node b}}\n file"), "a file"),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), None),
        (ValueError("theirs"), None),
    ],
)
def test_a_disk_that_refuses_costs_the_checkpoint_and_other_faults_are_raised(
    fault: Exception, reason: str | None, tmp_path: Path
) -> None:
    kept, state = checkpoints(tmp_path)
    kept.save(1)
    state.fault = fault
    with pytest.raises(NotWritten if reason else type(fault)) as raised:
        kept.save(2)
    if reason:
        assert str(raised.value) == f"{reason}: {tmp_path}: no checkpoint of step 2 is written"
    if not isinstance(fault, ValueError):
        assert steps(tmp_path) == ["step-0000000001"], "no half of it"
    state.fault = None
    assert kept.last_step == 1
    kept.save(2)
    assert steps(tmp_path) == ["step-0000000001", "step-0000000002"]


def test_the_lost_steps_are_counted_up_to_the_newest_that_is_damaged(tmp_path: Path) -> None:
    kept, _ = checkpoints(tmp_path, keep=9)
    for step in (3, 5, 7, 9):
        kept.save(step)
    assert (kept.latest_step(), kept.damaged(9)) == (9, "")
    damaged = "; ".join(f"checkpoint of step {step} is damaged (state.index is missing)" for step in (7, 5))
    for step in (7, 5):
        (tmp_path / f"step-000000000{step}" / "state.index").unlink()
    assert kept.latest_step(8) == 3
    beyond = "checkpoint of step 9 lies beyond the end of the training, step 8"
    assert kept.damaged(3) == f"{beyond}; {damaged}; resuming from step 3, 4 steps are lost"
    (tmp_path / "step-0000000003" / "state.index").unlink()
    with pytest.raises(TrainerError, match=f"^no checkpoint can be used: {re.escape(beyond)}") as raised:
        kept.latest_step(8)
    hint = f"nothing was changed; gputui --preset {tmp_path.parent / 'preset.yaml'} starts again from step 0"
    assert (raised.value.kind, raised.value.hint) == ("checkpoint", hint)
    empty, _ = checkpoints(tmp_path / "none")
    assert (empty.latest_step(5), empty.damaged(0)) == (None, "")


# ---- of several machines -----------------------------------------------------------------------


Each = Callable[[Checkpoints, Small, Exchange], Any]


def workers(folder: Path, monkeypatch: pytest.MonkeyPatch, each: Each) -> list[Any]:
    """What `each` returns on three workers, of which only the first has files."""

    def one(mine: Exchange) -> Any:
        state: Any = Small(mine.index + 0.5, f"own {mine.index}".encode())
        return each(Checkpoints(folder / str(mine.index), 2, state, mine), state, mine)

    return by_all(monkeypatch, one)


def test_the_chief_writes_what_each_worker_has_of_its_own_and_all_get_theirs_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(kept: Checkpoints, state: Small, mine: Exchange) -> Any:
        kept.callbacks = lambda arrays: arrays.pack(
            {"n": mine.index, "same": np.ones(5), "mine": np.arange(mine.index)}
        )
        kept.place_in_data = lambda step: [step, mine.index]
        assert kept.latest_step() is None
        kept.save(3)
        kept.save(3)
        return kept.last_step, len(state.written)

    assert workers(tmp_path, monkeypatch, write) == [(3, 1), (3, 0), (3, 0)]
    assert steps(tmp_path) == ["0"]

    def read(kept: Checkpoints, state: Small, mine: Exchange) -> Any:
        state.own = b""
        step = kept.latest_step(5)
        assert step is not None
        found = kept.callbacks_at(step)
        assert found is not None
        values, arrays = found
        given = Arrays.unpack(arrays, values)
        assert (given["same"].tolist(), given["mine"].tolist()) == ([1.0] * 5, list(range(mine.index)))
        fits = kept.fits(step), kept.fits(9)
        place, none = kept.saved_place(step), kept.callbacks_at(9)
        kept.restore(step)
        return step, given["n"], fits, place, none, state.shared.numpy(), state.own, kept.last_step

    expected = [(3, n, (True, False), [3, 0], None, 0.5, own, 3) for n, own in enumerate((b"", b"own 1", b"own 2"))]
    assert workers(tmp_path, monkeypatch, read) == expected


TINY = (
    "model=mlp", "width=0.05", "batch_size=32", "validation_split=0", "epochs=2", "steps_per_epoch=6", "cache=off",
    "shuffle=100", "checkpoint=3", "keep=9", "deterministic=true",
)  # fmt: skip
DATA, INDEX = "state.data-00000-of-00001", "state.index"


def flip(path: Path, where: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(where * (len(content) - 1))] ^= 4
    path.write_bytes(content)


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(folder: Path) -> None:
        shutil.rmtree(folder)
        make(folder)

    return replace


def scramble(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "data, bit flipped in the middle": lambda folder: flip(folder / DATA, 0.5),
    "data missing": lambda folder: (folder / DATA).unlink(),
    "index missing": lambda folder: (folder / INDEX).unlink(),
    "index random": lambda folder: scramble(folder / INDEX),
    "folder empty": replace_by(Path.mkdir),
    "a dangling link in its place": replace_by(lambda folder: folder.symlink_to("nowhere")),
}
MANIFEST_DAMAGES: dict[str, Callable[[Path], object]] = {
    "bit flipped": lambda folder: flip(folder / MANIFEST, 0.7),
    "too deep": lambda folder: (folder / MANIFEST).write_text("[" * 100_000),
    "without files": lambda folder: (folder / MANIFEST).write_text('{"step": 12, "files": {}}'),
    "of files elsewhere": lambda folder: (folder / MANIFEST).write_text(
        json.dumps({"step": 12, "files": {INDEX: {"bytes": 1, "crc32": 1}, "/etc/passwd": {"bytes": 1, "crc32": 1}}})
    ),
}


@pytest.fixture(scope="module")
def trained(cpus: Devices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """12 steps, with checkpoints of steps 3, 6, 9 and 12, which no test changes."""
    wanted = options(*TINY)
    keras.utils.set_random_seed(wanted.train.seed)
    training = built(tmp_path_factory.mktemp("trained"), cpus, wanted).train()
    yield training
    training.loop.built.report.writer.close()


def copies(training: Training, folder: Path) -> Iterator[Path]:
    """Folders with the training's checkpoints, one after the other."""
    for number in range(100):
        yield Path(shutil.copytree(training.run.file("checkpoints"), folder / f"copy{number}" / "checkpoints"))


def newest(folder: Path) -> tuple[int | None, str]:
    """The step that would be gone on from, and what is told of the others."""
    checkpoints = Checkpoints(folder, 2, State(keras.Model()))
    found = checkpoints.latest_step(12)
    return found, checkpoints.damaged(found or 0)


def test_a_damaged_checkpoint_of_any_kind_is_passed_over_and_told(trained: Training, tmp_path: Path) -> None:
    fresh = copies(trained, tmp_path)
    assert newest(next(fresh)) == (12, "")
    for kind, damage in DAMAGES.items():
        for with_manifest in (True, False):
            folder = next(fresh)
            if not with_manifest:  # as earlier versions left them
                for path in folder.glob(f"*/{MANIFEST}"):
                    path.unlink()
                assert newest(folder) == (12, "")
            damage(folder / "step-0000000012")
            found, told = newest(folder)
            assert found == 9, (kind, with_manifest)
            assert told.startswith("checkpoint of step 12 is damaged ("), (kind, told)
            assert told.endswith("); resuming from step 9, 3 steps are lost"), (kind, told)
            assert len(told) < 320
    for kind, damage in MANIFEST_DAMAGES.items():
        folder = next(fresh)
        damage(folder / "step-0000000012")
        assert newest(folder)[0] == 9, kind


def test_from_an_older_checkpoint_it_trains_on_to_the_same_weights(
    trained: Training, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = build(*TINY, "keep=1")
    shutil.copytree(trained.run.file("checkpoints"), again.run.file("checkpoints"))
    for path in again.run.file("checkpoints").iterdir():
        if path.name > "step-0000000003":
            flip(path / DATA, 0.5)
    found = again.loop.built.checkpoints.latest_step(again.loop.steps)
    assert found == 3
    kept = []
    save = again.loop.built.checkpoints.save

    def saved(step: int) -> None:
        save(step)
        kept.append([int(path.name[-2:]) for path in sorted(again.run.file("checkpoints").iterdir())])

    monkeypatch.setattr(again.loop.built.checkpoints, "save", saved)
    again.loop.run(found)
    # A new one is never given up for a damaged one that has a higher number.
    assert kept == [[6, 9, 12], [9, 12], [12]]
    assert checkpoint_files.verify(again.run.file("checkpoints"), 12)
    ours, theirs = (training.loop.built.model.get_weights() for training in (trained, again))
    assert all((one == other).all() for one, other in zip(ours, theirs, strict=True))
