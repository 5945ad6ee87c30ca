"""A disk that takes nothing more: nothing that needs no room ends, and what is written later is complete."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.files import reading
from gputui.engine.files import writing as disk
from gputui.engine.files.appending import KEPT_BYTES, Gap, LineFile
from gputui.engine.process import engine_failure
from gputui.engine.process.spawn import Trainer
from gputui.engine.process.supervisor import Supervisor
from gputui.engine.runs import Follower, Run, Tail, checkpoint_files, event_reading, results
from gputui.engine.runs.events import Phase, Warn, fields_of
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.system import descendants
from gputui.engine.system.heartbeat import TrainerHeartbeat
from gputui.engine.system.locks import Lock
from gputui.engine.system.run_clock import RunClock
from gputui.engine.telemetry.sampler import Sampler
from gputui.engine.trainer.checkpoint.checkpoints import NotWritten
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.fit import built_training
from gputui.engine.trainer.session import _failed
from gputui.engine.trainer.setup.devices import Devices

from tests.support.front_door import COMMAND, detached, ended, gputui, happened, step, until
from tests.support.idle import idle
from tests.support.small_disk import SmallDisk, no_writing
from tests.support.small_disk import small_disk as small_disk
from tests.support.stale_handles import StaleHandles
from tests.support.training import Build

TINY = (
    "model=mlp",
    "width=0.05",
    "batch_size=32",
    "validation_split=0",
    "epochs=1",
    "steps_per_epoch=6",
    "checkpoint=2",
    "keep=9",
)


def lines(path: Path) -> list[str]:
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return text.splitlines()


def pids(run: Run) -> list[int]:
    found = [run.process(role) for role in ("engine", "trainer")]
    return [process.pid for process in found if process is not None]


def drafts(folder: Path) -> list[str]:
    """What is left of files that were to be written."""
    return [str(path) for path in folder.rglob(".*") if path.name != ".engine.lock"]


# ---- events -----------------------------------------------------------------------------------


def test_lines_wait_in_memory_and_follow_in_order(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    file = LineFile(path)
    assert file.append("one") is None
    with no_writing(most_bytes=10):  # room for "two" and a part of "three"
        assert file.append("two") is None
        assert file.append("three") is None
        assert lines(path) == ["one", "two"]
        assert (file.waiting, file.reason) == (1, "File too large")
        for word in ("four", "five"):
            file.append(word)
        file.flush()
        assert lines(path) == ["one", "two"]
    gap = file.flush()
    assert gap is not None
    assert (gap.late, gap.lost, gap.reason) == (3, 0, "File too large")
    assert file.append("six") is None
    assert lines(path) == ["one", "two", "three", "four", "five", "six"]


def test_the_newest_lines_are_kept_and_the_lost_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    file = LineFile(path, kept_bytes=100)
    with no_writing():
        for number in range(50):
            file.append(f"line {number:04d}")
    gap = file.flush()
    assert gap is not None
    assert (gap.late, gap.lost) == (10, 40)
    assert lines(path) == [f"line {number:04d}" for number in range(40, 50)]
    with no_writing():
        file.append("again")
    gap = file.flush()
    assert gap is not None
    assert (gap.late, gap.lost, file.missing) == (1, 0, 0), "what was lost before is told once"
    assert KEPT_BYTES > 10_000 * 400  # an hour of a training's events and more


def test_a_file_that_cannot_even_be_opened_is_opened_later(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lines"
    file = LineFile(path)
    file.append("one")
    path.parent.mkdir()
    path.write_text("half a line of a writer that was killed")
    assert isinstance(file.flush(), Gap)
    assert lines(path) == ["half a line of a writer that was killed", "one"]


def test_events_of_a_full_disk_come_late_and_a_warning_says_so(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "events.jsonl", "run")
    with no_writing():
        for _ in range(3):
            writer.emit(Phase(phase="training"))
        assert writer.drain(0.0) == 3
    assert writer.drain(0.0) == 0
    writer.close()
    told = [json.loads(line) for line in lines(tmp_path / "events.jsonl")]
    assert [event["type"] for event in told] == ["phase"] * 3 + ["warning"]
    start = f"File too large: nothing could be written to {tmp_path / 'events.jsonl'} for "
    assert told[-1]["message"].startswith(start)
    assert told[-1]["message"].endswith(" s; no event is missing")


@pytest.mark.parametrize("part_bytes", [0, 30])
def test_events_are_complete_where_the_server_of_a_network_disk_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    """The file is opened anew; a part of a line that came through is taken back."""
    path = tmp_path / "events.jsonl"
    writer, disk = EventWriter(path, "run"), StaleHandles(monkeypatch)
    writer.emit(Phase(phase="importing"))
    disk.restart(path, part_bytes)
    writer.emit(Phase(phase="training"))
    assert len(path.read_text().splitlines()) == 1 + bool(part_bytes)
    assert writer.drain(5.0) == 0
    disk.restart(path)
    writer.close()
    told = [json.loads(line) for line in lines(path)]
    assert [event.get("phase", event["type"]) for event in told] == ["importing", "training", "warning"]
    assert told[-1]["message"].startswith(f"Stale file handle: nothing could be written to {path} for ")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_printing_to_a_log_on_a_full_disk_fails_nobody(unbuffered: str, tmp_path: Path) -> None:
    program = """
import resource, sys, traceback
from gputui.engine.files.writing import forgive_full_disk
forgive_full_disk()
print("before", flush=True)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
for _ in range(1000):
    print("in between")
    print("in between", file=sys.stderr)
sys.stdout.flush()
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
print("after", flush=True)
"""
    with (tmp_path / "log").open("ab") as log:
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        subprocess.run([sys.executable, "-c", program], stdout=log, stderr=log, env=environment, check=True)
    assert lines(tmp_path / "log") == ["before", "after"]


# ---- what is told -----------------------------------------------------------------------------


def test_the_fault_of_a_full_disk_is_recognised_in_all_its_forms() -> None:
    import tensorflow as tf

    node = "{{function_node __wrapped__SaveV2_dtypes_7_device_/job:localhost/replica:0/task:0/device:CPU:0}} "
    full = tf.errors.ResourceExhaustedError(None, None, node + "/home/x/part-0; No space left on device [Op:SaveV2]")
    read_only = tf.errors.PermissionDeniedError(None, None, "/home/x; Read-only file system")
    hdf5 = RuntimeError("Can't decrement id ref count (file write failed, errno = 28, error message = 'No space left")
    memory = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[1000]")
    told = [disk.refusal(fault) for fault in (full, read_only, hdf5, memory, OSError(122, "x"), OSError(27, "x"))]
    assert told == [28, 30, 28, None, 122, 27]
    assert [disk.refusal(fault) for fault in (OSError(13, "x"), ValueError("No space left on device"))] == [None, None]
    assert (disk.reason(full), disk.place(full)) == ("No space left on device", "/home/x/part-0")
    outcome, error = _failed(full, "training", 32, Path("/home"))
    assert outcome == "error"
    message = "disk full at /home/x/part-0 (No space left on device): the training could not go on"
    assert (error["kind"], error["message"]) == ("disk", message)
    assert _failed(memory, "training", 32, Path("/home"))[0] == "oom"
    quota = _failed(OSError(122, os.strerror(122)), "training", 32, Path("/home"))[1]["message"]
    assert quota == "disk quota used up at /home (Disk quota exceeded): the training could not go on"


def test_a_run_that_finds_no_room_is_not_begun(home: Path, tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    command = [*COMMAND, "--preset", "quickstart"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=limited, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"File too large: {home / 'runs'}/")
    assert done.stderr.endswith("-quickstart\nGPUTUI_HOME=/other/folder puts the runs on another disk\n")
    assert list((home / "runs").iterdir()) == []


def test_a_run_on_a_full_disk_is_not_begun(small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUI_HOME", str(small_disk.path))
    (small_disk.path / "runs").mkdir()
    for state in (small_disk.full(), small_disk.without_inodes()):
        with state:
            done = gputui("--preset", "quickstart")
            assert done.returncode == 2
            assert done.stderr.startswith(f"No space left on device: {small_disk.path / 'runs'}/")
            assert list((small_disk.path / "runs").iterdir()) == []
    with small_disk.without_inodes():
        assert disk.try_writing(small_disk.path) in ("", disk.describe(28, small_disk.path))
        assert "(no inode is free: No space left on device)" in disk.describe(28, small_disk.path)


# ---- a training -------------------------------------------------------------------------------


def test_a_checkpoint_that_finds_no_room_is_left_out_and_the_next_is_tried(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = build(*TINY)
    folder, save = training.run.file("checkpoints"), training.loop.built.checkpoints.save

    def save_with_little_room(step: int) -> None:
        if step == 6:
            save(step)
            return
        with no_writing(most_bytes=4096), pytest.raises(NotWritten) as reason:
            save(step)
        assert checkpoint_files.steps_in(folder) == []
        assert drafts(folder) == []  # its part takes no room
        raise reason.value

    monkeypatch.setattr(training.loop.built.checkpoints, "save", save_with_little_room)
    training.train()
    assert checkpoint_files.whole_step(folder) == 6
    told = [event["message"] for event in training.events("warning") if event["kind"] == "checkpoint"]
    assert told == [
        f"File too large: {folder}: no checkpoint of step 2 is written",
        "there is a checkpoint again, of step 6; 2 were left out",
    ]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # in Keras' saving
def test_a_model_that_finds_no_room_is_waited_for_and_then_told(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    training = build(*TINY).train()
    loop, file, waits = training.loop, training.run.file("model.keras"), list[float]()
    monkeypatch.setattr(time, "sleep", waits.append)
    expected = r"^largest file size \(ulimit -f\) reached at .* the training has ended well, but its model could not be"
    with no_writing(most_bytes=4096), pytest.raises(TrainerError, match=expected) as fault:
        built_training.save_model(loop.built, loop.step)
    assert not file.exists()
    assert "gputui resume saves it from the last checkpoint" in fault.value.hint
    with no_writing(most_bytes=4096), pytest.raises(TrainerError) as later:
        built_training.save_model(loop.built, loop.step + 1)  # steps were trained after the last checkpoint
    assert "and train again; with run.checkpoint set" in later.value.hint
    assert fault.value.hint.startswith("raise the limit on the size of files (ulimit -f)")
    assert waits == [], "such a limit stays as long as the process"
    save, refusals = built_training._save, [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]

    def save_later(*words: Any) -> None:
        if refusals:
            raise refusals.pop()
        save(*words)

    monkeypatch.setattr(built_training, "_save", save_later)
    built_training.save_model(loop.built, loop.step)
    assert len(waits) == 1
    assert file.stat().st_size > 4096


def test_a_profile_that_finds_no_room_is_left_out(build: Build) -> None:
    training = build(*TINY, "checkpoint=off", "run.profile=2-3")
    with no_writing(most_bytes=4096):
        training.train()
        assert training.loop.step == 6
    training.loop.built.report.writer.drain(1.0)
    (told,) = [event for event in training.events("warning") if event["kind"] == "profile"]
    assert told["message"] == f"File too large: {training.run.file('profile')}: there is no profile"


def warnings_of(run: Run, file: str) -> list[str]:
    return [event.message for event in Tail(run.file(file)).read() if isinstance(event, Warn)]


def stale(run: Run) -> bool:
    """Whether the engine has not been able to say for three seconds that it lives."""
    return time.time() - float(run.status["heartbeat"]) > 3


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left_running")
def test_a_training_outlives_a_full_disk_and_its_events_are_complete(
    small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_HOME", str(small_disk.path))
    run = detached("--preset", idle(tmp_path, "{checkpoint: 10, keep: 1}"))
    until(lambda: checkpoint_files.steps_in(run.file("checkpoints")))
    with small_disk.full():
        full = time.time()
        until(lambda: stale(run))
        assert run.state == "running"
        freed = time.time()
    until(lambda: any("there is a checkpoint again" in text for text in warnings_of(run, "events.jsonl")))
    with small_disk.without_inodes():
        until(lambda: stale(run))
        before = step(run)
        until(lambda: step(run) > before)  # events need no new file
    after = time.time()
    until(lambda: run.status["heartbeat"] > after)
    assert gputui("stop", run.id).returncode == 0
    result = ended(run)
    assert result["outcome"] == "stopped"
    assert any(full < event["t"] < freed for event in happened(run, "progress")), "it was trained meanwhile"
    assert lines(run.file("telemetry.jsonl"))
    told = warnings_of(run, "events.jsonl")
    message = next(text for text in told if "nothing could be written" in text)
    assert message.startswith(f"No space left on device: nothing could be written to {run.file('events.jsonl')} for ")
    assert message.endswith("; no event is missing")
    left_out = [text for text in told if "no checkpoint of step" in text]
    assert left_out[0].startswith(f"No space left on device: {run.file('checkpoints')}: no checkpoint of step ")
    assert "{{" not in left_out[0]
    assert checkpoint_files.whole_step(run.file("checkpoints")) == result["steps"]
    assert drafts(run.path) == []


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left_running")
def test_the_result_of_a_training_that_ends_on_a_full_disk_is_not_lost(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    run = detached("--preset", idle(tmp_path), "--set", "epochs=3")
    until(lambda: step(run) > 1)
    engine, trainer = pids(run)
    with no_writing(engine):
        with no_writing(trainer):
            hold.unlink()
            until(lambda: not Path(f"/proc/{trainer}").exists())
        assert run.result is None
        assert run.alive("engine")
    result = ended(run)
    assert result["outcome"] == "ok"
    assert result["epochs"] == 3
    assert result["metrics"]["val_loss"] > 0
    assert happened(run, "finished")[-1]["summary"] == result
    assert [event["epoch"] for event in happened(run, "epoch")] == [1, 2, 3]
    assert len(happened(run, "finished")) == 1
    assert not any("are missing" in text for text in warnings_of(run, "telemetry.jsonl"))
    assert drafts(run.path) == []


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_result_that_cannot_be_read_when_the_trainer_ends_stays(
    refusals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is readable at the second look, or not until somebody asks to stop."""
    run, looks = Run(tmp_path), 0
    run.file("result.json").write_text('{"outcome": "ok", "steps": 7}')
    supervisor = supervisor_of(run)

    def read(path: Path) -> bytes:
        nonlocal looks
        looks += 1
        supervisor.stop_requests += looks == 3
        if looks <= refusals:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return path.read_bytes()

    monkeypatch.setattr(reading, "read_bytes", read)
    monkeypatch.setattr(descendants, "end_descendants", lambda spared: [])  # here they are those of all the tests
    monkeypatch.setattr(results, "RESULT_RETRY_SECONDS", 0)
    supervisor._leave_result(Sampler(supervisor.events, os.getpid(), 1))
    looks = 0
    assert engine_failure.leave(str(run.path), None, RuntimeError("the engine itself")) == 1
    assert json.loads(run.file("result.json").read_text()) == {"outcome": "ok", "steps": 7}
    told = [event["message"] for event in happened(run, "warning")]
    assert told == ["result.json cannot be read: Stale file handle; it stays as it is"] * (refusals > 1)


def supervisor_of(run: Run, report: int = -1) -> Supervisor:
    """That of a trainer which has ended."""
    run.file("preset.yaml").write_text(presets.defaults([]).to_yaml())
    with subprocess.Popen(["true"]) as process:
        trainer = Trainer(process, -1, report, TrainerHeartbeat())
        return Supervisor(run, trainer, Lock(-1, works=False), RunClock.launched())


def test_an_engine_waits_for_the_disk_no_longer_than_two_minutes_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    results.hand_over(results.Report({"outcome": "ok"}, ["{}"], 0), writer)
    supervisor, now = supervisor_of(Run(tmp_path), reader), [1000.0]

    def wait(run: Run, what: Any, seconds: float, given_up: Any) -> int:
        now[0] += seconds
        return 0

    monkeypatch.setattr("gputui.engine.process.supervisor.time.monotonic", lambda: now[0])
    monkeypatch.setattr(results, "write", wait)
    monkeypatch.setattr(results, "append", wait)
    supervisor._leave_result(Sampler(supervisor.events, os.getpid(), 1))
    assert now == [1120.0]


def test_a_viewer_of_a_run_that_says_nothing_more_names_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = runs.create("tiny", "schema_version: 1\n")
    run.file("engine.log").write_text("first\nOSError: the last line\n\n")
    monkeypatch.setattr("gputui.engine.runs.run.STARTING_SECONDS", 0.0)
    monkeypatch.setattr(event_reading, "SILENT_SECONDS", 0.0)
    full = f"largest file size (ulimit -f) reached at {run.path} (File too large)"
    (lost,) = Follower(run).poll()
    assert fields_of(lost)["summary"]["error"]["message"] == "the run ended without a result: its engine is gone"
    assert fields_of(lost)["summary"]["error"]["hint"] == "the last line of engine.log: OSError: the last line"
    silence = event_reading.Silence(run.path)
    assert silence.check(has_events=False) == ""
    with no_writing():
        (lost,) = Follower(run).poll()
        assert silence.check(has_events=False) == f"{full}: the training goes on, and its events wait in memory"
        assert silence.check(has_events=False) == ""
        waits = "the training has ended, and its result waits for room; it is given up after two minutes"
        assert silence.check(has_events=False, trains=False) == f"{full}: {waits}"
        assert silence.check(has_events=False, trains=False) == ""
    assert fields_of(lost)["summary"]["error"]["message"] == full
    silence.check(has_events=True)
    assert os.listdir(run.path).count("engine.log") == len(os.listdir(run.path)) - 1  # and preset.yaml
    with open("/dev/full", "w") as nowhere:
        done = subprocess.run([*COMMAND, "presets"], stdout=nowhere, stderr=subprocess.PIPE, text=True, check=False)
    assert "no file named" not in done.stderr


def test_a_fit_whose_run_finds_no_room_is_trained_unwatched(cpus: Devices, capsys: pytest.CaptureFixture[str]) -> None:
    import keras
    import numpy as np
    from gputui.engine.trainer.monitor.callback import Monitor

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with no_writing():
        monitor = Monitor("tiny")
        history = model.fit(np.zeros((8, 2)), np.zeros((8, 1)), epochs=2, verbose=0, callbacks=[monitor])
    assert len(history.history["loss"]) == 2
    assert monitor.run is None
    assert "gputui: this fit is not watched: File too large: " in capsys.readouterr().err


def test_what_is_handed_over_needs_no_disk(tmp_path: Path) -> None:
    def passed(report: results.Report) -> Any:
        reading, writing = os.pipe()
        try:
            results.hand_over(report, writing)
            return results.take(reading)
        finally:
            os.close(reading)
            os.close(writing)

    whole = {"outcome": "ok", "metrics": {"loss": None}}
    for report in (results.Report(whole, [], 7), results.Report(None, ["a", "é"])):
        assert passed(report) == report
    assert passed(results.Report({"outcome": "x" * 2_000_000})) == results.Report()  # more than a pipe holds
    many = [f"{number} {'x' * 1000}" for number in range(3000)]
    newest = passed(results.Report({"outcome": "ok"}, many, 1))
    assert newest.lines == many[-len(newest.lines) :]
    assert 900 < len(newest.lines) < 1100
    assert newest.lost_events == 1 + 3000 - len(newest.lines)
    run = runs.create("tiny", "schema_version: 1\n")
    with no_writing():
        refused = results.write(run, {"outcome": "ok"}, 0.0)
        assert refused is not None
        assert str(refused) == f"[Errno 27] File too large: '{run.file('result.json')}'"
    assert os.listdir(run.path) == ["preset.yaml"]
    assert results.write(run, {"outcome": "ok"}, 0.0) is None
    assert run.result == {"outcome": "ok"}
