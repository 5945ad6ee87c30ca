"""Checkpoints that something has happened to: which are used, what is told, what is lost."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import pytest
from gputui.engine import presets, runs
from gputui.engine.files.writing import write_atomically
from gputui.engine.runs import Run, checkpoint_files
from gputui.engine.runs.checkpoint_files import MANIFEST
from gputui.engine.trainer.checkpoint.checkpoints import Checkpoints
from gputui.engine.trainer.checkpoint.training_state import State
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.setup.devices import Devices

from tests.support.front_door import gputui, happened, last_losses
from tests.support.training import Build, Training, built, options

TINY = (
    "model=mlp",
    "width=0.05",
    "batch_size=32",
    "validation_split=0",
    "epochs=2",
    "steps_per_epoch=6",
    "cache=off",
    "shuffle=100",
    "checkpoint=3",
    "keep=9",
    "deterministic=true",
)
DATA, INDEX = "state.data-00000-of-00001", "state.index"


def flip(path: Path, where: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(where * (len(content) - 1))] ^= 4
    path.write_bytes(content)


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(share * path.stat().st_size))


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(folder: Path) -> None:
        shutil.rmtree(folder)
        make(folder)

    return replace


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def scramble(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "data, bit flipped at the start": lambda folder: flip(folder / DATA, 0.0),
    "data, bit flipped in the middle": lambda folder: flip(folder / DATA, 0.5),
    "data, bit flipped at the end": lambda folder: flip(folder / DATA, 1.0),
    "data missing": lambda folder: (folder / DATA).unlink(),
    "data half": lambda folder: cut(folder / DATA, 0.5),
    "data empty": lambda folder: cut(folder / DATA, 0),
    "index missing": lambda folder: (folder / INDEX).unlink(),
    "index half": lambda folder: cut(folder / INDEX, 0.5),
    "index empty": lambda folder: cut(folder / INDEX, 0),
    "index random": lambda folder: scramble(folder / INDEX),
    "folder empty": replace_by(Path.mkdir),
    "a file in its place": replace_by(Path.touch),
    "a dangling link in its place": replace_by(lambda folder: folder.symlink_to("nowhere")),
}
MANIFEST_DAMAGES: dict[str, Callable[[Path], object]] = {
    "bit flipped": lambda folder: flip(folder / MANIFEST, 0.7),
    "half": lambda folder: cut(folder / MANIFEST, 0.5),
    "empty": lambda folder: cut(folder / MANIFEST, 0),
    "too deep": lambda folder: (folder / MANIFEST).write_text("[" * 100_000),
    "of a list": lambda folder: (folder / MANIFEST).write_text("[1]"),
    "without files": lambda folder: (folder / MANIFEST).write_text('{"step": 12, "files": {}}'),
    "of files elsewhere": lambda folder: (folder / MANIFEST).write_text(
        json.dumps({"step": 12, "files": {INDEX: {"bytes": 1, "crc32": 1}, "/etc/passwd": {"bytes": 1, "crc32": 1}}})
    ),
    "a folder": lambda folder: to_folder(folder / MANIFEST),
}
FOREIGN = ("step-abc", "step-0000000096 (copy)", "step-0000000096.tar", "step-96", "step-00000000960", "other")


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


def test_foreign_entries_and_steps_beyond_the_end_are_not_taken(trained: Training, tmp_path: Path) -> None:
    fresh = copies(trained, tmp_path)
    folder = next(fresh)
    for name in FOREIGN:
        shutil.copytree(folder / "step-0000000012", folder / name)
    (folder / ".draft-1").mkdir()
    assert newest(folder) == (12, "")
    assert {path.name for path in folder.iterdir()} >= set(FOREIGN)
    assert not (folder / ".draft-1").exists()
    for with_manifest in (True, False):
        shutil.copytree(folder / "step-0000000012", folder / "step-0000099999", dirs_exist_ok=True)
        if not with_manifest:
            (folder / "step-0000099999" / MANIFEST).unlink()
        told = "checkpoint of step 99999 lies beyond the end of the training, step 12; resuming from step 12"
        assert newest(folder) == (12, told)
    shutil.copytree(folder / "step-0000000006", folder / "step-0000000011")
    shutil.rmtree(folder / "step-0000000012")
    assert "checkpoint of step 11 is damaged (it belongs to step 6); resuming from step 9" in newest(folder)[1]


def test_where_none_is_whole_nothing_is_changed_and_each_reason_told(trained: Training, tmp_path: Path) -> None:
    folder = next(copies(trained, tmp_path))
    for path in folder.iterdir():
        flip(path / DATA, 0.5)
    before = sorted(folder.rglob("*"))
    with pytest.raises(TrainerError, match=r"no checkpoint can be used: checkpoint of step 12 is damaged \(the chec"):
        newest(folder)
    run = stopped_run(folder, "schema_version: 1\n")
    refused = gputui("resume", run.id)
    assert refused.returncode == 2
    assert "no intact checkpoint to resume from (checkpoint of step 12 is damaged (the checksum of" in refused.stderr
    assert "and 1 more" in refused.stderr
    assert len(refused.stderr.splitlines()) == 2
    assert run.state == "stopped"
    assert sorted(folder.rglob("*")) == before


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


def test_a_damaged_checkpoint_takes_no_place_of_an_intact_one(trained: Training, build: Build) -> None:
    again = build(*TINY, "keep=2")
    folder = again.run.file("checkpoints")
    shutil.copytree(trained.run.file("checkpoints"), folder)
    newest, damaged, *_ = steps = checkpoint_files.steps_in(folder)
    intact = steps[2:]
    flip(folder / f"step-{newest:010}" / DATA, 0.5)
    flip(folder / f"step-{damaged:010}" / DATA, 0.5)
    checkpoints = again.loop.built.checkpoints
    assert checkpoints.latest_step(again.loop.steps) == intact[0]
    checkpoints.save(newest + 1)
    assert checkpoint_files.steps_in(folder)[0] == newest + 1
    assert intact[0] in checkpoint_files.steps_in(folder)


def test_what_is_renamed_has_reached_the_disk(trained: Training, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file, then the folder with their names; then its new name; only then an older checkpoint goes."""
    again = build(*TINY, "keep=1")
    shutil.copytree(trained.run.file("checkpoints"), again.run.file("checkpoints"))
    told: list[str] = []

    def name(descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    for module, function in ((os, "fsync"), (os, "rename"), (os, "replace"), (shutil, "rmtree")):
        real = getattr(module, function)

        def spy(*given: object, real: Callable[..., object] = real, **more: object) -> object:
            subject = name(given[0]) if isinstance(given[0], int) else Path(str(given[0])).name
            told.append(f"{real.__name__} {subject}")
            return real(*given, **more)

        monkeypatch.setattr(module, function, spy)
    monkeypatch.setattr(secrets, "randbelow", lambda below: 0)
    again.loop.built.checkpoints.save(13)
    draft, manifest = f".draft-{os.getpid()}", f".{MANIFEST}.{os.getpid()}000000000"
    assert told[:7] == [
        f"fsync {DATA}",
        f"fsync {INDEX}",
        f"fsync {manifest}",
        f"replace {manifest}",
        f"fsync {draft}",
        f"rename {draft}",
        "fsync checkpoints",
    ]
    assert set(told[7:]) == {f"rmtree step-{number:010d}" for number in (3, 6, 9, 12)}
    told.clear()
    again.loop.built.report.finish("ok", 0)
    result = f".result.json.{os.getpid()}000000000"
    assert told == [f"fsync {result}", f"replace {result}", f"fsync {again.run.path.name}"]
    told.clear()
    made = runs.create("tiny", "schema_version: 1\n")
    preset = f".preset.yaml.{os.getpid()}000000000"
    assert told[:2] == [f"fsync {preset}", f"replace {preset}"]
    assert [each.split(".")[0] for each in told[2:4]] == ["fsync ", "rename "]
    assert told[4:] == ["fsync runs"]
    assert os.listdir(made.path) == ["preset.yaml"]


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.usefixtures("nothing_left_running")
def test_resume_goes_on_from_the_last_whole_checkpoint_and_says_what_is_lost(build: Build) -> None:
    learning = ("model=mlp", "width=0.25", "epochs=4", "steps_per_epoch=20", "checkpoint=20", "keep=9")
    before = build(*learning).train()
    run = stopped_run(before.run.file("checkpoints"), presets.defaults(["seed=7", *learning]).to_yaml())
    flip(run.file("checkpoints") / "step-0000000080" / DATA, 0.5)
    (run.file("checkpoints") / "step-abc").mkdir()
    done = gputui("resume", run.id)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"warning: checkpoint of step 80 is damaged (the checksum of {DATA} does not match); "
        "resuming from step 60, 20 steps are lost"
    ) in done.stdout
    assert happened(run, "started")[-1]["resumed_at_step"] == 60
    assert last_losses(run)["loss"] < min(2, before.losses()[1])


def stopped_run(checkpoints: Path, preset: str) -> Run:
    """A run that was stopped and has left these checkpoints."""
    run = runs.create("tiny", preset)
    shutil.copytree(checkpoints, run.file("checkpoints"))
    write_atomically(run.file("result.json"), '{"outcome": "stopped"}')
    return run
