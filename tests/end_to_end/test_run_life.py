"""Runs from start to every kind of end, through the command line, with real training in real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets, runs
from gputui.engine.runs import Run

from tests.support.front_door import LONG, detached, ended, events, gputui, happened, last_losses, opened, step, until
from tests.support.smaller import SMALLER

EXACT = ["--preset", "quickstart", "--set", "model=separable_cnn", "--set", "epochs=3", "--set", "deterministic=true",
         "--set", "augment=light", "--set", "run.checkpoint=20", "--set", "shuffle=500", "--set", "cache=off",
         "--set", "batch_size=16", "--set", "gradient_accumulation=7"]
STEPS_PER_EPOCH = 90  # of EXACT: far more than pass until what is seen has an effect

KILLED = ["trainer", "engine", "engine+trainer"]
# Every shipped preset trains beside its exported script (test_export), without XLA; these train here with it.
COMPILED = [
    name for name in sorted(path.stem for path in presets.SHIPPED.glob("*.yaml"))
    if presets.resolve(name, SMALLER.get(name, ())).options.compile.xla
]  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]

Done = subprocess.CompletedProcess[str]


def kill(run: Run, *roles: str) -> None:
    for role in roles:
        process = run.process(role)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)


@contextmanager
def own_home(folder: Path) -> Iterator[None]:
    """A home for the runs of several tests; none of them goes on beyond it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTUI_HOME", str(folder / "home"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        try:
            yield
        finally:
            for run in runs.all_runs():
                kill(run, *(role for role in ("engine", "trainer") if run.alive(role)))


def side_by_side(tasks: dict[str, Callable[[], Any]]) -> dict[str, Future[Any]]:
    """Do all, two at a time, for tests that time nothing; each takes what has become of its own.

    Half of a short training is the import of TensorFlow, which keeps one core busy and leaves the other idle.
    """
    with ThreadPoolExecutor(2) as pool:
        done = {name: pool.submit(task) for name, task in tasks.items()}
        wait(done.values())
    return done


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
        viewer.communicate(timeout=120)
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


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Done, Run]]:
    """A run that reaches its time limit, and meanwhile one that runs out of memory: both are mostly waiting."""

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (9 * 10**9, 9 * 10**9))

    def found(done: Done) -> tuple[Done, Run]:
        return done, runs.find(done.stdout.split()[1])  # its first line is: run ID

    with own_home(tmp_path_factory.mktemp("limited")):
        with opened(*LONG, "--set", "max_minutes=0.25", "--set", "run.checkpoint=epoch") as timed:
            starved = gputui("--preset", "quickstart", "--set", "data=synthetic", "--set", "shape=[1024]",
                             "--set", "samples=3000", "--set", "model=transformer", "--set", "batch_size=1024",
                             preexec_fn=limit_memory)
            out, err = timed.communicate(timeout=60)
        return {"memory": found(starved), "time": found(Done(timed.args, timed.returncode, out, err))}


def test_the_time_limit_ends_a_run_gracefully(limited: dict[str, tuple[Done, Run]]) -> None:
    done, run = limited["time"]
    assert done.returncode == 1
    assert "run.max_minutes=0.25" in done.stdout
    assert run.state == "timeout"
    assert any(run.file("checkpoints").iterdir())


def test_out_of_memory_is_told_with_the_batch_size_and_a_hint(limited: dict[str, tuple[Done, Run]]) -> None:
    done, run = limited["memory"]
    assert done.returncode == 3
    assert "out of memory at batch size 1024" in done.stdout
    assert "input.batch_size=512" in done.stdout
    assert run.state == "oom"


def undisturbed() -> dict[str, float]:
    """The losses of a run that nothing happens to."""
    done = gputui(*EXACT, "--json")
    assert done.returncode == 0, done.stderr
    return dict(events(done.stdout)[-1]["summary"]["metrics"])


def killed_and_resumed(*roles: str) -> Run:
    """A run after it was killed in mid-epoch, resumed and ended."""
    run = detached(*EXACT)
    until(lambda: step(run) > STEPS_PER_EPOCH)
    kill(run, *roles)
    until(lambda: not run.alive("engine") and not run.alive("trainer"))
    assert run.state == ("stopped" if roles == ("engine",) else "crashed")
    assert run.state in next(line for line in gputui("runs").stdout.splitlines() if line.startswith(f"{run.id} "))
    done = gputui("resume", run.id)
    assert done.returncode == 0, done.stderr
    assert gputui("resume", run.id).returncode == 2
    return run


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Any]]:
    """By who was killed in it: the run; and by the empty name the losses of one that was left alone."""
    with own_home(tmp_path_factory.mktemp("killed")):
        return side_by_side({"": undisturbed} | {who: partial(killed_and_resumed, *who.split("+")) for who in KILLED})


@pytest.mark.parametrize("who", KILLED)
def test_a_killed_run_resumes_to_the_same_loss(killed: dict[str, Future[Any]], who: str) -> None:
    run = killed[who].result()
    resumed_at = happened(run, "started")[-1]["resumed_at_step"]
    assert resumed_at % STEPS_PER_EPOCH != 0, "the test means to resume in mid-epoch"
    assert last_losses(run) == killed[""].result()
    assert run.state == "ok"


def trained(name: str) -> Done:
    settings = ("epochs=1", "steps_per_epoch=4", "samples=200", *SMALLER.get(name, ()))
    return gputui("--preset", name, *(part for setting in settings for part in ("--set", setting)), "--json")


@pytest.fixture(scope="module")
def presets_trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Done]]:
    with own_home(tmp_path_factory.mktemp("presets")):
        return side_by_side({name: partial(trained, name) for name in COMPILED})


@pytest.mark.parametrize("name", COMPILED)
def test_a_shipped_preset_trains_compiled_by_xla(presets_trained: dict[str, Future[Done]], name: str) -> None:
    done = presets_trained[name].result()
    assert done.returncode == 0, done.stderr
    summary = events(done.stdout)[-1]["summary"]
    assert summary["outcome"] == "ok"
    assert summary["steps"] == 4
    assert 0 < summary["metrics"]["loss"] < 10


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
