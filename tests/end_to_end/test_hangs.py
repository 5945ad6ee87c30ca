"""Trainings that stand still: a device that never answers, a process that does not die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doors.engine import (
    Activity,
    Children,
    EventWriter,
    Phase,
    PhaseName,
    Run,
    Started,
    TrainerHeartbeat,
    launch,
    presets,
    runs,
)
from tests.support.cases import all_hold
from tests.support.front_door import gputui, happened

pytestmark = pytest.mark.usefixtures("nothing_left_running")

HANG_SECONDS = 300.0
STARTED = Started(
    pid=1, versions={}, devices=[], options={}, actual={}, replicas=1, global_batch_size=1, steps_per_epoch=1, epochs=1,
    steps=1, train_samples=1, validation_samples=0, resumed_at_step=1000,
)  # fmt: skip


# ---- the rule -----------------------------------------------------------------------------------


class AtWork(Children):
    """Processes of a trainer that use a core."""

    def cores(self) -> float:
        return 1.0


class AtRest(Children):
    """Processes of a trainer that wait; those of the tests may be at work."""

    def cores(self) -> float:
        return 0.0


class Watched:
    """A trainer under the engine's eyes, on a clock of its own; it uses a core unless `cores` says otherwise."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.now, self.cpu_seconds, self.cores, self.suspended = 0.0, 0.0, 1.0, False
        monkeypatch.setattr(Activity, "_state", lambda _: (self.suspended, self.cpu_seconds))
        self.heartbeat = TrainerHeartbeat()
        self.writer = EventWriter(folder / "events.jsonl", folder.name)
        self.activity = Activity(Run(folder), os.getpid(), self.heartbeat, lambda: self.now)
        self.activity._children = AtRest(1)
        self.hung = ""

    def phase(self, phase: PhaseName) -> Watched:
        self.writer.emit(Phase(phase=phase))
        return self

    def works(self, seconds: float, between_looks: float = 2.0) -> Watched:
        """So much time passes, without an event."""
        for _ in range(max(1, round(seconds / between_looks))):
            self.now += min(seconds, between_looks)
            self.cpu_seconds += self.cores * min(seconds, between_looks)
            self.activity.update()
            self.hung = self.hung or self.activity.hang(HANG_SECONDS)
        return self

    def begun(self, first_step_seconds: float = 10.0) -> Watched:
        """It has trained its first step."""
        return self.phase("compiling").works(first_step_seconds).phase("training").works(1)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Watched]:
    count = iter(range(1000))
    return lambda: Watched(tmp_path / str(next(count)), monkeypatch)


def test_without_completed_steps_a_training_hangs_whatever_its_cpu_does(watched: Callable[[], Watched]) -> None:
    with all_hold() as cases:
        for phase in ("training", "evaluating"):
            with cases.case(phase):
                one = watched().begun().phase(phase).works(299)
                assert one.hung == ""
                assert one.works(5).hung.startswith("no step was completed for 5:0")
                assert "run.hang_seconds=300" in one.hung
        with cases.case("events are signs"):
            one = watched().begun()
            for _ in range(20):
                one.works(280).phase("training")
            assert one.hung == ""
        with cases.case("20 times the longest gap"):
            one = watched().begun().works(60).phase("training").works(1100)
            assert one.hung == ""
            assert one.works(110).hung
            one = watched().begun().works(60).phase("training").works(4).phase("evaluating").works(1100)
            assert one.hung == "", "a short gap does not take back a long one"
        with cases.case("3 times the first step"):
            one = watched().begun(first_step_seconds=400).begun(first_step_seconds=20).works(1150)
            assert one.hung == "", "the longer of two"
            assert one.works(60).hung


def test_what_takes_long_for_good_reasons_is_no_hang(watched: Callable[[], Watched]) -> None:
    with all_hold() as cases:
        with cases.case("a long evaluation"):
            one = watched().begun().phase("evaluating")
            for _ in range(200):
                one.works(6).heartbeat.beat()
            assert one.hung == ""
        with cases.case("a callback of the user's"):
            one = watched().begun()
            with one.heartbeat:
                assert one.works(4000).hung == ""
            assert one.works(200).hung == ""
            assert one.works(120).hung, "what the callback took is no gap between steps"
        with cases.case("a callback of the user's that waits for ever"):
            one = watched().begun()
            with one.heartbeat:
                one.cores = 0.0
                assert "no progress and no CPU time" in one.works(310).hung
        with cases.case("importing and building"):
            for phase in ("importing", "building"):
                one = watched().phase(phase).works(4000)
                assert one.hung == ""
                one.cores = 0.0
                assert "no CPU time" in one.works(310).hung
        with cases.case("building in processes of its own"):
            one = watched().phase("building")
            one.cores, one.activity._children = 0.0, AtWork(1)
            assert one.works(4000).hung == ""
        with cases.case("compiling"):
            one = watched().phase("compiling").works(7000)
            assert one.hung == ""
            assert "no step was completed for 2:0" in one.works(300).hung
        with cases.case("a resumed run that goes through data it has trained on"):
            one = watched()
            one.writer.emit(STARTED)
            assert one.phase("compiling").works(20_000).hung == ""
            one.cores = 0.0
            assert "no CPU time" in one.works(310).hung
        with cases.case("a checkpoint on a slow disk"):
            one = watched().begun().phase("saving")
            one.cores = 0.0
            assert one.works(1190).hung == ""
            assert one.works(20).hung
        with cases.case("suspended"):
            one = watched().begun()
            one.suspended, one.cores = True, 0.0
            assert one.works(9000).hung == ""
            assert one.activity.suspended_seconds == 9000
            one.suspended = False
            assert one.works(290).hung == ""
            assert one.activity.suspended_seconds == 0
            one.suspended = True
            assert one.works(8).activity.suspended_seconds == 8, "from the second time on"
        with cases.case("the machine slept"):
            one = watched().begun()
            assert one.works(90_000, between_looks=90_000).works(250).hung == ""


# ---- the engine ---------------------------------------------------------------------------------

# The engine itself tells that the trainer trains, before it starts it: on a busy machine a process may take more than a
# second to begin.
STANDS_IN = """
import os, sys
here = sys.orig_argv[-2:-1]

def tell(**event):
    import json, time
    with open(f"{sys.orig_argv[-1]}/events.jsonl", "a") as stream:
        stream.write(json.dumps({"t": time.time(), "run": "x"} | event) + "\\n")

if here == ["gputui.engine"]:
    tell(type="started", gpus=["GPU-a", "GPU-b"])
    tell(type="phase", phase="training")
if here == ["gputui.engine.trainer"]:
    import signal, time
    from gputui.engine.system import child_process

    child_process.release()  # as a trainer does, which looks at its engine from then on
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    while True:
        time.sleep(0.0005)
"""


@pytest.fixture
def polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All trainers from here on say that they train on two GPUs, and then poll a device that never answers."""
    folder = tmp_path / "standing-in"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(STANDS_IN)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_trainer_that_polls_a_device_for_ever_is_ended_and_the_usual_causes_are_named(polling: None) -> None:
    done = gputui("--preset", "quickstart", "--set", "hang_seconds=1", timeout=180)
    assert done.returncode == 1
    result = runs.find("latest").result
    assert result is not None
    assert (result["outcome"], result["error"]["kind"]) == ("timeout", "hang")
    for words in ("no step was completed", "run.hang_seconds=1", "NCCL_P2P_DISABLE=1", "IOMMU", "/dev/shm",
                  "NCCL_DEBUG=INFO"):  # fmt: skip
        assert words in done.stdout + done.stderr


# An engine whose SIGKILL does not end the trainer, as where a driver holds it in a call.
HOLDING = """
import subprocess, sys
from pathlib import Path
from gputui.engine.process import spawn, supervisor
from gputui.engine.runs import Run
from gputui.engine.system import locks
from gputui.engine.system.run_clock import RunClock

subprocess.Popen.kill = lambda process: None
supervisor.HELD_SECONDS = 0.5
folder, clock = sys.argv[1], RunClock.launched()
with locks.take(Path(folder) / locks.ENGINE_LOCK) as lock:
    sys.exit(supervisor.Supervisor(Run(Path(folder)), spawn.start_trainer(folder, clock), lock, clock).supervise())
"""


def test_a_trainer_that_does_not_die_does_not_keep_the_run_alive(polling: None, tmp_path: Path) -> None:
    preset = presets.resolve("quickstart", ["hang_seconds=1"])
    run = launch.create(preset)
    trainer, log = None, tmp_path / "errors"
    writer = EventWriter(run.file("events.jsonl"), run.id)
    writer.emit(replace(STARTED, gpus=["GPU-a", "GPU-b"]))
    writer.emit(Phase(phase="training"))
    writer.close()
    with log.open("wb") as errors:
        engine = subprocess.Popen([sys.executable, "-P", "-c", HOLDING, str(run.path)], stderr=errors)
    try:
        while engine.poll() is None and trainer is None:
            trainer = run.process("trainer")
        assert engine.wait(timeout=180) == 0, log.read_text()
        assert trainer is not None
        assert trainer.alive()
        result = run.result
        assert result is not None
        assert (result["outcome"], result["error"]["kind"]) == ("timeout", "held")
        assert f"pid {trainer.pid}" in result["error"]["message"]
        assert "no step was completed" in result["error"]["message"]
        assert "nvidia-smi --gpu-reset" in result["error"]["hint"]
        assert run.state == "timeout", "nobody waits for it"
        assert not any(event["kind"] == "left_behind" for event in happened(run, "warning"))
        assert [event.type for event in runs.follow(run)][-1] == "finished"
    finally:
        engine.kill()
        engine.wait()
        if trainer is not None and trainer.alive():
            os.kill(trainer.pid, signal.SIGKILL)
