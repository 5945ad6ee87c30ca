"""What is proposed against a verdict, and from which figures on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.doors.engine import BATCHED, ORDER, Diagnosis, Remedy, diagnose, diagnosis_remedies
from tests.doors.engine import diagnosis_remedies as making
from tests.doors.engine import verdict_remedies as remedies
from tests.support.judged import STAGES, gpu, measured, waits


def _changes(found: Diagnosis) -> list[dict[str, Any]]:
    return [dict(remedy["changes"]) for remedy in found.remedies if remedy["changes"]]


def test_remedies_of_an_input_that_does_nothing_ahead() -> None:
    changes = {"input.cache": "off", "input.parallel_calls": "off", "input.prefetch": "off"}
    found = diagnose(measured(changes, **waits(0.6), stages=STAGES))
    assert _changes(found) == [{"input.cache": "memory"}, {"input.parallel_calls": "auto"}, {"input.prefetch": "auto"}]
    cache, parallel, prefetch = (remedy["expected_gain"] for remedy in found.remedies)
    assert cache == parallel == pytest.approx(1 / (1 - 0.6), abs=0.01)
    assert prefetch == pytest.approx(1 / (1 - 0.4), abs=0.01)


def test_an_input_that_has_the_cpus_of_one_node_is_offered_the_others() -> None:
    used = {"input.cache": "memory", "input.parallel_calls": "auto", "input.prefetch": "auto"}
    for numa, expected in (("on CPUs 0-55, the node of GPU 0", [{"device.numa": "off"}]), ("device.numa is off", [{}])):
        found = diagnose(gpu(used, **waits(0.6), stages=STAGES, numa=numa))
        assert [remedy["changes"] for remedy in found.remedies if remedy["step"] == "input"] == expected, numa


@pytest.mark.parametrize(
    ("changes", "proposed"),
    [
        ({"workload.data": "images:/data"}, True),
        ({"workload.data": "tfrecord:/data/*", "workload.tfrecord_encoding": "uint8"}, False),
        ({"workload.data": "images:/data", "input.cache": "memory"}, False),
        ({"workload.data": "images:/data", "train.epochs": 1}, False),
        ({"workload.entry": "train.py:build"}, True),
    ],
    ids=str,
)
def test_data_that_is_decoded_in_each_epoch_is_offered_to_be_prepared(changes: dict[str, Any], proposed: bool) -> None:
    found = diagnose(measured({"input.cache": "off"} | changes, **waits(0.6), stages=STAGES))
    reasons = [remedy["reason"] for remedy in found.remedies if "gputui prepare" in remedy["reason"]]
    assert len(reasons) == proposed
    assert all("again (40.1 ms per batch); gputui prepare --preset" in reason for reason in reasons)


def test_where_no_option_is_left_the_slowest_stage_is_named_with_advice() -> None:
    used = {"input.cache": "memory", "input.parallel_calls": "auto", "input.prefetch": "auto"}
    own = ({"name": "interleave", "ms_per_batch": 3.0},)
    for stages, words in (
        (STAGES, "load (40 ms per batch): store"),
        (own, "(3 ms per batch): make its work"),
        ((), "do it once and save the result"),
    ):
        found = diagnose(measured(used, **waits(0.7), stages=stages, cpu=0.97))
        (advice,) = found.remedies
        assert advice["changes"] == {}
        assert advice["reason"].startswith("all CPU cores are busy; no option is left")
        assert words in advice["reason"]
    (advice,) = diagnose(measured(used, **waits(0.7), cpu=0.97, others_cpu=0.08)).remedies
    assert advice["reason"].startswith("no option is left"), "the training itself does not use all cores"
    batched = {"input.parallel_calls": BATCHED, "input.cache": BATCHED}
    slow = ({"name": "Map of load (train.py:12)", "ms_per_batch": 30.0},)
    figures: dict[str, Any] = {**waits(0.7), "cpu": 0.99, "others_cpu": 0.84, "inapplicable": batched}
    (advice,) = diagnose(measured(stages=slow, **figures)).remedies
    reason = "other programs use 84 % of the CPU; the slowest stage of your pipeline is Map of load (train.py:12)"
    assert advice["reason"].startswith(f"{reason} (30 ms per batch): make its work cheaper, or return single samples")
    weaker = diagnose(measured(used, input_wait=0.07, python_share=0.5, compute_share=0.43))
    assert (weaker.verdict, weaker.others) == ("python_overhead", ["input_bound"])
    assert "input" not in {remedy["step"] for remedy in weaker.remedies}


def test_a_cache_that_does_not_fit_is_advice() -> None:
    found = diagnose(measured({"input.cache": "off"}, **waits(0.6), stages=STAGES, host_memory_free_bytes=10**7))
    assert {"input.cache": "memory"} not in _changes(found)
    assert any(not remedy["changes"] and "do not fit" in remedy["reason"] for remedy in found.remedies)


def test_a_gpu_with_too_little_to_do_gets_xla_first_and_several_steps_last() -> None:
    threads = {"device.gpu_thread_mode": "gpu_private"}
    batch, steps, xla = {"input.batch_size": 128}, {"compile.steps_per_execution": 16}, {"compile.xla": True}
    off: dict[str, Any] = {"jit_compile": False, "xla_reason": "strategy.kind is mirrored: Keras compiles nothing"}
    low: dict[str, Any] = {"busy_mean": 0.3, "busy_p95": 0.4}
    for figures, expected in (
        (low | off, [xla, batch, threads, steps]),
        ({"sm_active": 0.2} | off, [xla, batch, steps]),
        (low | {"jit_compile": True}, [batch, threads, steps]),
        (low | {"jit_compile": False, "xla_reason": "XLA cannot compile StringLookup"}, [batch, threads, steps]),
        # 5090: XLA of a TensorFlow that was built with CUDA 12.5 ends the process there.
        (low | off | {"newest_capability": (12, 0)}, [batch, threads, steps]),
        (low | off | {"memory_peak": 0.6}, [xla, threads, steps]),
    ):
        found = diagnose(gpu(**figures))
        assert (found.verdict, _changes(found)) == ("underfilled", expected), figures
    told = diagnose(gpu(**low, **off)).remedies[0]["reason"]
    assert "auto leaves it off here: strategy.kind is mirrored" in told
    assert "auto" not in diagnose(gpu({"compile.xla": False}, **low, **off)).remedies[0]["reason"]


def test_copies_through_the_host_are_tried_only_where_nothing_passes_over_nvlink() -> None:
    copies = {"strategy.communication": "reduction_to_one_device"}
    for nvlink, proposed in ((False, True), (True, False), (None, False)):
        found = diagnose(gpu({"strategy.kind": "mirrored"}, gpus=4, communication=0.3, nvlink=nvlink))
        assert found.verdict == "communication_bound"
        assert (copies in _changes(found)) == proposed, nvlink
        advice = [remedy["reason"] for remedy in found.remedies if not remedy["changes"]]
        assert any("NCCL_DEBUG=INFO" in reason for reason in advice)


def test_remedies_come_in_the_order_of_the_guide_and_each_once() -> None:
    found = remedies(gpu({"input.prefetch": "off"}, idle_gpus=3), ["compute_bound", "underfilled", "input_bound"])
    steps = [ORDER.index(remedy.step) for remedy in found]
    assert steps == sorted(steps)
    changes = [json.dumps(dict(remedy.changes)) for remedy in found if remedy.changes]
    assert len(changes) == len(set(changes)) >= 5


def test_tfrecord_files_are_read_several_at_once_where_reading_takes_the_time() -> None:
    stages = ({"name": "read", "ms_per_batch": 30.0}, {"name": "load", "ms_per_batch": 3.0})
    used = {"input.cache": "memory", "input.parallel_calls": "auto", "input.prefetch": "auto"}
    found = diagnose(measured(used | {"workload.data": "tfrecord:/data/*"}, **waits(0.6), stages=stages))
    assert _changes(found) == [{"input.parallel_reads": "auto"}]
    assert found.remedies[0]["expected_gain"] == pytest.approx(2.5)
    assert found.remedies[0]["changes_learning"]
    at_once = used | {"workload.data": "tfrecord:/data/*", "input.parallel_reads": "auto"}
    for changes in (at_once, used | {"workload.data": "images:/data"}):
        assert _changes(diagnose(measured(changes, **waits(0.6), stages=stages))) == []


def test_copies_to_the_gpu_are_made_ahead_then_smaller() -> None:
    found = diagnose(gpu(transfer=0.4))
    assert found.verdict == "transfer_bound"
    ahead, small = found.remedies[:2]
    assert (ahead["changes"], ahead["expected_gain"]) == ({"input.prefetch_to_device": "auto"}, 1.67)
    assert (small["changes"], small["expected_gain"]) == ({"input.cast": "device"}, 1.43)
    alone = diagnose(gpu({"input.prefetch": "off"}, transfer=0.4)).remedies[0]
    assert alone["changes"] == {"input.prefetch_to_device": 2}
    floats = diagnose(gpu(transfer=0.4, inapplicable={"input.cast": "the data are not bytes"})).remedies
    assert [remedy["changes"] for remedy in floats if remedy["step"] == "input"] == [
        {"input.prefetch_to_device": "auto"}, {}]  # fmt: skip


def cluster(changes: Mapping[str, Any] = {}, **figures: Any) -> list[Remedy]:
    """The remedies of a training on several machines that exchange gradients for 40 % of the time."""
    known = {
        "worker_exchange": 0.4,
        "hosts": ("h0", "h1"),
        "exchanged": "44 MB of gradients",
        "exchange_rate": "1 GB/s",
    }
    return remedies(gpu({"strategy.kind": "multi_worker", **changes}, **known | figures), ["communication_bound"])


@pytest.mark.parametrize(
    ("figures", "changes"),
    [
        ({"memory_peak": 0.45}, {"input.batch_size": 128}),
        ({"memory_peak": 0.46}, {"input.batch_size": 128, "train.micro_batches": 6}),
        ({"memory_peak": None}, {"input.batch_size": 128, "train.micro_batches": 6}),
        ({"global_batch_size": 1024}, {"input.batch_size": 128}),
        ({"global_batch_size": 1025}, None),
    ],
)
def test_workers_that_exchange_long_get_twice_the_batch_in_parts_if_it_takes_too_much_memory(
    figures: dict[str, Any], changes: dict[str, Any] | None
) -> None:
    *larger, faster = cluster({"input.batch_size": 64, "train.micro_batches": 3}, **figures)
    assert [remedy.changes for remedy in larger] == ([changes] if changes else [])
    assert faster.changes == {}
    for remedy in larger:
        assert remedy.expected_gain == 1.25, "half of 40 % is saved"
        assert remedy.changes_learning
        assert ("it needs no more memory" in remedy.reason) is ("train.micro_batches" in remedy.changes)


def _of_input(changes: Mapping[str, Any], **figures: Any) -> list[dict[str, Any]]:
    known = waits(0.6) | {"train_samples": 1000, "sample_bytes": 100, "stages": STAGES} | figures
    made = diagnosis_remedies.for_input(measured(changes, **known))
    return [dict(remedy.changes) for remedy in made if isinstance(remedy, Remedy)]


@pytest.mark.parametrize(
    ("figures", "cached"),
    [
        ({"host_memory_free_bytes": 200_000}, True),
        ({"host_memory_free_bytes": 199_999}, False),
        ({"steps_per_epoch": 16, "global_batch_size": 63}, False),
        ({"train_samples": None}, False),
    ],
)
def test_a_cache_is_proposed_for_several_passes_over_data_that_fit(figures: dict[str, Any], cached: bool) -> None:
    epochs = 1 if "steps_per_epoch" in figures else 3
    assert ({"input.cache": "memory"} in _of_input({"input.cache": "off", "train.epochs": epochs}, **figures)) is cached


@pytest.mark.parametrize(("work", "proposed"), [(5.0, True), (4.9, False)])
def test_a_stage_is_worth_a_remedy_from_a_twentieth_of_the_work_on(work: float, proposed: bool) -> None:
    stages = ({"name": "read", "ms_per_batch": work}, {"name": "batch", "ms_per_batch": 100 - work})
    changes = {"workload.data": "tfrecord:x", "input.parallel_reads": "off"}
    assert ({"input.parallel_reads": "auto"} in _of_input(changes, stages=stages)) is proposed
    stages = ({"name": "prepare", "ms_per_batch": work}, {"name": "batch", "ms_per_batch": 100 - work})
    assert ({"input.parallel_calls": "auto"} in _of_input({"input.parallel_calls": "off"}, stages=stages)) is proposed


# ---- What is proposed on both sides of each limit, with the whole of its reasons -----------------


def changes(remedies: Any) -> list[dict[str, Any]]:
    return [dict(remedy.changes) for remedy in remedies if isinstance(remedy, Remedy) and remedy.changes]


BATCH = {"input.batch_size": 128}


@pytest.mark.parametrize(
    ("options", "figures", "proposed"),
    [
        ({}, {"memory_peak": 0.45}, [BATCH]), ({}, {"memory_peak": 0.451}, []), ({}, {"memory_peak": None}, []),
        ({}, {"global_batch_size": 1024}, [BATCH]), ({}, {"global_batch_size": 1025}, []),
        ({"train.micro_batches": 2}, {}, [{"train.micro_batches": 1}]),
        ({"train.micro_batches": 2}, {"memory_peak": 0.451}, []),
    ],
)  # fmt: skip
def test_a_larger_batch_needs_memory_and_four_steps_of_data(
    options: dict[str, Any], figures: dict[str, Any], proposed: list[dict[str, Any]]
) -> None:
    made = list(making.larger_batch(gpu(options, **figures)))
    assert changes(made) == proposed
    assert [remedy.expected_gain for remedy in made] == [2.0] * len(proposed)
    assert [remedy.changes_learning for remedy in made] == ["input.batch_size" in change for change in proposed]


@pytest.mark.parametrize(
    ("options", "figures", "proposed"),
    [
        ({}, {"idle_gpus": 1}, {"device.visible": "all", "strategy.kind": "mirrored"}),
        ({"strategy.kind": "mirrored"}, {"idle_gpus": 1}, {}),
        ({"device.visible": [2]}, {"idle_gpus": 1, "given_gpus": (2, 3)},
         {"device.visible": [2, 3], "strategy.kind": "mirrored"}),
        ({}, {"idle_gpus": 1, "given_gpus": (2, 3, 4), "usable_gpus": (2, 3)},
         {"device.visible": [2, 3], "strategy.kind": "mirrored"}),
        ({}, {"idle_gpus": 1, "usable_gpus": (0, 2)}, {"device.visible": [0, 2], "strategy.kind": "mirrored"}),
    ],
)  # fmt: skip
def test_idle_gpus_are_taken_as_well_as_far_as_they_may_be(
    options: dict[str, Any], figures: dict[str, Any], proposed: dict[str, Any]
) -> None:
    made = [remedy for remedy in making.computing(gpu(options, gpus=3, **figures)) if remedy.step == "gpus"]
    expected = Remedy(
        step="gpus", changes=proposed, reason="1 more GPU(s) are idle; the global batch grows with them",
        expected_gain=4.0, changes_learning=True,
    )  # fmt: skip
    assert made == ([expected] if proposed else [])


@pytest.mark.parametrize(
    ("options", "figures", "proposed"),
    [
        ({}, {"compute_capability": (7, 0)}, [{"precision.policy": "mixed_float16"}]),
        ({}, {"compute_capability": (6, 9)}, []),
        ({}, {"compute_capability": (8, 0)}, [{"precision.policy": "mixed_bfloat16"}]),
        ({"precision.tf32": False}, {"compute_capability": (8, 0)},
         [{"precision.tf32": True}, {"precision.policy": "mixed_bfloat16"}]),
        ({"precision.tf32": False}, {"on_gpu": False, "cpu_bfloat16": True}, [{"precision.policy": "mixed_bfloat16"}]),
        ({"precision.tf32": False, "precision.policy": "mixed_float16"}, {"compute_capability": (9, 0)}, []),
    ],
)  # fmt: skip
def test_the_number_formats_that_a_device_multiplies_faster(
    options: dict[str, Any], figures: dict[str, Any], proposed: list[dict[str, Any]]
) -> None:
    made = list(making.precision(gpu(options, **figures)))
    assert changes(made) == proposed
    assert all(remedy.changes_learning for remedy in made)


@pytest.mark.parametrize(
    ("options", "figures", "reasons"),
    [
        ({"run.checkpoint": 1}, {}, ["checkpoints are written every step: write them less often"]),
        ({"run.checkpoint": 2000}, {}, ["checkpoints are written every 2,000 steps: write them less often"]),
        ({"run.checkpoint": "epoch"}, {"pauses": 0.15},
         ["evaluation takes long: lower train.validation_split, or make epochs longer"]),
        ({"run.checkpoint": "epoch"}, {"pauses": 0.149}, []),
        ({"run.checkpoint": "epoch", "train.validation_split": 0.0}, {"pauses": 0.5}, []),
    ],
)  # fmt: skip
def test_pauses_are_shortened_where_they_come_from(
    options: dict[str, Any], figures: dict[str, Any], reasons: list[str]
) -> None:
    made = making.stalls(measured({"train.validation_split": 0.1} | options, **figures))
    assert list(made) == reasons
