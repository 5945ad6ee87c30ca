"""Runs from start to every kind of end, through the command line, with real training in real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.doors.engine import Run, launch, presets, resuming, runs
from tests.doors.tui import RunReader
from tests.doors.tui import tui_cli as cli
from tests.support.forking import Forks, trainer_of
from tests.support.front_door import detached, ended, events, gputui, happened, opened, step, until
from tests.support.idle import idle
from tests.support.standing_in import kept, training

pytestmark = pytest.mark.usefixtures("nothing_left_running")

SMALL = ("model=mlp", "width=0.05")
EXACT = (*SMALL, "epochs=2", "deterministic=true", "augment=light", "run.checkpoint=25",
         "shuffle=500", "cache=off", "batch_size=16", "gradient_accumulation=7")  # fmt: skip
STEPS_PER_EPOCH = 90  # of EXACT
# Without weights worth mentioning: what it makes of a batch of 1024 takes 13 GB.
WIDE = """\
workload: {entry: "wide.py:build"}
input: {batch_size: 1024}
train: {validation_split: 0}
"""
WIDE_CODE = """\
import keras, numpy as np
def build(context):
    layers = [keras.Input((64,)), keras.layers.RepeatVector(50000), keras.layers.Dense(1)]
    x = np.zeros((2048, 64), "float32")
    return {"model": keras.Sequential(layers), "loss": "mse", "train": (x, x[:, 0])}
"""
# Who is killed, and at which step of its sitting; of the regular checkpoints none is at the end of one of these epochs.
KILLED = {"trainer": 40, "engine": 75}
# In the trainer: it stands still at that step, so that it is killed before it has ended.
STANDS_STILL = """
import pathlib, time
from gputui.engine.trainer.measure.step_parts import StepParts
after, at, steps = StepParts.after, pathlib.Path({at!r}), [0]
def wanted():
    try:
        return int(at.read_text())
    except OSError:
        return None
def standing_still(self, count, *more):
    after(self, count, *more)
    steps[0] += count
    while steps[0] == wanted():
        at.with_suffix(".reached").touch()
        time.sleep(0.03)
StepParts.after = standing_still
"""


Ran = Callable[..., tuple[int, str]]


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    """ran(WORDS): exit code and output of a command that launches nothing, in this process."""

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        return cli.run(words), capsys.readouterr().out

    return run


def kill(run: Run, role: str) -> None:
    process = run.process(role)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_quickstart_reaches_its_accuracy_and_says_so(ran: Ran) -> None:
    """Trainers that import TensorFlow themselves, as users' do, are in test_terminal.py and test_user_python.py."""
    done = gputui("--preset", "quickstart")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    run = runs.find("latest")
    result = run.result
    assert result is not None
    assert result["outcome"] == "ok"
    assert result["metrics"]["val_accuracy"] >= 0.95
    figures = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert f"val accuracy {result['metrics']['val_accuracy']:.3g}" in figures
    named = {line.partition(" GiB")[0].partition(" MiB")[0].rpartition(" ")[0] for line in figures}
    assert "peak host memory" in named
    assert "peak tensors" not in named, "TensorFlow counts next to nothing on the CPU"
    assert result["steps"] == 270
    assert result["measured_steps"] == 250
    assert 0 < result["input_wait"] < 1
    assert 0 < result["goodput"] < 1
    assert 0 < result["peak_memory_bytes"] < result["peak_process_bytes"]
    assert result["peak_process_bytes"] > 300 * 2**20, "TensorFlow alone takes more"
    assert result["peak_address_space_bytes"] is None, "it is not limited"
    listed = json.loads(ran("runs", "--json")[1])
    assert listed["id"] == run.id
    assert listed["state"] == "done"


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_json_is_the_whole_story_and_nothing_else() -> None:
    done = gputui("--preset", "debug", "--set", "log_placement=false", "--set", "sample_seconds=0.2", "--json")
    assert done.returncode == 0
    told = events(done.stdout)
    assert [event["type"] for event in told].count("finished") == 1
    assert told[-1]["type"] == "finished"
    assert told[-1]["summary"] == runs.find("latest").result
    phases = [event["phase"] for event in told if event["type"] == "phase"]
    for earlier, later in zip(
        ["importing", "configuring", "building", "compiling", "training", "ended"],
        ["configuring", "building", "compiling", "training", "ended", "ended"],
        strict=True,
    ):
        assert phases.index(earlier) <= phases.index(later)
    started = next(event for event in told if event["type"] == "started")
    assert started["actual"]["variables_on"] == {":CPU:0": 7}  # six weights and the seed of dropout
    assert {event["type"] for event in told} >= {"host", "gpu", "progress", "epoch"}
    first, second = [event for event in told if event["type"] == "progress"][:2]
    sums = [event["loss"] * event["step"] for event in (first, second)]
    since = (sums[1] - sums[0]) / (second["step"] - first["step"])
    assert second["window_loss"] == pytest.approx(since, rel=1e-4), "the mean of the steps since the first report"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_first_sign_of_life_comes_at_once(tmp_path: Path) -> None:
    run = detached("--preset", idle(tmp_path))
    first = until(lambda: happened(run, "phase")[1:])[0]
    assert first["phase"] == "importing"
    launched = run.file("preset.yaml").stat().st_mtime
    # 0.2 s on an idle machine (see benchmarks); here only that it does not wait for TensorFlow.
    assert first["t"] - launched < 2
    gputui("stop", run.id)
    ended(run)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
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


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_a_preset_file_in_the_current_folder_and_a_run_that_outlives_its_terminal(tmp_path: Path, ran: Ran) -> None:
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
    assert "running" in ran("runs")[1]
    assert ran("stop", run.id)[0] == 0
    result = ended(run)
    assert result["outcome"] == "stopped"
    # A stop writes a checkpoint of the very step, and evaluates nothing more.
    assert run.file(f"checkpoints/step-{result['steps']:010d}").is_dir()
    assert ran("stop", run.id)[0] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
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


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.nightly
def test_a_limit_of_memory_ends_a_run_with_words(tmp_path: Path) -> None:
    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (9 * 10**9, 9 * 10**9))

    (tmp_path / "wide.yaml").write_text(WIDE)
    (tmp_path / "wide.py").write_text(WIDE_CODE)
    starved = gputui("--preset", str(tmp_path / "wide.yaml"), preexec_fn=limit_memory)
    assert starved.returncode == 3
    assert "out of memory at batch size 1024" in starved.stdout
    assert "input.batch_size=512" in starved.stderr
    run = runs.find("latest")
    assert run.state == "oom"
    summary = run.result or {}
    assert 300 * 2**20 < summary["peak_process_bytes"] < summary["peak_address_space_bytes"] <= 9 * 10**9


def losses_by_epoch(run: Run) -> dict[int, dict[str, float]]:
    """The metrics of each epoch, as they were told last."""
    return {event["epoch"]: event["metrics"] for event in happened(run, "epoch")}


def kill_and_resume(run: Run, who: str, stands_still: Path, ran: Ran) -> None:
    """Kill a process of it while it stands still, and resume it."""
    reached = stands_still.with_suffix(".reached")
    until(lambda: reached.exists() or step(run) > 2 * KILLED[who])  # that far only where the trainer is not forked
    kill(run, who)
    until(lambda: not run.alive(who))
    stands_still.unlink()
    until(lambda: not run.alive("engine") and not run.alive("trainer"))
    assert run.state == "crashed"
    if who == "engine":
        assert "the engine of this run was killed" in (run.result or {})["error"]["message"]
    if who == "trainer":
        assert (run.result or {})["peak_process_bytes"] > 300 * 2**20, "told by the engine"
        assert (run.result or {})["measured_steps"] is None, "the trainer's clock has died with it"
    assert run.state in next(line for line in ran("runs")[1].splitlines() if line.startswith(f"{run.name} "))
    starts, ended_at = len(happened(run, "started")), (run.result or {})["steps"]
    reached.unlink(missing_ok=True)
    if who == "trainer":
        stands_still.write_text(str(KILLED["engine"]))
    done = gputui("resume", run.id, "--detach")
    assert done.returncode == 0, done.stderr
    started = until(lambda: happened(run, "started")[starts:])
    resumed_at = started[0]["resumed_at_step"]
    if who == "trainer":
        assert resumed_at % STEPS_PER_EPOCH != 0, "the test means to resume in mid-epoch"
    else:
        assert resumed_at == ended_at, "the trainer has written a checkpoint where it has ended itself"


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_a_run_that_is_killed_and_resumed_goes_on_to_the_same_losses(
    forks: Forks, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands_still, planted = tmp_path / "stands_still", tmp_path / "planted.py"
    stands_still.write_text(str(KILLED["trainer"]))
    planted.write_text(STANDS_STILL.format(at=str(stands_still)))
    undisturbed, trainer = trainer_of(presets.resolve("quickstart", EXACT))
    forks.run(trainer)
    monkeypatch.setenv("GPUTUI_TEST_PLANT", str(planted))
    run = detached("--preset", "quickstart", *(word for setting in EXACT for word in ("--set", setting)))
    for who in KILLED:
        kill_and_resume(run, who, stands_still, ran)
    assert ended(run)["outcome"] == "ok"
    assert ran("resume", run.id)[0] == 2
    assert losses_by_epoch(run) == losses_by_epoch(undisturbed)
    assert len(losses_by_epoch(run)) == 2


# ---- clocks --------------------------------------------------------------------------------------


# In every process that is started with it: the wall clock jumps to and fro, as on a machine whose clock is set.
JUMPING = """
import time
_wall = time.time
def jumping():
    return _wall() + (0, 3600, -3600, 1)[int(_wall() / 0.7) % 4]
time.time = jumping
"""


def test_what_is_resumed_after_the_clock_was_set_back_goes_on_from_its_last_date(stand_in: None) -> None:
    run = training()
    runs.request_stop(run)
    until(lambda: not run.alive("engine"))
    with run.file("events.jsonl").open("a") as stream:
        stream.write('{"t":%f,"type":"phase","phase":"ended","run":"x"}\n' % (time.time() + 3600))
    last = run.last_date()
    kept(resuming.resume(run))
    until(lambda: run.state == "running" and run.status["phase"] == "training")
    assert until(lambda: happened(run, "host"))[-1]["t"] >= last
    runs.request_stop(run)


def test_max_minutes_is_measured_by_a_clock_that_nobody_sets(stand_in: None, tmp_path: Path) -> None:
    custom = tmp_path / "standing-in" / "sitecustomize.py"
    custom.write_text(JUMPING + custom.read_text())
    begin = time.monotonic()
    run, engine = launch.start(presets.resolve("quickstart", ["max_minutes=0.05"]))
    kept(engine)
    engine.wait(60)  # an hour by a clock that jumps
    assert 3 <= time.monotonic() - begin < 30, "0.05 minutes; engine and trainer take their time to start and to end"
    assert run.result == {"outcome": "timeout"}, "its trainer was asked to end, and not killed"


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.nightly
def test_a_training_whose_clock_jumps_tells_true_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(JUMPING)
    monkeypatch.setenv("GPUTUI_TEST_PLANT", str(tmp_path / "sitecustomize.py"))
    begin = time.monotonic()
    settings = (*SMALL, "epochs=2", "max_minutes=20")
    words = [word for setting in settings for word in ("--set", setting)]
    done = gputui("--preset", "quickstart", *words, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    took = time.monotonic() - begin
    assert done.returncode == 0, done.stdout + done.stderr
    run = runs.all_runs()[0]
    result = run.result
    assert result is not None
    assert 0 < result["startup_seconds"] < result["seconds"] < took
    assert 0 < result["goodput"] < 1
    assert 0 <= result["input_wait"] <= 1
    assert all(0 < epoch["seconds"] < took for epoch in happened(run, "epoch"))
    dates = [event["t"] for event in happened(run, "phase", "epoch", "progress")]
    assert dates == sorted(dates)
    assert dates[-1] - dates[0] < took


def test_a_run_begins_when_it_is_started_also_by_a_warm_engine_that_is_not_ready() -> None:
    warm = launch.Warm()
    begin = time.time()
    run, engine = warm.start(presets.resolve("quickstart", [*SMALL, "epochs=1"]))
    asked = time.time()
    result = ended(run)
    engine.wait(60)
    assert any("cuda" in line.lower() or "onednn" in line.lower() for line in run.log_tail(50)), "the run has its log"
    at = {event["phase"]: event["t"] for event in happened(run, "phase")}
    assert at["building"] - asked < result["startup_seconds"] < at["training"] - begin, "TensorFlow's import included"
    (epoch,), (finished,) = happened(run, "epoch"), happened(run, "finished")
    assert epoch["t"] - asked < result["seconds"] < finished["t"] - begin
    feed = RunReader(run)
    while not feed.ended:
        feed.poll()
    assert feed.picture.snapshot.elapsed == pytest.approx(result["seconds"], abs=0.5)


# ---- engines that wait for a run -----------------------------------------------------------------


def stopped(run: Run) -> None:
    """Ask it to stop, and wait until it has."""
    runs.request_stop(run)
    until(lambda: not run.alive("engine"))


def test_a_warm_trainer_that_was_killed_is_replaced(stand_in: None) -> None:
    warm = launch.Warm()
    (waiting,) = until(lambda: psutil.Process(warm.process.pid).children())
    until(lambda: "--warm" in waiting.cmdline())
    waiting.kill()
    until(lambda: waiting.status() == psutil.STATUS_ZOMBIE)  # until then it could still be given the run
    run, engine = warm.start(presets.resolve("quickstart"))
    kept(engine)
    until(lambda: run.status.get("phase") == "training")
    assert engine.pid == run.status["engine_pid"]
    assert any("a new one is started" in line for line in run.log_tail())
    stopped(run)
    engine.wait(60)


def test_a_warm_engine_takes_one_run_and_one_that_nobody_wants_goes(stand_in: None) -> None:
    unwanted, warm = launch.Warm(), launch.Warm()
    waiting = warm.process.pid
    unwanted.close()
    (run, engine), (again, cold) = (warm.start(presets.resolve("quickstart")) for _ in range(2))
    for one, of_it in ((run, engine), (again, cold)):  # the warm engine is taken: a cold one starts
        kept(of_it)
        until(lambda: one.status.get("phase") == "training")  # noqa: B023
        assert of_it.pid == one.status["engine_pid"]
        stopped(one)
        of_it.wait(60)
    assert engine.pid == waiting != cold.pid
    unwanted.process.wait(60)
