"""The queue as a user meets it: commands with real trainings, processes that are killed, and GPUs that are shared."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.doors.engine import Run, entries, folder, forecast, jobs, locks, runs
from tests.support.fakegpu import FakeGpu
from tests.support.front_door import gputui, happened, until
from tests.support.idle import idle
from tests.support.standing_in import stand_in as stand_in

pytestmark = pytest.mark.usefixtures("nothing_left_running")
SHORT = ("--preset", "quickstart", "--set", "epochs=1", "--set", "workload.samples=256")


def queued(*more: str) -> Run:
    done = gputui(*SHORT, "--queue", *more)
    assert done.returncode == 0, done.stderr
    assert ": place " in done.stderr
    return runs.find(done.stdout.strip())


def runner_pid() -> int:
    until(lambda: locks.held(entries.queue_folder() / entries.RUNNER_LOCK))
    return int(until(lambda: entries.news().pid))


@pytest.fixture(autouse=True)
def runner_ended(home: Path) -> Iterator[None]:
    """After each test the queue is empty, so that its runner ends."""
    yield
    for entry in entries.all_entries():
        with entries.locked():
            entries.discard(entry.run)
    until(lambda: not locks.held(entries.queue_folder() / entries.RUNNER_LOCK))


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_queued_runs_train_one_after_the_other_though_the_runner_is_killed() -> None:
    gputui("queue", "pause")
    first, second = queued(), queued("--after", "latest")
    assert [run.state for run in (first, second)] == ["waiting", "waiting"]
    assert [line["why"] for line in map(json.loads, gputui("queue", "--json").stdout.splitlines())]
    listed = [json.loads(line) for line in gputui("runs", "--json", "--state", "waiting").stdout.splitlines()]
    assert {row["id"] for row in listed} == {first.id, second.id}
    gputui("queue", "start")
    until(lambda: first.state == "running")
    os.kill(runner_pid(), signal.SIGKILL)
    until(lambda: second.state == "ok")  # the engine of the first has started another runner
    until(lambda: not locks.held(entries.queue_folder() / entries.RUNNER_LOCK))
    assert not entries.all_entries()
    assert "The queue is empty" in gputui("queue").stdout


FORKS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
if os.fork() == 0:
    os.setsid()
    while True:
        time.sleep(1)
print(os.environ["CUDA_VISIBLE_DEVICES"], sys.argv[1:], os.path.basename(os.getcwd()), flush=True)
while True:
    time.sleep(1)
"""


def test_any_command_is_queued_kept_in_a_log_and_ended_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "my data").mkdir()
    (folder / "forks.py").write_text(FORKS)
    monkeypatch.chdir(folder)

    def added(*words: str) -> Run:
        done = gputui("queue", "add", "--gpus", "0", "--anyway", *words)
        assert done.returncode == 0, done.stderr
        return runs.find(done.stdout.strip())

    stubborn = added("--", sys.executable, "forks.py", "a b")
    failing = added("--after", stubborn.id, "--", "sh", "-c", "echo it fails; exit 3")
    until(lambda: any("a b" in line for line in stubborn.log_tail()))
    assert gputui("logs", stubborn.id).stdout == "-1 ['a b'] my data\n"
    os.kill(runner_pid(), signal.SIGKILL)
    for _ in range(2):  # the second ends at once what does not react
        assert gputui("stop", stubborn.id).returncode == 0
    until(lambda: stubborn.state == "stopped")
    until(lambda: failing.state == "error")  # the engine of the first has started another runner
    assert (failing.result or {})["error"]["message"] == "the command ended with exit code 3: it fails"
    assert gputui("history", failing.id).stderr == f"{failing.name} has no figures: it is a command\n"
    for words, why in (
        (("resume", failing.id), "it is a command, which has no checkpoints"),
        (("diagnose", failing.id), "is a command: it has no steps to diagnose"),
        (("diagnose", "--preset", f"run:{failing.id}"), "is a command: gputui measures only what it trains itself"),
        (("export", "--preset", f"run:{failing.id}"), "is a command, of which there is nothing to export"),
        (("queue", "add", "--", "./missing"), "there is no program ./missing"),
        (("queue", "add", "--set", "epochs=3", "--", "ls"), "a command does not obey this option"),
    ):
        refused = gputui(*words)
        assert refused.returncode == 2, words
        assert why in refused.stderr
    again = gputui("--preset", f"run:{failing.id}")
    assert again.returncode == 1
    assert "the command ended with exit code 3" in again.stderr


# Of a training that cannot begin with the change: the measurement has its decision after two trials.
CODE = """
import keras, numpy as np
def build(context):
    if context.args["broken"]:
        raise ValueError("broken")
    x = np.ones((64, 4), "float32")
    return {"model": keras.Sequential([keras.layers.Dense(1)]), "loss": "mse", "train": (x, x[:, :1])}
"""
PRESET = "workload: {entry: 'train.py:build', args: {broken: false}}\ninput: {batch_size: 4}\ntrain: {seed: 1}\n"


@pytest.mark.alone  # a measurement on the CPU waits for every training of the machine, also for those of other tests
@pytest.mark.usefixtures("forked_trainers", "nothing_left_running")
def test_a_queued_measurement_waits_for_a_run_and_is_measured_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "mine.yaml").write_text(PRESET)
    change = ("--preset", str(tmp_path / "mine.yaml"), "--set", "args={broken: true}")
    gputui("queue", "pause")
    run = gputui(*SHORT, "--queue").stdout.strip()
    done = gputui("ab", *change, "--seconds", "0.2", "--queue", "--after", run)
    assert done.returncode == 0, done.stderr
    proof = folder.find(done.stdout.strip())
    assert done.stderr == "place 2 in the queue, needs the CPU: the queue is paused; gputui queue start goes on\n"
    assert proof.state == "waiting"
    assert "waits in the queue" in gputui("proof", proof.id).stdout
    rows = [json.loads(line) for line in gputui("queue", "--json").stdout.splitlines()]
    assert [(row["run"], row["kind"]) for row in rows] == [(run, "run"), (proof.id, "ab")]
    gputui("queue", "start")
    until(lambda: proof.state == "done")
    (comparison,) = proof.record.comparisons
    assert comparison.decision == "failed"
    assert [(trial.side, trial.outcome) for trial in comparison.trials] == [("a", "ok"), ("b", "error")]
    assert proof.record.started_t >= jobs.job_of(run).end_of().at - 1, "the wait is no part of it"
    until(lambda: not entries.all_entries())
    until(lambda: not locks.held(entries.queue_folder() / entries.RUNNER_LOCK))


NOT_MEASURED = "not measured: gputui scaling --copies 1,2"


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left_running", "stand_in")
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
    until(lambda: "train on it (2 of 2 runs)" in entries.news().why.get(third.id, ""))
    for role in ("engine_pid", "trainer_pid"):
        with contextlib.suppress(ProcessLookupError):  # the trainer ends with its engine
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
@pytest.mark.nightly
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
            time.sleep(forecast.LEAST_RUNNING_SECONDS + 5)
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


@pytest.mark.slow
@pytest.mark.needs("cc")
@pytest.mark.parametrize("kinds", ["runner,start", "runner,start,engine"])
@pytest.mark.nightly
def test_no_run_is_lost_or_runs_twice_if_processes_of_the_queue_are_killed(kinds: str) -> None:
    program = Path(__file__).parents[2] / "benchmarks/killed_queue.py"
    command = [sys.executable, "-P", str(program), "--rounds", "1", "--runs", "4", "--kill", kinds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 runs in 1 rounds" in done.stdout
    assert "killed: {}" not in done.stdout
