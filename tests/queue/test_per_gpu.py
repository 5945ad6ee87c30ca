"""Several queued runs on one GPU (run.per_gpu): which share it, who waits, and what each of them gets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.leases import tickets
from gputui.engine.leases.tickets import Ticket
from gputui.engine.queue import entries, fair_share, queue_settings
from gputui.engine.queue.free_devices import CPU, Device
from gputui.engine.runs import Run

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import gputui, happened, until
from tests.support.idle import idle
from tests.support.queued import GPUS, Trainings, add, no_runner, waiting

pytest_plugins = ("tests.support.fakegpu.fixture",)

NOT_MEASURED = "not measured: gputui scaling --copies 1,2"


def shares(per_gpu: int = 2) -> Run:
    return waiting(visible="free:1", per_gpu=per_gpu)


def devices_of(trainings: Trainings) -> list[str]:
    return [devices[0] for _, devices in trainings.begun]


def test_runs_share_gpus_up_to_their_number_and_a_run_for_itself_gets_a_whole_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No run begins on the GPU for which a run waits, so that it becomes free although others would share it."""
    no_runner(monkeypatch)
    trainings, four = Trainings(), [shares() for _ in range(4)]
    alone, fifth, sixth = waiting(visible="free:1"), shares(), shares()
    add(*four, alone, fifth, sixth)
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    assert devices_of(trainings) == ["GPU-a", "GPU-b", "GPU-a", "GPU-b"], "an idle GPU comes first"
    why = entries.news()["why"]
    a, b, c, d = (run.name for run in four)
    of_a, of_b = f"GPU 0: {a} and {c} train on it (2 of 2 runs)", f"GPU 1: {b} and {d} train on it (2 of 2 runs)"
    assert why[alone.id] == f"needs a GPU; {of_a}; {of_b}"
    assert why[fifth.id] == f"needs 1 of 2 places on a GPU ({NOT_MEASURED}); GPU 0 is kept for a run before it; {of_b}"
    trainings.end(four[0].id)
    for _ in range(3):
        runner.tick()
    assert fifth.id not in trainings.alive, "the run before it waits for that GPU"
    trainings.end(four[1].id)
    for _ in range(3):
        runner.tick()
    assert trainings.begun[4:] == [(fifth.id, ("GPU-b",))], "only one GPU is kept"
    trainings.end(four[2].id)
    for _ in range(3):
        runner.tick()
    assert trainings.begun[5:] == [(alone.id, ("GPU-a",))]
    assert len(trainings.alive) == 3
    trainings.end(alone.id)
    for _ in range(3):
        runner.tick()
    assert trainings.begun[6:] == [(sixth.id, ("GPU-a",))]


def test_only_runs_with_the_same_number_share_and_nobody_else_is_on_their_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    trainings, two, three, more = Trainings(GPUS[:1]), shares(2), shares(3), shares(2)
    add(two, three)
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [two.id]
    entries.discard(three.id)
    add(more)
    monkeypatch.setattr(trainings, "look", lambda: [replace(GPUS[0], places="1 of 2 runs")])  # a stranger is on it
    runner = trainings.runner()
    runner.tick()
    assert trainings.alive == [two.id]
    assert entries.news()["why"][more.id].endswith(f"GPU 0: {two.name} trains on it (1 of 2 runs)")


def test_a_shared_gpu_is_one_of_the_devices_that_the_queue_may_have_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    monkeypatch.setattr(queue_settings, "stamp", lambda: 1.0)
    monkeypatch.setattr(queue_settings, "read", lambda: queue_settings.Settings(most=1))
    trainings, made = Trainings(), [shares() for _ in range(3)]
    add(*made)
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    assert devices_of(trainings) == ["GPU-a"] * 2


def test_the_cpu_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    trainings, made = Trainings((Device(CPU),)), [shares(), shares()]
    add(*made)
    runner = trainings.runner()
    for _ in range(3):
        runner.tick()
    assert trainings.alive == [made[0].id]


def test_a_place_on_a_shared_gpu_is_left_to_a_user_who_waits_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    no_runner(monkeypatch)
    trainings, made = Trainings(GPUS[:1]), [shares(), shares()]
    add(made[0])
    runner = trainings.runner()
    runner.tick()
    monkeypatch.setattr(tickets, "of_others", lambda: [Ticket("bob", 1, 1, 0.0)])
    add(made[1])
    runner.tick()
    assert trainings.alive == [made[0].id]
    assert "bob, who has fewer devices or waits longer, goes first" in entries.news()["why"][made[1].id]
    monkeypatch.setattr(tickets, "of_others", list)
    runner.tick()
    assert trainings.alive == [run.id for run in made]


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left_running")
def test_two_runs_share_a_gpu_each_with_its_part_and_a_killed_run_frees_only_its_place(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    box = {**os.environ, **fakegpu.environment(tmp_path / "box", gpus=1), "GPUTUI_IDLE_SECONDS": "1"}
    long = ("--preset", idle(tmp_path), "--set", "visible=free:1")
    two = [gputui(*long, "--set", "per_gpu=2", "--queue", env=box) for _ in range(3)]
    assert f"needs 1 of 2 places on a GPU ({NOT_MEASURED}): it starts" in two[0].stderr
    first, second, third = (runs.find(done.stdout.strip()) for done in two)
    until(lambda: [run.state for run in (first, second, third)] == ["running", "running", "waiting"])
    for run in (first, second):
        device = json.loads(run.file("options.json").read_text())["device"]
        assert device["memory_limit_mb"] == int(0.95 * 8192 / 2 - 768)
        assert device["intra_op_threads"] == device["inter_op_threads"] == max(1, len(os.sched_getaffinity(0)) // 2)
        assert "per_gpu: 2" in run.file("preset.yaml").read_text()
        assert "memory_limit_mb: null" in run.file("preset.yaml").read_text()
    assert "2 of 2 runs" in gputui("gpus", env=box).stdout
    outside = gputui(*long, env=box)
    assert outside.returncode != 0
    assert "used by 2 of 2 runs: " in outside.stderr
    until(lambda: "train on it (2 of 2 runs)" in entries.news()["why"].get(third.id, ""))
    for role in ("engine_pid", "trainer_pid"):
        os.kill(first.status[role], signal.SIGKILL)
    until(lambda: third.state == "running")
    assert second.state == "running"
    for run in (second, third):
        gputui("stop", run.id, env=box)
    until(lambda: not entries.all_entries())
    assert [run.state for run in (second, third)] == ["stopped"] * 2
    assert "free" in gputui("gpus", env=box).stdout


SLOW = """
import os, time, keras, numpy as np

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow")):
            time.sleep(0.2)

def build(context):
    x = np.random.default_rng(0).normal(size=(320, 4)).astype("float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return {"model": model, "train": (x, x[:, :1] ** 2), "callbacks": [Slow()]}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left_running")
def test_a_queued_run_trains_next_to_a_screen_and_gives_way_only_to_a_program_that_computes(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    """The screen's program and the other program are another user's, if the tests run as root."""
    (tmp_path / "slow.py").write_text(SLOW)
    slow = tmp_path / "slow"
    slow.touch()
    user = "nobody" if os.geteuid() == 0 else None
    box = tmp_path / "box"
    other = partial(subprocess.Popen, ["sleep", "600"], user=user)
    with other() as screen, other() as program:
        try:
            environment = fakegpu.environment(box, words=f"graphics={screen.pid}")
            where = os.environ | environment | {"GPUTUI_IDLE_SECONDS": "0"}
            free = ("--preset", "quickstart", "--set", f"entry={tmp_path}/slow.py:build", "--set", "seed=3",
                    "--set", "epochs=30", "--set", "batch_size=32", "--set", "visible=free:1")  # fmt: skip
            assert "free, with a display" in gputui("gpus", env=where).stdout
            done = gputui(*free, "--set", "give_way=true", "--set", "run.checkpoint=epoch", "--queue", env=where)
            assert done.returncode == 0, done.stderr
            run = runs.find(done.stdout.strip())
            until(lambda: happened(run, "epoch"))
            time.sleep(fair_share.LEAST_RUNNING_SECONDS + 5)
            assert run.state == "running"
            use = box / f"use.{program.pid}"
            use.write_text("0 4096 60\n")
            until(lambda: run.state == "waiting")
            assert "sleep" in gputui("queue", env=where).stdout
            slow.unlink()
            use.unlink()
            until(lambda: run.state == "ok")
            assert len(happened(run, "started")) == 2, "it gave way to the program, and never to the screen"
            alone = gputui(*free, env=where)
            assert alone.returncode == 0, alone.stderr
            assert [each["metrics"] for each in happened(run, "epoch")] == [
                each["metrics"] for each in happened(runs.find("latest"), "epoch")
            ]
        finally:
            screen.kill()
            program.kill()
