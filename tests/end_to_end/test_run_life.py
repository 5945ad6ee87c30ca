"""Runs from start to every kind of end, through the command line, with real training in real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.runs import Run

from tests.support.forking import Forks, trainer_of
from tests.support.front_door import LONG, detached, ended, events, gputui, happened, opened, step, until
from tests.support.idle import idle

EXACT = ("model=separable_cnn", "width=0.5", "epochs=6", "deterministic=true", "augment=light", "run.checkpoint=25",
         "shuffle=500", "cache=off", "batch_size=16", "gradient_accumulation=7")  # fmt: skip
STEPS_PER_EPOCH = 90  # of EXACT: far more than pass until what is seen has an effect
# Who is killed, and after how many steps; the first checkpoint at the end of an epoch is that of step 450.
KILLED = {"trainer": 95, "engine": 210, "engine+trainer": 310}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]

def kill(run: Run, *roles: str) -> None:
    for role in roles:
        process = run.process(role)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)


def test_quickstart_reaches_its_accuracy_and_says_so() -> None:
    done = gputui("--preset", "quickstart", timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    run = runs.find("latest")
    result = run.result
    assert result is not None
    assert result["outcome"] == "ok"
    assert result["metrics"]["val_accuracy"] >= 0.95
    figures = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert f"val accuracy {result['metrics']['val_accuracy']:.3g}" in figures
    assert result["steps"] == 270
    assert result["measured_steps"] == 250
    assert 0 < result["input_wait"] < 1
    assert 0 < result["goodput"] < 1
    assert result["peak_memory_bytes"] > 0
    listed = json.loads(gputui("runs", "--json").stdout)
    assert listed["id"] == run.id
    assert listed["state"] == "ok"


def test_json_is_the_whole_story_and_nothing_else() -> None:
    done = gputui("--preset", "debug", "--set", "log_placement=false", "--json")
    assert done.returncode == 0
    told = events(done.stdout)
    assert [event["type"] for event in told].count("finished") == 1
    assert told[-1]["type"] == "finished"
    assert told[-1]["summary"] == runs.find("latest").result
    phases = [event["phase"] for event in told if event["type"] == "phase"]
    for earlier, later in zip(["importing", "configuring", "building", "compiling", "training", "ended"],
                              ["configuring", "building", "compiling", "training", "ended", "ended"], strict=True):
        assert phases.index(earlier) <= phases.index(later)
    started = next(event for event in told if event["type"] == "started")
    assert started["actual"]["variables_on"] == {":CPU:0": 7}  # six weights and the seed of dropout
    assert {event["type"] for event in told} >= {"host", "gpu", "progress", "epoch"}


def test_first_sign_of_life_comes_at_once() -> None:
    run = detached(*LONG)
    first = until(lambda: happened(run, "phase")[1:])[0]
    assert first["phase"] == "importing"
    launched = run.file("preset.yaml").stat().st_mtime
    # 0.2 s on an idle machine (see benchmarks); here only that it does not wait for TensorFlow.
    assert first["t"] - launched < 2
    gputui("stop", run.id)
    ended(run)


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_samples_per_second_agrees_with_the_wall_time_of_the_same_steps() -> None:
    done = gputui("--preset", "quickstart", "--set", "epochs=1", "--set", "steps_per_epoch=700", "--json")
    told = events(done.stdout)
    training = [event for event in told if event["type"] == "progress" and event["step"] > 20]
    first, last = training[0], training[-2]  # the last of all is written after the evaluation
    measured = 32 * (last["step"] - first["step"]) / (last["t"] - first["t"])
    assert told[-1]["summary"]["samples_per_second"] == pytest.approx(measured, rel=0.05)
    live = statistics.median(event["samples_per_second"] for event in training[1:])
    assert live == pytest.approx(measured, rel=0.1)


def test_a_preset_file_in_the_current_folder_and_a_run_that_outlives_its_terminal(tmp_path: Path) -> None:
    idle(tmp_path, "{checkpoint: 50}", "mine")
    # A user's own modules must not stand in for gputui's or Python's.
    (tmp_path / "engine.py").write_text("raise SystemExit('wrong engine')")
    (tmp_path / "json.py").write_text("raise SystemExit('wrong json')")
    with opened("--preset", "mine.yaml", cwd=tmp_path, start_new_session=True) as viewer:
        run = until(lambda: next(iter(runs.all_runs()), None))
        until(lambda: step(run) > 1)
        os.killpg(viewer.pid, signal.SIGHUP)
        viewer.communicate(timeout=120)
    engine = run.process("engine")
    assert engine is not None
    os.killpg(os.getpgid(engine.pid), signal.SIGHUP)
    before = step(run)
    until(lambda: step(run) > before + 20)
    assert "running" in gputui("runs").stdout
    assert gputui("stop", run.id).returncode == 0
    result = ended(run)
    assert result["outcome"] == "stopped"
    # A stop writes a checkpoint of the very step, and evaluates nothing more.
    assert run.file(f"checkpoints/step-{result['steps']:010d}").is_dir()
    assert gputui("stop", run.id).returncode == 2


def test_ctrl_c_stops_gracefully_with_the_summary(tmp_path: Path) -> None:
    with opened("--preset", idle(tmp_path)) as viewer:
        run = until(lambda: next(iter(runs.all_runs()), None))
        until(lambda: step(run) > 50)
        viewer.send_signal(signal.SIGINT)
        out, _ = viewer.communicate(timeout=60)
    assert viewer.returncode == 130
    assert "samples/s" in out
    assert "Traceback" not in out
    assert ended(run)["outcome"] == "stopped"


def freeze(run: Run) -> None:
    """Stop its trainer in mid-training, so that it answers nothing."""
    until(lambda: step(run) > 1)
    trainer = run.process("trainer")
    assert trainer is not None
    os.kill(trainer.pid, signal.SIGSTOP)


def test_a_suspended_training_is_no_hang_and_is_stopped_by_asking_twice() -> None:
    run = detached(*LONG, "--set", "hang_seconds=3")
    freeze(run)
    (warning,) = until(lambda: [event for event in happened(run, "warning") if event["kind"] == "suspended"])
    assert "kill -CONT" in warning["hint"]
    assert run.state == "running"
    gputui("stop", run.id)
    gputui("stop", run.id)
    assert ended(run)["outcome"] == "stopped"


def test_limits_of_time_and_of_memory_end_a_run_with_words(tmp_path: Path) -> None:
    """Both at once: the first is mostly waiting."""

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (9 * 10**9, 9 * 10**9))

    def found(told: str) -> Run:
        return runs.find(told.split()[1])  # its first line is: run ID

    with opened("--preset", idle(tmp_path, "{checkpoint: 10, max_minutes: 0.3}")) as timed:
        starved = gputui("--preset", "quickstart", "--set", "data=synthetic", "--set", "shape=[1024]",
                         "--set", "samples=3000", "--set", "model=transformer", "--set", "batch_size=1024",
                         preexec_fn=limit_memory)  # fmt: skip
        out, _ = timed.communicate(timeout=60)
    assert timed.returncode == 1
    assert "run.max_minutes=0.3" in out
    assert found(out).state == "timeout"
    assert any(found(out).file("checkpoints").iterdir())
    assert starved.returncode == 3
    assert "out of memory at batch size 1024" in starved.stdout
    assert "input.batch_size=512" in starved.stdout
    assert found(starved.stdout).state == "oom"


def losses_by_epoch(run: Run) -> dict[int, dict[str, float]]:
    """The metrics of each epoch, as they were told last."""
    return {event["epoch"]: event["metrics"] for event in happened(run, "epoch")}


def kill_and_resume(run: Run, who: str, steps: int) -> None:
    """Kill processes of it once it has come so far, and resume it."""
    until(lambda: step(run) > steps)
    kill(run, *who.split("+"))
    until(lambda: not run.alive("engine") and not run.alive("trainer"))
    assert run.state == ("stopped" if who == "engine" else "crashed")
    assert run.state in next(line for line in gputui("runs").stdout.splitlines() if line.startswith(f"{run.id} "))
    starts = len(happened(run, "started"))
    done = gputui("resume", run.id, "--detach")
    assert done.returncode == 0, done.stderr
    started = until(lambda: happened(run, "started")[starts:])
    assert started[0]["resumed_at_step"] % STEPS_PER_EPOCH != 0, "the test means to resume in mid-epoch"


def test_a_run_that_is_killed_and_resumed_goes_on_to_the_same_losses(forks: Forks) -> None:
    undisturbed, trainer = trainer_of(presets.resolve("quickstart", EXACT))
    forks.run(trainer)
    run = detached("--preset", "quickstart", *(word for setting in EXACT for word in ("--set", setting)))
    for who, steps in KILLED.items():
        kill_and_resume(run, who, steps)
    assert ended(run)["outcome"] == "ok"
    assert gputui("resume", run.id).returncode == 2
    assert losses_by_epoch(run) == losses_by_epoch(undisturbed)
    assert len(losses_by_epoch(run)) == 6


def test_a_warm_engine_takes_a_run_and_one_that_nobody_wants_goes() -> None:
    from gputui.engine.process import launch

    unwanted, warm = launch.Warm(), launch.Warm()
    unwanted.close()
    run, engine = warm.start(presets.resolve("quickstart", ["epochs=1"]))
    again, cold = warm.start(presets.resolve("quickstart", ["epochs=1"]))  # its engine is taken: a cold one starts
    assert engine.pid != cold.pid
    assert ended(run)["outcome"] == "ok"
    assert any("cuda" in line.lower() or "onednn" in line.lower() for line in run.log_tail(50)), "the run has its log"
    assert ended(again)["outcome"] == "ok"
    engine.wait(10)
    cold.wait(10)
    unwanted.process.wait(30)
