"""A disk that takes nothing more: nothing that needs no room ends, and what is written later is complete."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import EventWriter, LineFile, Phase, Run, Warn, checkpoint_files
from tests.doors.engine import runs_Tail as Tail
from tests.doors.trainer import Devices, NotWritten, TrainerError, epoch_rules
from tests.support.front_door import COMMAND, detached, ended, gputui, happened, step, until
from tests.support.idle import idle
from tests.support.small_disk import SmallDisk, no_writing
from tests.support.small_disk import small_disk as small_disk
from tests.support.training import Build


class StaleHandles:
    """Every call with a stale descriptor fails as the kernel lets it fail: ESTALE."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._stale: set[int] = set()
        self._part_bytes = 0
        self._write, self._close = os.write, os.close
        patch.setattr(os, "write", self._written)
        patch.setattr(os, "close", self._closed)
        for name in ("ftruncate", "fstat", "fsync"):
            patch.setattr(os, name, self._refused(getattr(os, name)))

    def restart(self, path: Path, part_bytes: int = 0) -> None:
        """What this process has open of the file is stale from here on, or after a part of the next write."""
        links = {number: Path(f"/proc/self/fd/{number}") for number in map(int, os.listdir("/proc/self/fd"))}
        self._stale = {number for number, link in links.items() if link.exists() and link.samefile(path)}
        assert self._stale, "nothing is open"
        self._part_bytes = part_bytes

    def _written(self, number: int, data: Any) -> int:
        part, self._part_bytes = (self._part_bytes, 0) if number in self._stale else (len(data), self._part_bytes)
        if number in self._stale and not part:
            raise _stale()
        return self._write(number, data[:part])

    def _closed(self, number: int) -> None:
        self._close(number)
        if number in self._stale:
            self._stale.remove(number)
            raise _stale()

    def _refused(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def played(number: int, *rest: Any) -> Any:
            if number in self._stale:
                raise _stale()
            return call(number, *rest)

        return played


def _stale() -> OSError:
    return OSError(errno.ESTALE, os.strerror(errno.ESTALE))


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


def test_events_are_complete_where_the_server_of_a_network_disk_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is opened anew; a part of a line that came through is taken back."""
    path = tmp_path / "events.jsonl"
    writer, disk = EventWriter(path, "run"), StaleHandles(monkeypatch)
    writer.emit(Phase(phase="importing"))
    disk.restart(path, 30)
    writer.emit(Phase(phase="training"))
    assert len(path.read_text().splitlines()) == 2
    assert writer.drain(5.0) == 0
    disk.restart(path)
    writer.close()
    told = [json.loads(line) for line in lines(path)]
    assert [event.get("phase", event["type"]) for event in told] == ["importing", "training", "warning"]
    assert told[-1]["message"].startswith(f"Stale file handle: nothing could be written to {path} for ")


def test_printing_to_a_log_on_a_full_disk_fails_nobody(tmp_path: Path) -> None:
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
        subprocess.run([sys.executable, "-c", program], stdout=log, stderr=log, check=True)
    assert lines(tmp_path / "log") == ["before", "after"]


# ---- what is told -----------------------------------------------------------------------------


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
        epoch_rules.save_model(loop.built, loop.step)
    assert not file.exists()
    assert "gputui resume saves it from the last checkpoint" in fault.value.hint
    with no_writing(most_bytes=4096), pytest.raises(TrainerError) as later:
        epoch_rules.save_model(loop.built, loop.step + 1)  # steps were trained after the last checkpoint
    assert "and train again; with run.checkpoint set" in later.value.hint
    assert fault.value.hint.startswith("raise the limit on the size of files (ulimit -f)")
    assert waits == [], "such a limit stays as long as the process"
    save, refusals = epoch_rules.save_as, [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]

    def save_later(*words: Any) -> Path:
        if refusals:
            raise refusals.pop()
        return save(*words)

    monkeypatch.setattr(epoch_rules, "save_as", save_later)
    epoch_rules.save_model(loop.built, loop.step)
    assert len(waits) == 1
    assert file.stat().st_size > 4096


def warnings_of(run: Run, file: str) -> list[str]:
    return [event.message for event in Tail(run.file(file)).read() if isinstance(event, Warn)]


def stale(run: Run) -> bool:
    """Whether the engine has not been able to say for three seconds that it lives."""
    return time.time() - float(run.status["heartbeat"]) > 3


@pytest.mark.usefixtures("forked_trainers", "nothing_left_running")
@pytest.mark.slow
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


@pytest.mark.usefixtures("forked_trainers", "nothing_left_running")
@pytest.mark.slow
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


def test_a_fit_whose_run_finds_no_room_is_trained_unwatched(cpus: Devices, capsys: pytest.CaptureFixture[str]) -> None:
    import keras
    import numpy as np

    from tests.doors.trainer import callback_Monitor as Monitor

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with no_writing():
        monitor = Monitor("tiny")
        history = model.fit(np.zeros((8, 2)), np.zeros((8, 1)), epochs=2, verbose=0, callbacks=[monitor])
    assert len(history.history["loss"]) == 2
    assert monitor.run is None
    assert "gputui: this fit is not watched: File too large: " in capsys.readouterr().err
