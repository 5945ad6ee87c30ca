"""Runs from start to every kind of end, through the command line, with real training in real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.runs import Run

from .front_door import LONG, detached, ended, events, gputui, happened, last_losses, opened, step, until

EXACT = ["--preset", "quickstart", "--set", "model=separable_cnn", "--set", "epochs=4", "--set", "deterministic=true",
         "--set", "augment=light", "--set", "run.checkpoint=20", "--set", "shuffle=500", "--set", "cache=off"]

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
    assert f"val accuracy   {result['metrics']['val_accuracy']:.3g}" in done.stdout
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
    first = until(lambda: happened(run, "phase"))[0]
    assert first["phase"] == "importing"
    launched = run.file("preset.yaml").stat().st_mtime
    # 0.2 s on an idle machine (see benchmarks); here only that it does not wait for TensorFlow.
    assert first["t"] - launched < 2
    gputui("stop", run.id)
    ended(run)


def test_samples_per_second_agrees_with_the_wall_time_of_the_same_steps() -> None:
    done = gputui("--preset", "quickstart", "--set", "epochs=1", "--set", "steps_per_epoch=1500", "--json")
    told = events(done.stdout)
    training = [event for event in told if event["type"] == "progress" and event["step"] > 20]
    first, last = training[0], training[-2]  # the last of all is written after the evaluation
    measured = 32 * (last["step"] - first["step"]) / (last["t"] - first["t"])
    assert told[-1]["summary"]["samples_per_second"] == pytest.approx(measured, rel=0.05)
    live = statistics.median(event["samples_per_second"] for event in training[1:])
    assert live == pytest.approx(measured, rel=0.1)


def test_a_preset_file_in_the_current_folder_and_a_detached_run_that_outlives_its_terminal(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: quickstart\ntrain: {epochs: 5000}\nrun: {checkpoint: 50}\n")
    # A user's own modules must not stand in for gputui's or Python's.
    (tmp_path / "engine.py").write_text("raise SystemExit('wrong engine')")
    (tmp_path / "json.py").write_text("raise SystemExit('wrong json')")
    done = gputui("--preset", "mine.yaml", "--detach", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = runs.find(done.stdout.strip())
    until(lambda: step(run) > 20)
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


def test_losing_the_terminal_leaves_a_foreground_run_running() -> None:
    with opened(*LONG, start_new_session=True) as viewer:
        run = until(lambda: next(iter(runs.all_runs()), None))
        until(lambda: step(run) > 1)
        os.killpg(viewer.pid, signal.SIGHUP)
        viewer.communicate(timeout=10)
    before = step(run)
    until(lambda: step(run) > before + 20)
    gputui("stop", run.id)
    assert ended(run)["outcome"] == "stopped"


def test_ctrl_c_stops_gracefully_with_the_summary() -> None:
    with opened(*LONG) as viewer:
        run = until(lambda: next(iter(runs.all_runs()), None))
        until(lambda: step(run) > 50)
        viewer.send_signal(signal.SIGINT)
        out, _ = viewer.communicate(timeout=60)
    assert viewer.returncode == 130
    assert "samples/s" in out
    assert "Traceback" not in out
    assert ended(run)["outcome"] == "stopped"


def test_a_hung_training_is_noticed_and_another_is_stopped_by_asking_twice() -> None:
    run = detached(*LONG, "--set", "hang_seconds=3")
    until(lambda: step(run) > 1)
    trainer = run.process("trainer")
    assert trainer is not None
    os.kill(trainer.pid, signal.SIGSTOP)
    result = ended(run)
    assert result["outcome"] == "timeout"
    assert result["error"]["kind"] == "hang"
    assert "run.hang_seconds=3" in result["error"]["message"]

    run = detached(*LONG)
    until(lambda: step(run) > 1)
    trainer = run.process("trainer")
    assert trainer is not None
    os.kill(trainer.pid, signal.SIGSTOP)
    gputui("stop", run.id)
    gputui("stop", run.id)
    assert ended(run, 10)["outcome"] == "stopped"


def test_the_time_limit_ends_a_run_gracefully() -> None:
    done = gputui(*LONG, "--set", "max_minutes=0.25", "--set", "run.checkpoint=epoch")
    assert done.returncode == 1
    assert "run.max_minutes=0.25" in done.stdout
    run = runs.find("latest")
    assert run.state == "timeout"
    assert any(run.file("checkpoints").iterdir())


def test_out_of_memory_is_told_with_the_batch_size_and_a_hint() -> None:
    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (9 * 10**9, 9 * 10**9))

    done = gputui("--preset", "quickstart", "--set", "data=synthetic", "--set", "shape=[1024]", "--set", "samples=3000",
                  "--set", "model=transformer", "--set", "batch_size=1024", preexec_fn=limit_memory)
    assert done.returncode == 3
    assert "out of memory at batch size 1024" in done.stdout
    assert "input.batch_size=512" in done.stdout
    assert runs.find("latest").state == "oom"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The losses of a run that nothing happens to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = gputui(*EXACT, "--json", env=os.environ | {"GPUTUI_HOME": str(folder)})
    assert done.returncode == 0, done.stderr
    return dict(events(done.stdout)[-1]["summary"]["metrics"])


@pytest.mark.parametrize("roles", [("trainer",), ("engine",), ("engine", "trainer")], ids="+".join)
def test_a_killed_run_resumes_to_the_same_loss(undisturbed: dict[str, float], roles: tuple[str, ...]) -> None:
    run = detached(*EXACT)
    until(lambda: step(run) >= 60)
    kill(run, *roles)
    until(lambda: not run.alive("engine") and not run.alive("trainer"))
    assert run.state == ("stopped" if roles == ("engine",) else "crashed")
    assert run.state in gputui("runs").stdout
    done = gputui("resume", run.id)
    assert done.returncode == 0, done.stderr
    resumed_at = happened(run, "started")[-1]["resumed_at_step"]
    assert resumed_at % 45 != 0, "the test means to resume in mid-epoch"
    assert last_losses(run) == undisturbed
    assert run.state == "ok"
    assert gputui("resume", run.id).returncode == 2


@pytest.mark.parametrize("name", ["quickstart", "fast", "safe-memory", "xla-bf16", "input-heavy", "debug", "multi-gpu"])
def test_every_shipped_preset_trains(name: str) -> None:
    done = gputui("--preset", name, "--set", "epochs=1", "--set", "steps_per_epoch=4", "--set", "samples=200", "--json")
    assert done.returncode == 0, done.stderr
    summary = events(done.stdout)[-1]["summary"]
    assert summary["outcome"] == "ok"
    assert summary["steps"] == 4
    assert 0 < summary["metrics"]["loss"] < 10


def test_a_warm_engine_takes_a_run_and_one_that_nobody_wants_goes() -> None:
    from gputui.engine import launch, presets

    unwanted, warm = launch.Warm(), launch.Warm()
    unwanted.close()
    run, _ = warm.start(presets.resolve("quickstart", ["epochs=1"]))
    assert ended(run)["outcome"] == "ok"
    assert any("cuda" in line.lower() or "onednn" in line.lower() for line in run.log_tail(50)), "the run has its log"
    warm.process.wait(10)
    again, _ = warm.start(presets.resolve("quickstart", ["epochs=1"]))  # its engine is taken: a cold one starts
    assert ended(again)["outcome"] == "ok"
    warm.process.wait(10)
    unwanted.process.wait(30)
