"""A run that was launched more than once: which end counts, what is kept of each launch, and its whole summary."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.leases.lease import NotFree
from gputui.engine.process import launch, resuming
from gputui.engine.process.ending import Ending, summary_of
from gputui.engine.queue import entries, start
from gputui.engine.queue.entries import Entry
from gputui.engine.runs import Run, code_copy, code_files, launched_with, run_cluster, titles
from gputui.engine.runs.events import (
    EVENTS_FILE,
    TELEMETRY_FILE,
    Allocator,
    Best,
    EpochEnd,
    Event,
    MemoryAnswer,
    Progress,
    Started,
    Summary,
    XlaAnswer,
)
from gputui.engine.runs.liveness import Liveness
from gputui.engine.runs.parsing import EventWriter

from tests.support.recorded import stopped

STARTED: dict[str, Any] = {
    "pid": 1, "versions": {}, "devices": [], "options": {}, "actual": {}, "replicas": 2, "global_batch_size": 64,
    "steps_per_epoch": 10, "epochs": 3, "steps": 30, "train_samples": 640, "validation_samples": None,
}  # fmt: skip


@pytest.fixture
def run(home: Path) -> Run:
    return runs.create("one", "schema: 1\n")


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


# ---- which end counts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trainers", "engines", "result"),
    [
        ([(-5, "stopped", 5)], [(1, "crashed", 7)], ("crashed", 7)),
        ([(1, "stopped", 5)], [(2, "crashed", 7)], ("crashed", 7)),
        ([(3, "stopped", 9)], [(-5, "crashed", 7)], ("stopped", 9)),  # the engine had ended an earlier launch
        ([(3, "stopped", 9)], [(2, "oom", 7)], ("stopped", 9)),
        ([(3, "stopped", 9)], [(3, "error", 7)], ("error", 7)),
        ([], [(-5, "crashed", 7), (1, "timeout", 8)], ("timeout", 8)),
        ([(-5, "stopped", 5), (1, "ok", 8)], [], ("ok", 8)),
        ([(-5, "stopped", 5)], [(-4, "crashed", 7)], None),
    ],
)
def test_without_a_result_the_newest_end_of_the_latest_launch_counts_whoever_has_told_it(
    run: Run,
    trainers: Sequence[tuple[float, str, int]],
    engines: Sequence[tuple[float, str, int]],
    result: tuple[str, int] | None,
) -> None:
    created = run.file("preset.yaml").stat().st_mtime
    for file, ends in ((EVENTS_FILE, trainers), (TELEMETRY_FILE, engines)):
        lines = [
            {"t": created + t, "type": "finished", "run": run.id, "outcome": outcome, "summary": {"steps": steps}}
            for t, outcome, steps in ends
        ]
        run.file(file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run.result == (None if result is None else {"outcome": result[0], "steps": result[1]})


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        ({"state": "waiting"}, "waiting"), ({"state": "held"}, "waiting"), ({}, "waiting"),
        ({"state": "starting"}, "starting"), ({"state": "running"}, "timeout"),
        ({"state": "waiting", "kind": "proof"}, "timeout"), ({"state": "starting", "kind": "proof"}, "timeout"),
    ],
)  # fmt: skip
def test_the_entry_in_the_queue_decides_the_state_until_the_run_has_begun(
    run: Run, entry: dict[str, str], state: str
) -> None:
    run.file("result.json").write_text('{"outcome": "timeout"}')
    assert run.state == "timeout"
    run.queue_file.parent.mkdir()
    run.queue_file.write_text(json.dumps(entry))
    assert run.state == state
    assert [run.state_of(Liveness(engine=True)), run.state_of(Liveness(trainer=True))] == ["running", "stopping"]


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
    run.file("checkpoints/step-0000000020").mkdir(parents=True)
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
        steps=24,
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
    )  # fmt: skip
    assert asdict(summary) == asdict(expected)


def test_the_waits_of_a_lost_trainer_are_those_of_all_steps_of_its_last_launch(run: Run) -> None:
    def at(step: int, wait: float | None) -> Progress:
        return Progress(
            epoch=1, epochs=3, step=step, steps=300, samples_per_second=1.0, step_ms_p50=1.0, step_ms_p95=1.0,
            input_wait=wait, loss=0.5, metrics={}, eta_seconds=1.0,
        )  # fmt: skip

    def wait() -> float | None:
        return summary_of(run, Ending("crashed", "crash", ""), None, 1.0).input_wait

    told(run, (1.0, Started(**STARTED)), (2.0, at(1, None)))
    assert wait() is None
    told(run, (3.0, at(11, 0.5)), (4.0, at(99, 1.0)), (5.0, Started(**STARTED | {"resumed_at_step": 90})))
    assert wait() == (10 * 0.5 + 88) / 98, "the last launch has not trained"
    told(run, (6.0, at(91, None)), (7.0, at(130, 0.75)), (8.0, at(131, 0.0)))
    assert wait() == 39 * 0.75 / 40, "the last reading is of one step alone"


def test_of_a_trainer_that_was_lost_in_its_first_steps_little_is_known(run: Run) -> None:
    told(run, (2.0, Started(**STARTED)), (4.0, Allocator(devices={"GPU:0": {"peak_bytes": 900}}, first_step=True)))
    run.file("checkpoints/step-0000000020").mkdir(parents=True)
    summary = summary_of(run, Ending("crashed", "crash", ""), None, 1.0)
    assert (summary.peak_memory_bytes, summary.first_step_memory_bytes) == (900, 900)
    assert (summary.steps, summary.epochs, summary.metrics, summary.step_ms) == (20, 0, {}, None)
    other = runs.create("other", "schema: 1\n")
    nothing = summary_of(other, Ending("crashed", "crash", ""), None, 1.0)
    assert (nothing.peak_memory_bytes, nothing.first_step_memory_bytes, nothing.steps) == (None, None, 0)
    assert (nothing.memory_answers, nothing.xla_answer, nothing.global_batch_size) == ([], None, None)


# ---- what is kept of each launch -----------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("x = 1\n")
    return folder


def created(folder: Path, *settings: str) -> Run:
    preset = presets.defaults([f"entry={folder}/train.py:build", *settings])
    return launch.create(launch.settle(preset, folder), launch.origin_of(preset))


def test_each_copy_of_the_code_that_is_replaced_is_kept_under_the_next_number(mine: Path) -> None:
    run = created(mine)
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


def test_a_file_that_was_accepted_twice_before_a_trainer_began_is_named_once(mine: Path) -> None:
    run = created(mine)
    code_files.add(run, mine, [str(mine / "train.py")])
    for text in ("x = 2\n", "x = 3\n"):
        (mine / "train.py").write_text(text)
        code_files.accept(run)
    assert code_files.record_step(run, 30) == ["train.py"]
    assert code_files.read(run).changes == [{"step": 30, "files": ["train.py"]}] * 2


def test_the_earlier_run_of_the_same_code_is_the_newest_unless_the_file_was_changed_since(mine: Path) -> None:
    options = presets.defaults([f"entry={mine}/train.py:build"]).options
    changed = os.stat(mine / "train.py").st_mtime
    assert launched_with.of_same_code(options) is None, "there is no run"
    for number, (entry, t) in enumerate(
        (("train.py:build", changed + 5), ("train.py:other", changed + 9), ("train.py:build", changed + 7))
    ):
        run = created(mine, f"entry={mine}/{entry}")
        told(run, (t, Started(**STARTED | {"pid": number, "not_applied": [{"option": "a.b", "why": "c"}]})))
        os.utime(run.file("preset.yaml"), (changed + number,) * 2)
    created(mine)  # it has not begun
    event = launched_with.of_same_code(options)
    assert event is not None
    assert (event.pid, launched_with.unapplied(event)) == (2, {"a.b": "c"})
    os.utime(mine / "train.py", (changed + 6,) * 2)
    assert launched_with.of_same_code(options) is not None
    os.utime(mine / "train.py", (changed + 8,) * 2)
    assert launched_with.of_same_code(options) is None
    assert launched_with.unapplied(None) == {}
    assert launched_with.of_same_code(presets.defaults([]).options) is None, "it has no code of the user"


def test_the_origin_of_a_run_that_is_run_again_is_that_of_the_first_preset(home: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("extends: quickstart\ninput: {batch_size: 32}\ntrain: {epochs: 5}\n")
    made = [str(own)]
    for settings in (["batch_size=256", "epochs=6"], ["batch_size=64", "epochs=5"]):
        preset = presets.resolve(made[-1], settings)
        run = launch.create(launch.settle(preset, tmp_path), launch.origin_of(preset))
        made.append(str(run.file("preset.yaml")))
    first, second = (json.loads(Path(file).with_name(titles.FILE).read_text()) for file in made[1:])
    assert first == {"preset": "mine", "file": str(own), "changes": {
        "input.batch_size": {"from": 32, "to": 256}, "train.epochs": {"from": 5, "to": 6},
    }}  # fmt: skip
    assert second == {"preset": "mine", "file": str(own), "changes": {"input.batch_size": {"from": 32, "to": 64}}}, (
        "as many epochs as in the preset"
    )


def test_the_workers_of_a_run_are_those_of_its_last_launch(run: Run) -> None:
    members: list[list[dict[str, Any]]] = [
        [{"index": 0, "address": f"{host}:1", "host": host, "run": run.id, "folder": str(run.path), "replicas": 1,
          "gpus": []}]
        for host in ("a", "b")
    ]  # fmt: skip
    told(run, *((float(at), Started(**STARTED | {"workers": workers})) for at, workers in enumerate(members, 1)))
    assert run_cluster.members(run) == members[1]


# ---- how it is launched again --------------------------------------------------------------------


def test_a_run_whose_batch_was_halved_twice_belongs_to_the_preset_with_the_first_size(home: Path) -> None:
    run = stopped("batch_size=16")
    told(run, (1.0, answer(64)), (2.0, answer(32, 2)), file=TELEMETRY_FILE)
    for size, found in ((64, run), (32, None), (16, None)):
        preset = presets.resolve("quickstart", ["run.checkpoint=epoch", f"batch_size={size}"])
        assert resuming.of_preset(preset, lambda _text: None) == found, size


def test_the_queue_resumes_a_run_on_the_devices_that_it_has_chosen(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stopped("batch_size=16")
    asked: list[tuple[str, int, object]] = []

    def leased(options: Any, what: str, _tell: object, *, among: object) -> Any:
        asked.append((what, options.input.batch_size, among))
        raise NotFree("no")

    monkeypatch.setattr(launch, "leased", leased)
    queued = Entry(run.id, 1.0, state="starting")
    with entries.locked():
        entries.write(queued)
    with pytest.raises(NotFree):
        start.launch_run(queued, presets.resolve(str(run.file("preset.yaml"))), ["GPU-b"])
    with pytest.raises(runs.RunError, match=r"is starting|is waiting|waits in the queue"):
        resuming.resume(run)
    assert asked == [("quickstart", 16, ["GPU-b"])]


@pytest.mark.parametrize(
    ("code", "has_copy", "how"),
    [
        ("", False, (False, False)), ("", True, (False, True)), ("copy", True, (False, True)),
        ("new", True, (True, False)), ("new", False, (True, False)),
    ],
)  # fmt: skip
def test_the_queue_resumes_a_run_with_the_code_that_its_user_has_named(
    code: str, has_copy: bool, how: tuple[bool, bool], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped()
    if has_copy:
        run.file(code_copy.FOLDER).mkdir()
    asked: list[Any] = []
    monkeypatch.setattr(resuming, "resume", lambda *given, **named: asked.append((given, named)))
    start.launch_run(Entry(run.id, 1.0, code=code), presets.resolve(str(run.file("preset.yaml"))), ["GPU-b"])
    assert asked == [((run, how[0]), {"from_copy": how[1], "among": ["GPU-b"], "from_queue": True})]
