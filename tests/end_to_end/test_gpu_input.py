"""How batches come to GPUs, on stand-ins for two of them: ahead of their steps, with the same results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import gpu_input
from tests.support.fakegpu import FakeGpu

pytest_plugins = ("tests.support.fakegpu.fixture",)

pytestmark = pytest.mark.timeout(600)  # one process trains for all of them


@pytest.fixture(scope="module")
def told(fakegpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process that trains on GPUs has found; it does so once for all tests here."""
    parts = ("memory", "ahead", "ways", "micro_batches", "first_convolution")
    return gpu_input.told(fakegpu, tmp_path_factory.mktemp("trained"), *parts, settings="conv_scratch=128")


def test_how_batches_come_to_the_gpu_makes_no_difference_to_the_result(told: dict[str, Any]) -> None:
    for name, (one, other) in told["ways"].items():
        assert len(one) > 1
        assert other == pytest.approx(one, rel=1e-6), name


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_a_slow_copy_in_each_step_is_reported_and_gone_when_batches_are_copied_ahead(
    fakegpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The copy of a batch of floats (16 KiB) to a GPU takes 20 ms, a kernel 0.2 ms."""
    slow = "kernel_us=200;copy_gbs=0.0008"
    told = gpu_input.told(fakegpu, tmp_path_factory.mktemp("slow"), "copying", settings=slow)
    within, of_bytes, ahead = (told["copying"][name] for name in ("within", "bytes", "ahead"))
    assert (within["kind"], of_bytes["kind"]) == ("float32", "uint8")
    assert (within["device_batches"], ahead["device_batches"]) == (0, 2)
    assert within["transfer"] > 0.2
    assert within["diagnosis"]["verdict"] == "transfer_bound"
    assert within["diagnosis"]["remedies"][0]["changes"] == {"input.prefetch_to_device": "auto"}
    assert of_bytes["transfer"] * of_bytes["step_ms"]["p50"] < 0.5 * within["transfer"] * within["step_ms"]["p50"]
    assert ahead["step_ms"]["p50"] < within["step_ms"]["p50"]


def test_only_the_clock_of_a_sample_keeps_the_host_from_running_ahead_of_the_gpu(told: dict[str, Any]) -> None:
    """Of a GPU that ends nothing: two batches wait there, and two steps are handed over."""
    assert told["ahead"]["plain"] >= 2
    assert told["ahead"]["clocked"] <= 1


def test_validation_holds_one_batch_ahead_on_the_gpu_and_training_two(told: dict[str, Any]) -> None:
    for kind in ("single", "mirrored"):
        assert told["memory"][f"{kind} training"] == 1 + 2, told["memory"]
        assert told["memory"][f"{kind} validation"] == 1 + 1, told["memory"]


def test_a_copy_that_does_not_fit_on_the_gpu_has_no_time_and_does_not_end_the_training(told: dict[str, Any]) -> None:
    assert told["memory"]["seconds"] is None


def test_only_one_part_of_a_batch_is_in_the_gpus_memory(told: dict[str, Any]) -> None:
    assert len(told["micro_batches"]) == 4
    for name, (whole, peak) in told["micro_batches"].items():
        assert peak < 1.3 * whole / 4, (name, whole, peak)


def test_what_cudnn_takes_to_choose_its_algorithms_is_no_part_of_the_peak(told: dict[str, Any]) -> None:
    found = told["first_convolution"]
    result, (first, *later) = found["result"], found["allocator"]
    assert result["first_step_memory_bytes"] > 128 * 2**20 > 2 * result["peak_memory_bytes"]
    assert first["first_step"]
    assert later
    for event in later:
        assert not event["first_step"]
        assert event["devices"]["GPU:0"]["peak_bytes"] <= result["peak_memory_bytes"]
    assert found["memory_peak"] < 0.5, "of the first step it is 0.8"
