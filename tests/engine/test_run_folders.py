"""What the files of a run folder say: its state, its summary, its checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    EVENTS_FILE,
    TELEMETRY_FILE,
    Allocator,
    Damage,
    Ending,
    EpochEnd,
    Event,
    EventWriter,
    MemoryAnswer,
    Notes,
    Run,
    RunError,
    Started,
    Summary,
    Trash,
    XlaAnswer,
    code_copy,
    launch,
    path_of,
    presets,
    runs,
    seal,
    steps_in,
    summary_of,
    titles,
    verify,
    whole_step,
)
from tests.doors.engine import events_Best as Best
from tests.doors.engine import events_Progress as Progress


@pytest.fixture
def run(home: Path) -> Run:
    return runs.create("one", "schema: 1\n")


def wrote(run: Run, name: str, content: object) -> None:
    run.file(name).write_text(content if isinstance(content, str) else json.dumps(content))


# ---- state and result ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "last", "figures"),
    [
        ({"seconds": 30.0, "goodput": 0.5}, {"seconds": 10.0, "goodput": 0.9}, {"seconds": 40.0, "goodput": 0.6}),
        ({"seconds": 30.0}, {"seconds": 10.0, "goodput": 0.9}, {"seconds": 40.0, "goodput": 0.9}),
        ({"seconds": 30.0, "goodput": 0.5}, {"seconds": 10.0}, {"seconds": 40.0}),
        ({"seconds": 30.0, "goodput": 0.5}, {}, {}),
    ],
)
def test_seconds_and_goodput_are_those_of_all_launches(
    run: Run, earlier: dict[str, float], last: dict[str, float], figures: dict[str, float]
) -> None:
    wrote(run, "result-1.json", {"outcome": "stopped"} | earlier)
    wrote(run, "result.json", {"outcome": "ok"} | last)
    whole = {key: value for key, value in run.whole_result.items() if key in ("seconds", "goodput")}
    assert whole == pytest.approx(figures)


# ---- notes, tags and deleted runs ----------------------------------------------------------------


def test_a_note_has_a_thousand_characters_at_most_and_one_writer_at_a_time(home: Path, run: Run) -> None:
    assert titles.write_note(run, "x" * 1000).note == "x" * 1000
    assert titles.retag(run, ["a" * 32]).tags == ("a" * 32,)
    with pytest.raises(RunError, match=r"^the note has 1,001 characters; at most 1,000 are allowed$"):
        titles.write_note(run, "x" * 1001)
    wrote(run, "notes.json", {"note": 7, "tags": ["good", "-bad", 3, "good", "a b"]})
    assert titles.read_notes(run) == Notes("", ("good",))


def test_an_item_that_is_gone_from_the_trash_is_named(run: Run) -> None:
    trash = Trash()
    wrote(run, "result.json", {"outcome": "ok"})
    trash.put([run])
    (held,) = run.path.parent.glob(f"*/{run.id}")
    held.rename(held.parent / "elsewhere")
    assert trash.bring_back() == ([], [f"{run.id} cannot be restored: it is no longer among the deleted ones"])
    (held.parent / "elsewhere").rename(held)
    assert trash.bring_back() == ([run], []), "the group was kept"
    trash.empty()


# ---- A run that was launched more than once ------------------------------------------------------


STARTED: dict[str, Any] = {
    "pid": 1, "versions": {}, "devices": [], "options": {}, "actual": {}, "replicas": 2, "global_batch_size": 64,
    "steps_per_epoch": 10, "epochs": 3, "steps": 30, "train_samples": 640, "validation_samples": None,
}  # fmt: skip


def told(run: Run, *events: tuple[float, Event], file: str = EVENTS_FILE) -> None:
    writer = EventWriter(run.file(file), run.id)
    for t, event in events:
        writer.emit(event, t)
    writer.close()


def answer(before: int, number: int = 1, resumes_at: int | None = None) -> MemoryAnswer:
    return MemoryAnswer(
        answer="halve", number=number, option="input.batch_size", before=before, after=before // 2,
        ran_out_after_step=5, resumes_at_step=resumes_at, message="smaller",
    )  # fmt: skip


# ---- what an engine writes of it -----------------------------------------------------------------


def test_the_summary_of_a_lost_trainer_has_all_that_its_events_say(run: Run) -> None:
    early, late = (
        Progress(
            epoch=epoch, epochs=3, step=step, steps=30, samples_per_second=speed, step_ms_p50=4.0 + epoch,
            step_ms_p95=9.0 + epoch, input_wait=0.25 if epoch == 3 else 0.5, loss=0.5,
            metrics={"accuracy": 0.9}, eta_seconds=1.0, python_share=0.01 * epoch, traces=epoch,
        )
        for epoch, step, speed in ((1, 5, 100.0), (3, 24, 200.0))
    )  # fmt: skip
    best = [
        Best(option=option, figure="val_loss", epoch=epoch, step=10 * epoch, value=1.0 / epoch)
        for option, epoch in (("train.early_stop", 1), ("run.keep_best", 1), ("train.early_stop", 2))
    ]
    memory = [
        Allocator(devices={"GPU:0": {"peak_bytes": 900}, "GPU:1": {"peak_bytes": 800}}, first_step=True),
        Allocator(devices={"GPU:0": {"peak_bytes": 700, "current_bytes": 1000}, "GPU:1": {"peak_bytes": 500}}),
        Allocator(devices={"GPU:0": {"peak_bytes": 600}, "GPU:1": {"peak_bytes": 650}}),
    ]
    epochs = [EpochEnd(epoch=at, step=10 * at, metrics={"val_loss": 1.0 / at}, seconds=3.0) for at in (1, 2)]
    told(run, (1.0, Started(**STARTED | {"global_batch_size": 128})), (2.0, Started(**STARTED)), (3.0, early))
    told(run, (4.0, memory[0]), (4.1, memory[1]), (4.2, memory[2]), (5.0, epochs[0]), (5.1, best[0]), (5.2, best[1]))
    told(run, (6.0, epochs[1]), (6.1, best[2]), (7.0, late))
    without_xla = XlaAnswer(
        option="compile.xla", before="auto", after=False, resumes_at_step=None, error="no", message="without"
    )
    told(run, (1.5, answer(128)), (1.6, answer(64, 2)), (1.7, without_xla), file=TELEMETRY_FILE)
    run.file("checkpoints/step-0000000028").mkdir(parents=True)
    summary = summary_of(run, Ending("crashed", "crash", "it is gone", "look"), -11, 12.5)
    expected = Summary(
        outcome="crashed",
        trainer_returncode=-11,
        samples_per_second=200.0,
        measured_steps=None,
        step_ms={"p50": 7.0, "p95": 12.0},
        global_batch_size=64,
        input_wait=(5 * 0.5 + 19 * 0.25) / 24,
        python_share=(5 * 0.01 + 19 * 0.03) / 24,
        traces=3,
        peak_memory_bytes=700,
        first_step_memory_bytes=900,
        peak_process_bytes=summary.peak_process_bytes,
        epochs=2,
        steps=28,  # of the checkpoint, which is newer than the last report
        metrics={"val_loss": 0.5},
        best=[
            {"option": option, "figure": "val_loss", "epoch": epoch, "step": 10 * epoch, "value": 1.0 / epoch,
             "files": [], "restores": False}
            for option, epoch in (("train.early_stop", 2), ("run.keep_best", 1))
        ],
        seconds=12.5,
        error={"kind": "crash", "message": "it is gone", "hint": "look"},
        memory_answers=[
            {"t": t, "type": "memory_answer", "run": run.id} | asdict(each)
            for t, each in ((1.5, answer(128)), (1.6, answer(64, 2)))
        ],
        xla_answer={"t": 1.7, "type": "xla_answer", "run": run.id} | asdict(without_xla),
        code_changes=(),
        not_restored=[],
        watch=[],
    )  # fmt: skip
    assert asdict(summary) == asdict(expected)
    told(run, (8.0, Started(**STARTED | {"resumed_at_step": 28})), (9.0, replace(late, step=30, input_wait=0.75)))
    told(run, (9.5, replace(late, step=36, input_wait=0.25)))
    summary = summary_of(run, Ending("crashed", "crash", "", ""), -11, 1.0)
    assert summary.input_wait == (2 * 0.75 + 6 * 0.25) / 8, "of the steps of its last launch"


# ---- what is kept of each launch -----------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("x = 1\n")
    return folder


def launched(folder: Path, *settings: str) -> Run:
    preset = presets.defaults([f"entry={folder}/train.py:build", *settings])
    return launch.create(launch.settle(preset, folder), launch.origin_of(preset))


def test_each_copy_of_the_code_that_is_replaced_is_kept_under_the_next_number(mine: Path) -> None:
    run = launched(mine)
    for number in (2, 3):
        run.file(code_copy.DIFF).write_text(f"diff {number - 1}")
        (mine / "train.py").write_text(f"x = {number}\n")
        code_copy.make(run, presets.resolve(str(run.file("preset.yaml"))).options)
    names = ("code-1", "code-2", "code")
    assert [(run.file(name) / "train.py").read_text() for name in names] == ["x = 1\n", "x = 2\n", "x = 3\n"]
    assert [run.file(f"source-{number}.diff").read_text() for number in (1, 2)] == ["diff 1", "diff 2"]
    assert not run.file(code_copy.DIFF).exists(), "of the newest copy nothing differs from a commit"
    shutil.rmtree(run.file("code-1"))
    code_copy.put_aside(run)
    assert [(run.file(name) / "train.py").read_text() for name in ("code-2", "code-3")] == ["x = 2\n", "x = 3\n"]


# ---- Which checkpoint of a run is intact, found out without TensorFlow, and what is said of one th


INDEX, DATA, SECOND = "state.index", "state.data-00000-of-00002", "state.data-00001-of-00002"


def saved(folder: Path, step: int, sealed: bool = True) -> Path:
    path = path_of(folder, step)
    path.mkdir(parents=True)
    for name, text in ((INDEX, "index"), (DATA, "first"), (SECOND, "second")):
        (path / name).write_text(text)
    if sealed:
        seal(path, step)
    return path


def manifest(change: Callable[[dict[str, object]], object]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        found = json.loads((path / "manifest.json").read_text())
        change(found)
        (path / "manifest.json").write_text(json.dumps(found))

    return write


def test_the_newest_intact_checkpoint_counts(tmp_path: Path) -> None:
    assert steps_in(tmp_path / "none") == []
    assert whole_step(tmp_path) is None
    for step in (3, 20, 100):
        saved(tmp_path, step)
    for name in ("step-0000000200.draft", "step-200", "old"):
        (tmp_path / name).mkdir()
    assert steps_in(tmp_path) == [100, 20, 3]
    assert whole_step(tmp_path) == 100
    (path_of(tmp_path, 100) / SECOND).write_text("SECOND")
    assert whole_step(tmp_path) == 20
    (path_of(tmp_path, 20) / SECOND).unlink()
    (path_of(tmp_path, 3) / INDEX).write_text("")
    with pytest.raises(Damage) as raised:
        whole_step(tmp_path)
    assert str(raised.value) == (
        f"checkpoint of step 100 is damaged (the checksum of {SECOND} does not match); "
        f"checkpoint of step 20 is damaged ({SECOND} is missing); "
        f"checkpoint of step 3 is damaged ({INDEX} has 0 of 5 bytes)")  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (manifest(lambda found: found.update(step=6)), "it belongs to step 6"),
        (manifest(lambda found: found.update(step="5")), "manifest.json is damaged"),
        (manifest(lambda found: found["files"].pop(INDEX)), "manifest.json is damaged"),  # type: ignore[attr-defined]
        (lambda path: (path / SECOND).write_text("secon"), f"{SECOND} has 5 of 6 bytes"),
        (lambda path: (path / DATA).write_text("tsrif"), f"the checksum of {DATA} does not match"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    saved(tmp_path, 5)
    assert verify(tmp_path, 5) is True
    damage(path_of(tmp_path, 5))
    with pytest.raises(Damage) as raised:
        verify(tmp_path, 5)
    assert str(raised.value) == said
