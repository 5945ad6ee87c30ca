"""How long a training is measured for, and what the time of its steps is spent on."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.trainer.measure import progress_reports
from gputui.engine.trainer.setup.devices import Devices

from tests.support.training import Build, Training, built, options

TINY = ("model=mlp", "width=0.05", "optimizer=sgd", "batch_size=32", "validation_split=0", "epochs=1")
ENDLESS = (*TINY, "steps_per_epoch=1000000")


def result(training: Training) -> dict[str, Any]:
    training.loop.built.report.finish("ok", 0)
    return dict(training.run.result or {})


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize(
    "settings",
    [(), ("strategy.kind=mirrored", "steps_per_execution=3"), ("deterministic_order=off",)],
    ids=" ".join,
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


def test_measure_seconds_goes_on_over_epochs_and_their_evaluations(build: Build) -> None:
    settings = ("epochs=100000", "steps_per_epoch=5", "validation_split=0.1", "measure_seconds=0.2")
    training = build(*TINY, *settings).train()
    told = result(training)
    assert told["measured_seconds"] >= 0.2
    assert told["measured_steps"] > 5
    epochs, phases = training.events("epoch"), [event["phase"] for event in training.events("phase")]
    assert len(epochs) > 1
    assert all("val_loss" in epoch["metrics"] for epoch in epochs)
    assert phases.count("evaluating") >= len(epochs)


def test_a_run_that_is_over_before_ends_as_ever(build: Build) -> None:
    training = build(*TINY, "steps_per_epoch=30", "measure_seconds=1000").train()
    assert training.loop.step == 30
    assert training.events("epoch")


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_what_is_measured_with_a_cache_comes_from_the_cache(build: Build) -> None:
    slow = ("data=synthetic", "shape=[4]", "samples=320", "batch_size=8", "shuffle=off", "parallel_calls=off")
    training = build(*ENDLESS, *slow, "cache=memory", "measure_seconds=0.3")
    source = training.pipeline.source
    assert source.load is not None
    training.loop.built.pipeline = dataclasses.replace(
        training.pipeline, source=dataclasses.replace(source, load=_sleeping(source.load, 0.003))
    )
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


def test_the_pass_that_fills_a_cache_is_not_waited_for_where_nothing_is_cached_or_measured(build: Build) -> None:
    def warmup(*settings: str) -> int:
        training = build(*TINY, "steps_per_epoch=200", "batch_size=8", *settings).train()
        return training.loop.built.report.speed.clock.warmup

    assert warmup("cache=memory") == warmup("measure_seconds=0.05") == 20
    assert warmup("cache=memory", "measure_seconds=0.05", "one_batch=true") == 20


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


def timed_calls(training: Training, calls: list[float]) -> Training:
    """How long each call of the steps' graph takes is noted."""
    run_steps = training.loop.executions.run_steps

    def timed(*arguments: Any) -> Any:
        began = time.perf_counter()
        logs = run_steps(*arguments)
        calls.append(time.perf_counter() - began)
        return logs

    training.loop.executions.run_steps = timed
    return training


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_python_between_executions_is_told_as_its_share_of_the_time(build: Build) -> None:
    slept: list[float] = []
    calls: list[float] = []
    settings = (*ENDLESS, "steps_per_execution=3", "measure_seconds=1", "strategy.kind=mirrored")
    training = planted_between(timed_calls(build(*settings), calls), 0.05, slept).train()
    told = result(training)
    executions, measured = told["measured_steps"] // 3, told["measured_seconds"]
    assert executions < len(slept) == len(calls)
    between = 1 - sum(calls[-executions:]) / measured  # the last executions are those that were measured
    assert sum(slept[-executions:]) / measured < between + 0.01
    assert -0.01 < told["python_share"] - between < 0.1  # and the way into the graph
    shares = [event["python_share"] for event in training.events("progress") if event["python_share"] is not None]
    assert statistics.mean(shares) == pytest.approx(told["python_share"], abs=0.1)


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_many_steps_in_one_execution_leave_little_to_python(build: Build) -> None:
    one = result(build(*ENDLESS, "measure_seconds=0.5").train())["python_share"]
    many = result(build(*ENDLESS, "measure_seconds=0.5", "steps_per_execution=50").train())["python_share"]
    assert one > 0.15
    assert many < one / 3


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
    source = training.pipeline.source
    assert source.load is not None
    loading: list[float] = []
    between: list[float] = []
    planted = dataclasses.replace(source, load=_sleeping(source.load, 0.002, loading))
    training.loop.built.pipeline = dataclasses.replace(training.pipeline, source=planted)
    told = result(planted_between(training, 0.02, between).train())
    training.loop.built.report.writer.close()
    steps, measured = told["measured_steps"], told["measured_seconds"]  # the last of all
    assert 0 < told["input_wait"] - sum(loading[-10 * steps :]) / measured < 0.2  # and what else loading takes
    assert -0.02 < told["python_share"] - sum(between[-steps:]) / measured < 0.2
    if kind == "CPU":  # where the wait is counted, not sampled
        assert told["input_wait"] + told["python_share"] <= 1


def test_where_operations_must_be_deterministic_there_is_no_reading(build: Build) -> None:
    training = build(*ENDLESS, "measure_seconds=0.2")
    training.loop.parts.clock.counts = False
    assert training.loop.parts.totals() == (None, None)


def test_the_time_of_writing_a_checkpoint_is_no_time_of_a_step(build: Build) -> None:
    training = build(*TINY, "steps_per_epoch=60", "checkpoint=7")
    saver = training.loop._saver
    save = saver._checkpoints.save

    def slow(step: int) -> None:
        time.sleep(0.4)
        save(step)

    saver._checkpoints.save = slow  # type: ignore[method-assign]
    told = result(training.train())
    assert told["measured_seconds"] < 1.2  # of 48 steps; the 6 checkpoints that are written in them take 2.4 s
