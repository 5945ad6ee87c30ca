"""Times of steps: what is measured for how long, and what the time of a step is spent on."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.doors.trainer import Devices, StepClock, progress_reports
from tests.support.training import Build, Training, built, options, source_of, with_source

TINY = ("model=mlp", "width=0.05", "optimizer=sgd", "batch_size=32", "validation_split=0", "epochs=1")
ENDLESS = (*TINY, "steps_per_epoch=1000000")


def result(training: Training) -> dict[str, Any]:
    training.loop.built.report.finish("ok", 0)
    return dict(training.run.result or {})


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize(
    "settings", [(), ("strategy.kind=mirrored", "steps_per_execution=3"), ("deterministic_order=off",)], ids=" ".join
)
def test_measure_seconds_ends_the_run_as_done_after_that_time(settings: tuple[str, ...], build: Build) -> None:
    training = build(*ENDLESS, "measure_seconds=0.5", *settings).train()
    told = result(training)
    assert told["outcome"] == "ok"
    assert 0.5 <= told["measured_seconds"] < 0.8
    assert training.loop.step == told["steps"] == told["measured_steps"] + warm_steps(training)
    assert told["metrics"]["loss"] is not None
    assert told["global_batch_size"] == training.pipeline.global_batch_size
    assert not training.events("epoch")


def warm_steps(training: Training) -> int:
    """Whole executions of the warm-up; the first is never measured."""
    together = training.loop.built.options.compile.steps_per_execution
    return max(2, math.ceil(training.loop.built.report.speed.clock.warmup / together)) * together


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_what_is_measured_with_a_cache_comes_from_the_cache(build: Build) -> None:
    slow = ("data=synthetic", "shape=[4]", "samples=320", "batch_size=8", "shuffle=off", "parallel_calls=off")
    training = build(*ENDLESS, *slow, "cache=memory", "measure_seconds=0.3")
    source = source_of(training.pipeline)
    assert source.load is not None
    planted = dataclasses.replace(source, load=_sleeping(source.load, 0.003))
    training.loop.built.pipeline = with_source(training.pipeline, planted)
    told = result(training.train())
    assert training.loop.built.report.speed.clock.warmup == 40  # a pass
    assert told["step_ms"]["p50"] < 8 * 3  # a step that waits for its samples takes longer
    assert told["steps"] > 40


def _sleeping(load: Any, seconds: float, slept: list[float] | None = None) -> Any:
    """`load`, which sleeps before each sample; how long it really was is noted."""

    def sleep(index: np.int64) -> np.int64:
        began = time.perf_counter()
        time.sleep(seconds)
        if slept is not None:
            slept.append(time.perf_counter() - began)
        return index

    def slow(index: Any) -> Any:
        number = tf.numpy_function(sleep, [index], tf.int64)
        number.set_shape([])
        return load(number)

    return slow


def test_the_pass_that_fills_a_cache_in_a_folder_is_not_measured(build: Build, tmp_path: Path) -> None:
    settings = ("steps_per_epoch=300", "batch_size=8", f"cache={tmp_path / 'cache'}", "measure_seconds=0.05")
    training = build(*TINY, *settings).train()
    assert training.loop.built.report.speed.clock.warmup == training.pipeline.batches_per_pass == 225


# ---- what the time is spent on ----------------------------------------------------------------


def planted_between(training: Training, seconds: float, slept: list[float]) -> Training:
    """Python that takes so long after each execution."""
    after = training.loop.parts.after

    def slow(count: int, logs: Any, samples: Any) -> None:
        after(count, logs, samples)
        began = time.perf_counter()
        time.sleep(seconds)
        slept.append(time.perf_counter() - began)

    training.loop.parts.after = slow  # type: ignore[method-assign,assignment]
    return training


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_input_wait_and_python_are_told_apart(
    kind: str, tmp_path: Path, cpus: Devices, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The way of measuring that a GPU needs is the same on a CPU, which only is never behind.
    data = ("data=synthetic", "shape=[4]", "samples=4000", "batch_size=10", "parallel_calls=off", "prefetch=off")
    wanted = options(*ENDLESS, *data, "measure_seconds=1")
    training = built(tmp_path / kind, dataclasses.replace(cpus, kind=kind), wanted)
    monkeypatch.setattr(progress_reports, "PULSE_SECONDS", 0.1)
    source = source_of(training.pipeline)
    assert source.load is not None
    loading: list[float] = []
    between: list[float] = []
    planted = dataclasses.replace(source, load=_sleeping(source.load, 0.002, loading))
    training.loop.built.pipeline = with_source(training.pipeline, planted)
    told = result(planted_between(training, 0.02, between).train())
    training.loop.built.report.writer.close()
    steps, measured = told["measured_steps"], told["measured_seconds"]  # the last of all
    assert 0 < told["input_wait"] - sum(loading[-10 * steps :]) / measured < 0.2  # and what else loading takes
    assert -0.02 < told["python_share"] - sum(between[-steps:]) / measured < 0.2
    if kind == "CPU":  # where the wait is counted, not sampled
        assert told["input_wait"] + told["python_share"] <= 1


def test_the_time_of_writing_a_checkpoint_is_no_time_of_a_step(build: Build) -> None:
    training = build(*TINY, "steps_per_epoch=60", "checkpoint=7")
    checkpoints = training.loop.built.checkpoints
    save = checkpoints.save

    def slow(step: int) -> None:
        time.sleep(0.4)
        save(step)

    checkpoints.save = slow  # type: ignore[method-assign]
    told = result(training.train())
    assert told["measured_seconds"] < 1.2  # of 48 steps; the 6 checkpoints that are written in them take 2.4 s


def fed(clock: StepClock, *steps: tuple[float, int], begin: float = 100.0) -> StepClock:
    """Executions one after another, each (seconds, steps)."""
    now = begin
    for seconds, count in steps:
        clock.mark(now, count)
        now += seconds
    clock.pause(now)
    return clock


def test_the_first_execution_is_left_out_however_long_it_took() -> None:
    clock = fed(StepClock(warmup=0), (60.0, 1), (0.1, 1), (0.1, 1))
    assert clock.overall_ms() == pytest.approx((100, 100))
    assert clock.measured_steps == 2
    assert clock.step_seconds_total == pytest.approx(0.2)


def test_the_warm_up_is_left_out_of_the_figures_but_not_of_the_total() -> None:
    clock = fed(StepClock(warmup=3), (9.0, 1), (5.0, 1), (5.0, 1), (0.1, 1), (0.1, 1))
    assert clock.overall_ms() == pytest.approx((100, 100))
    assert clock.measured_seconds == pytest.approx(0.2)
    assert clock.step_seconds_total == pytest.approx(10.2)


def test_an_execution_of_several_steps_counts_as_several() -> None:
    clock = fed(StepClock(warmup=1), (9.0, 10), (1.0, 10), (1.0, 10))
    assert clock.overall_ms() == pytest.approx((100, 100))
    assert clock.measured_steps == 20


def test_the_95th_percentile_is_the_time_that_one_step_in_twenty_exceeds() -> None:
    clock = fed(StepClock(warmup=0), (9.0, 1), *((step / 1000, 1) for step in range(100, 201)))
    assert clock.overall_ms() == pytest.approx((150, 195))


def test_pauses_between_executions_are_nobodys_step_time() -> None:
    clock = fed(StepClock(warmup=0), (1.0, 1), (0.1, 1))
    fed(clock, (0.1, 1), (0.1, 1), begin=5000.0)
    assert clock.overall_ms() == pytest.approx((100, 100))
    assert clock.measured_seconds == pytest.approx(0.3)
    clock.pause(9000.0)
    assert clock.measured_seconds == pytest.approx(0.3)
