"""What is proposed on both sides of each limit, with the whole of its reasons."""

from __future__ import annotations

from typing import Any

import pytest
from gputui.engine.diagnosis import remedies as making
from gputui.engine.diagnosis import remedies_input, verdict
from gputui.engine.diagnosis.measurements import Measurements
from gputui.engine.diagnosis.remedies import Remedy

from tests.support.judged import gpu, measured, waits


@pytest.mark.parametrize(
    ("saved", "gain"), [(-0.1, None), (0.0, None), (0.05, 1.05), (0.5, 2.0), (0.98, 50.0), (0.99, None), (1.0, None)]
)
def test_the_gain_of_a_saved_share_is_a_factor(saved: float, gain: float | None) -> None:
    assert making.gain(saved) == gain


def changes(remedies: Any) -> list[dict[str, Any]]:
    return [dict(remedy.changes) for remedy in remedies if remedy.changes]


BATCH, STEPS = {"input.batch_size": 128}, {"compile.steps_per_execution": 16}


@pytest.mark.parametrize(
    ("known", "proposed"),
    [
        (gpu({"compile.steps_per_execution": 15}, python_share=0.15), [BATCH, STEPS]),
        (gpu({"compile.steps_per_execution": 15}, python_share=0.149), [STEPS]),
        (gpu({"compile.steps_per_execution": 16}, python_share=0.15), [BATCH, BATCH]),
        (gpu({"compile.steps_per_execution": 16}, python_share=0.149), []),
        (measured({"compile.steps_per_execution": 15}, python_share=0.15), [STEPS]),
        (measured({"compile.steps_per_execution": 16}, python_share=0.15), [BATCH]),
        (measured({"compile.steps_per_execution": 16}, python_share=None), []),
    ],
)
def test_python_between_steps_is_shared_by_steps_or_by_a_larger_batch(known: Measurements, proposed: Any) -> None:
    assert changes(making.python_overhead(known)) == proposed


@pytest.mark.parametrize(
    ("options", "figures", "proposed"),
    [
        ({}, {"memory_peak": 0.45}, [BATCH]),
        ({}, {"memory_peak": 0.451}, []),
        ({}, {"memory_peak": None}, []),
        ({}, {"memory_peak": None, "on_gpu": False}, [BATCH]),
        ({}, {"global_batch_size": 1024}, [BATCH]),
        ({}, {"global_batch_size": 1025}, []),
        ({}, {"train_samples": None}, []),
        ({"input.batch_size": None}, {}, []),
        ({"train.micro_batches": 2}, {}, [{"train.micro_batches": 1}]),
        ({"train.micro_batches": 3}, {"global_batch_size": 1025}, [{"train.micro_batches": 2}]),
        ({"train.micro_batches": 2}, {"memory_peak": 0.451}, []),
        ({"train.micro_batches": 1}, {}, [BATCH]),
    ],
)
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
        ({}, {"busy_mean": 0.899}, True),
        ({}, {"busy_mean": 0.9}, False),
        ({}, {"busy_mean": None}, True),
        ({"device.gpu_thread_mode": "gpu_private"}, {"busy_mean": 0.3}, False),
    ],
)
def test_kernel_launches_get_threads_of_their_own_unless_the_gpu_is_full(
    options: dict[str, Any], figures: dict[str, Any], proposed: bool
) -> None:
    made = changes(making.underfilled(gpu(options, **figures)))
    assert ({"device.gpu_thread_mode": "gpu_private"} in made) is proposed


@pytest.mark.parametrize(
    ("options", "figures", "proposed"),
    [
        ({}, {}, {}),
        ({}, {"idle_gpus": 1}, {"device.visible": "all", "strategy.kind": "mirrored"}),
        ({"strategy.kind": "mirrored"}, {"idle_gpus": 1}, {}),
        ({}, {"idle_gpus": 1, "on_gpu": False}, {}),
        ({}, {"idle_gpus": 1, "given_gpus": (2, 3)}, {"strategy.kind": "mirrored"}),
        ({"device.visible": [2]}, {"idle_gpus": 1, "given_gpus": (2, 3)},
         {"device.visible": [2, 3], "strategy.kind": "mirrored"}),
        ({}, {"idle_gpus": 1, "given_gpus": (2, 3, 4), "usable_gpus": (2, 3)},
         {"device.visible": [2, 3], "strategy.kind": "mirrored"}),
        ({}, {"idle_gpus": 1, "given_gpus": (2, 3), "usable_gpus": (2, 3)}, {"strategy.kind": "mirrored"}),
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
        ({}, {"compute_capability": (7, 9)}, [{"precision.policy": "mixed_float16"}]),
        ({}, {"compute_capability": None}, []),
        ({"precision.tf32": False}, {"compute_capability": (8, 0)},
         [{"precision.tf32": True}, {"precision.policy": "mixed_bfloat16"}]),
        ({"precision.tf32": False}, {"compute_capability": (7, 9)}, [{"precision.policy": "mixed_float16"}]),
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
    ("options", "figures", "added", "reason"),
    [
        ({"compile.xla": False}, {}, {}, "XLA fuses small operations into few kernels; some models get faster"),
        ({"compile.xla": False, "input.drop_remainder": False}, {"train_samples": 4097},
         {"input.drop_remainder": True}, "XLA fuses small operations into few kernels, and steps of one shape compile "
         "only once; some models get faster"),
        ({"compile.xla": False, "input.drop_remainder": True}, {"train_samples": 4097}, {},
         "XLA fuses small operations into few kernels; some models get faster"),
        ({"compile.xla": "auto"}, {"xla_reason": "too small"}, {}, "XLA fuses small operations into few kernels; some "
         "models get faster; auto leaves it off here: too small"),
        ({"compile.xla": "auto"}, {"xla_reason": "XLA cannot compile it"}, None, ""),
        ({"compile.xla": False, "train.deterministic": True}, {}, None, ""),
        ({"compile.xla": False}, {"jit_compile": True}, None, ""),
        ({"compile.xla": False}, {"newest_capability": (12, 0)}, None, ""),
        ({"compile.xla": False}, {"newest_capability": (12, 0), "on_gpu": False}, {},
         "XLA fuses small operations into few kernels; some models get faster"),
    ],
)  # fmt: skip
def test_xla_is_proposed_with_steps_of_one_shape(
    options: dict[str, Any], figures: dict[str, Any], added: dict[str, Any] | None, reason: str
) -> None:
    known = gpu({"precision.policy": "mixed_bfloat16", **options}, **{"jit_compile": False} | figures)
    expected = [] if added is None else [Remedy(step="xla", changes={"compile.xla": True} | added, reason=reason)]
    assert list(making.computing(known)) == expected


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
    assert list(made) == [Remedy(step="device", reason=reason) for reason in reasons]


def test_memory_at_its_limit_and_heat_have_advice() -> None:
    known = gpu({"precision.policy": "mixed_bfloat16"}, gpu_neighbours=("Xorg", "blender"), throttle=("heat", "power"))
    assert [remedy.reason for remedy in making.memory_limit(known)] == [
        "no larger batch fits; 16-bit precision halves what the layers keep",
        "other programs take memory of this GPU: Xorg, blender",
        "train.micro_batches computes a larger batch in parts, each in the memory of one; run.on_oom=accumulate does "
        "so by itself if memory runs out",
    ]
    assert [remedy.reason for remedy in making.throttled(known)] == [
        "check the machine's cooling and power supply (heat, power)"
    ]


# ---- remedies of the input ------------------------------------------------------------------------

TWO = ({"name": "load", "ms_per_batch": 30.0}, {"name": "prepare", "ms_per_batch": 10.0})


@pytest.mark.parametrize(
    ("options", "figures", "gain", "reason"),
    [
        ({"input.parallel_calls": "off"}, {"cpus": 4}, 5.0,
         "samples are prepared one at a time; this machine has 4 CPUs"),
        ({"input.parallel_calls": 2}, {"cpus": 3}, 1.88, "samples are prepared 2 at a time; this machine has 3 CPUs"),
        ({"input.parallel_calls": 2}, {"cpus": 2}, None, ""),
        ({"input.parallel_calls": "off"}, {"cpus": 1}, 1.25,
         "samples are prepared one at a time; this machine has 1 CPUs"),
        ({"input.parallel_calls": "off", "input.private_threads": 2}, {"cpus": 9}, 2.5,
         "samples are prepared one at a time; this machine has 9 CPUs"),
        ({"input.parallel_calls": "auto"}, {"cpus": 9}, None, ""),
        ({"input.parallel_calls": None}, {"cpus": 9}, None, ""),
    ],
)  # fmt: skip
def test_the_gain_of_more_calls_at_a_time_is_limited_by_the_threads(
    options: dict[str, Any], figures: dict[str, Any], gain: float | None, reason: str
) -> None:
    used = {"input.cache": "memory", "input.prefetch": "auto"}
    made = list(remedies_input.for_input(measured(used | options, **waits(0.8), stages=TWO, **figures)))
    change = {"input.parallel_calls": "auto"}
    assert made == ([Remedy(step="input", changes=change, reason=reason, expected_gain=gain)] if reason else [])


@pytest.mark.parametrize(
    ("figures", "gain"),
    [({"input_wait": 0.3}, 1.43), ({"input_wait": 0.8}, 1.25), ({"input_wait": None, "ablation": 0.4}, 1.67),
     ({"input_wait": 0.3, "ablation": 0.4}, 1.67), ({"input_wait": 0.0}, None)],
)  # fmt: skip
def test_prefetching_hides_the_shorter_one_of_input_and_computing(figures: dict[str, Any], gain: float | None) -> None:
    used = {"input.cache": "memory", "input.parallel_calls": "auto", "input.prefetch": "off"}
    assert list(remedies_input.for_input(measured(used, **figures))) == [
        Remedy(step="input", changes={"input.prefetch": "auto"}, reason="nothing is prepared while the model computes",
               expected_gain=gain)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "figures", "expected"),
    [
        ({}, {"transfer": 0.2}, [({"input.prefetch_to_device": "auto"}, 1.25), ({"input.cast": "device"}, 1.18)]),
        ({}, {"transfer": 0.8}, [({"input.prefetch_to_device": "auto"}, 1.25), ({"input.cast": "device"}, 2.5)]),
        ({"input.prefetch": "off"}, {"transfer": 0.5, "inapplicable": {"input.cast": "no bytes"}},
         [({"input.prefetch_to_device": 2}, 2.0), ({}, None)]),
        ({}, {"transfer": 0.95, "device_batches": 2}, [({"input.cast": "device"}, 3.48), ({}, None)]),
        ({"input.cast": "device"}, {"transfer": 0.95, "device_batches": 2}, [({}, None)]),
    ],
)  # fmt: skip
def test_copies_are_made_ahead_or_of_fewer_bytes(
    options: dict[str, Any], figures: dict[str, Any], expected: list[tuple[dict[str, Any], float | None]]
) -> None:
    made = remedies_input.for_transfer(gpu({"input.cast": "host", **options}, **figures))
    assert [(dict(remedy.changes), remedy.expected_gain) for remedy in made] == expected


def test_each_remedy_has_its_place_in_the_order() -> None:
    proposed = verdict.remedies(gpu(idle_gpus=1, python_share=0.3, busy_mean=0.3), ["underfilled", "compute_bound"])
    assert [remedy.step for remedy in proposed] == ["xla", "device", "device", "device", "precision", "gpus"]
    first = verdict.remedies(gpu(idle_gpus=1, python_share=0.3, busy_mean=0.3), ["compute_bound", "underfilled"])
    assert [remedy.step for remedy in first] == ["device", "device", "device", "precision", "xla", "gpus"]


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"stages": TWO, "cpu": 0.5}, "no option is left that could speed up the input; its slowest stage is load "
         "(30 ms per batch): store the samples smaller, or already decoded"),
        ({"cpu": 0.95}, "all CPU cores are busy; no option is left that could speed up the input: make its work "
         "cheaper, or do it once and save the result"),
        ({"cpu": 0.95, "others_cpu": 0.5}, "other programs use 50 % of the CPU; no option is left that could speed up "
         "the input: make its work cheaper, or do it once and save the result"),
    ],
)  # fmt: skip
def test_the_advice_on_an_input_without_an_option_is_whole(figures: dict[str, Any], reason: str) -> None:
    assert remedies_input.in_the_data(measured(**waits(0.6), **figures)) == Remedy(step="input", reason=reason)
