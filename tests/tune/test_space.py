"""What a search tries on a machine, within the limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputui.engine import presets
from gputui.engine.job.machine_gpus import Gpu
from gputui.engine.trials.search_record import Limits
from gputui.engine.tune.candidates.search_space import Space

from tests.support.proving import HERE, started

GPUS = tuple(Gpu(index, f"GPU-{index}", "NVIDIA A100", (8, 0), 40 * 2**30) for index in (0, 1))


def space(*, gpus: bool = True, **limits: Any) -> Space:
    """Of 1000 samples, on two GPUs or none."""
    built = started(presets.resolve("quickstart").options, 32)
    there = replace(HERE, gpus=GPUS) if gpus else HERE
    return Space(Limits(**limits), there, replace(built, compute_capability=(8, 0) if gpus else None))


def test_the_values_that_are_tried_fit_the_devices() -> None:
    preset = presets.resolve("quickstart", ["batch_size=32", "xla=auto", "cache=off"])
    on_gpus, on_cpu = space(), space(gpus=False)
    policies = ["mixed_float16", "mixed_bfloat16"]
    assert [tried["precision.policy"] for tried in on_gpus.of("precision", preset)] == policies
    assert space(avoid_precisions=["mixed_float16"]).of("precision", preset) == [{"precision.policy": policies[1]}]
    assert space(gpus=False, avoid_precisions=["float32"]).of("precision", preset) == []
    assert space(precisions=["mixed_float16"], gpus=False).of("precision", preset) == [
        {"precision.policy": "mixed_float16"}
    ], "it is asked for"
    assert not any("input.parallel_reads" in tried for tried in on_cpu.of("input", preset))
    records = presets.resolve("quickstart", ["data=tfrecord:here", "parallel_reads=off"])
    assert {"input.parallel_reads": "auto"} in on_cpu.of("input", records)
    assert on_cpu.of("precision", preset) == []  # this CPU has no instructions for bfloat16
    assert on_cpu.of("strategy", preset) == []
    assert on_gpus.of("strategy", preset) == [{"strategy.kind": "mirrored"}]
    assert on_gpus.of("threads", preset) == [{"device.gpu_thread_mode": "gpu_private"}]
    assert {"input.cache": "memory"} in on_cpu.of("input", preset)
    steps = [tried["compile.steps_per_execution"] for tried in on_cpu.of("steps_per_execution", preset)]
    assert steps == [4, 16, 31]  # as many as a pass has
    assert on_gpus.of(
        "steps_per_execution", presets.resolve("quickstart", ["batch_size=32", "strategy.kind=mirrored"])
    ) == [{"compile.steps_per_execution": count} for count in (4, 15)], "a step takes the samples of both GPUs"
    short = presets.resolve("quickstart", ["batch_size=32", "steps_per_epoch=10"])
    assert [tried["compile.steps_per_execution"] for tried in on_cpu.of("steps_per_execution", short)] == [4, 10]


def test_the_global_batch_stays_within_its_limit_on_several_gpus() -> None:
    preset = presets.resolve("quickstart", ["batch_size=64"])
    assert space().most_batch(preset) == 100  # a pass keeps ten steps
    assert space().of("strategy", preset) == [{"strategy.kind": "mirrored", "input.batch_size": 50}]
    assert space(largest_batch=200).of("strategy", preset) == [{"strategy.kind": "mirrored"}]


def test_what_is_left_alone_or_without_effect_is_not_tried() -> None:
    preset = presets.resolve("quickstart", ["cache=off"])
    assert space(leave=["compile.xla"]).of("xla", preset) == []
    own = space()
    without = replace(own, started=replace(own.started, inapplicable={"input.cache": "your code reads its data"}))
    assert all("input.cache" not in tried for tried in without.of("input", preset))


def test_the_limit_of_the_global_batch_is_shared_out_among_replicas() -> None:
    single = presets.resolve("quickstart")
    mirrored = presets.resolve("quickstart", ["strategy.kind=mirrored"])
    for preset, most in ((single, 200), (mirrored, 100)):
        assert space(largest_batch=200).most_batch(preset) == most
        assert space(largest_batch=200).most_samples(preset) == most
