"""A run is dated once: clocks that are set while it goes on change no date, no duration and no limit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.process import launch, resuming
from gputui.engine.runs import Run
from gputui.engine.system.run_clock import RunClock
from gputui.tui.reading.run.reader import RunReader

from tests.support.front_door import ended, gputui, happened, until
from tests.support.standing_in import kept, stand_in, training

__all__ = ["stand_in"]

pytestmark = pytest.mark.usefixtures("nothing_left_running")

# In every process that is started with it: the wall clock jumps to and fro, as on a machine whose clock is set.
JUMPING = """
import time
_wall = time.time
def jumping():
    return _wall() + (0, 3600, -3600, 1)[int(_wall() / 0.7) % 4]
time.time = jumping
"""


def test_a_launch_is_dated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RunClock.read(RunClock.launched().as_text())
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: before + 3600)
    assert 0 <= clock.now() - before < 10
    assert 0 <= clock.elapsed() < 10


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


def test_a_training_whose_clock_jumps_tells_true_times(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(JUMPING)
    begin = time.monotonic()
    done = gputui(
        "--preset",
        "quickstart",
        "--set",
        "epochs=2",
        "--set",
        "max_minutes=20",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
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
    run, engine = warm.start(presets.resolve("quickstart", ["epochs=1"]))
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


def test_a_live_view_counts_on_whatever_the_wall_clock_says(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run = training()
    feed = RunReader(Run(run.path))
    feed.poll()
    before = feed.picture.snapshot.elapsed
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    feed.poll()
    assert before <= feed.picture.snapshot.elapsed < 60
    runs.request_stop(run)


def test_the_clocks_of_trainer_and_engine_agree(stand_in: None) -> None:
    assert re.fullmatch(r"[0-9.]+ [0-9.]+", RunClock.launched().as_text())
    code = "from gputui.engine.system.run_clock import steady; print(steady())"
    before = RunClock.launched().mark
    theirs = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert before <= theirs <= RunClock.launched().mark
