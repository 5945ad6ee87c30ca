"""Devices: which GPUs are opened under which numbers, what is asked of the driver, and which trainings are refused."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.doors.engine import Finding, Gpu, Machine, installed, resource_limits
from tests.doors.trainer import (
    Devices,
    TrainerError,
    actual_settings,
    devices,
    environment,
)
from tests.support.training import options

GIB = 1024**3


def gpu(index: int, **more: Any) -> Gpu:
    known = Gpu(index, f"GPU-{index}", "A GPU", (9, 0), 80 * GIB, pci_bus_id=f"00000000:{index + 1:02X}:00.0")
    return replace(known, **more)


BOX = Machine((gpu(0), gpu(1), gpu(2)), "", 1, 1)


# ---- identity ----------------------------------------------------------------------------------


class Driver:
    """Stands for libcuda: one GPU, of which it tells everything but the number of its multiprocessors."""

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal + 7
        return 0 if ordinal == 0 else 101

    def cuDeviceGetPCIBusId(self, text: Any, length: int, device: Any) -> int:
        text.value = f"{device.value}:{length}".encode()
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, device: Any) -> int:
        size._obj.value = 5 * GIB
        return 0

    def cuDeviceGetAttribute(self, count: Any, attribute: int, device: Any) -> int:
        count._obj.value = 80
        return 0 if attribute == 99 else 1


def test_the_driver_is_asked_for_its_device_and_a_refusal_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def facts(ordinal: int) -> tuple[Any, ...]:
        asked = devices.driver_pci_bus_id, devices.driver_memory_total_bytes
        return (*(each(ordinal) for each in asked), devices.driver_multiprocessors(ordinal))

    there: list[Any] = [Driver()]
    monkeypatch.setattr(devices, "_driver", lambda: there[0])
    assert facts(0) == ("7:32", 5 * GIB, None)
    assert facts(1) == (None, None, None)
    there[0] = SimpleNamespace(cuDeviceGet=lambda device, ordinal: 0)  # an older one without these functions
    assert facts(0) == (None, None, None)
    there[0] = None
    assert facts(0) == (None, None, None)


# ---- usable GPUs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "counts", "usable"),
    [
        ([(9, 0), (7, 0), (6, 0)], [100, 100, 100], [0, 1]),
        ([None, (7, 0)], [100, None], [0, 1]),
        ([(9, 0), (9, 0), (9, 0)], [8, 7, 9], [0, 2]),
        ([(9, 0), (9, 0)], [4, 3], [0]),
        ([(6, 1), (9, 0)], [100, 4], [1]),
    ],
)
def test_gpus_that_are_too_old_or_too_small_are_left_out(
    capabilities: list[Any], counts: list[Any], usable: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "capabilities", lambda: [(7, 0), (8, 0)])
    monkeypatch.setattr(devices, "driver_multiprocessors", lambda place: counts[place])
    monkeypatch.setattr(devices, "driver_pci_bus_id", lambda ordinal: None)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda chip: {"compute_capability": chip})
    assert devices.usable_gpus(capabilities, Machine((), "", 1, 1)) == usable


def test_the_parts_of_a_gpu_share_nine_tenths_of_its_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def divide(_gpu: object, parts: list[Any]) -> None:
        raise InterruptedError([part.memory_limit for part in parts])

    monkeypatch.setattr(environment, "machine", lambda: BOX)
    monkeypatch.setattr(resource_limits, "cpus_limited", lambda: False)
    monkeypatch.setattr(devices, "usable_gpus", lambda *_: [0])
    monkeypatch.setattr(devices, "memory_free_bytes", lambda *_: 10 * GIB)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _kind: ["a GPU"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *_: None)
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", divide)
    with pytest.raises(InterruptedError, match=r"^\[4608, 4608\]$"):
        devices.configure(options("logical_devices=2"))


# ---- the strategy ------------------------------------------------------------------------------


def test_a_device_that_is_not_there_and_nccl_without_gpus_are_refused() -> None:
    few = Devices("GPU", ("/device:GPU:0", "/device:GPU:1"), positions=(2, 3), available=6)
    assert few.by_position == {2: "/device:GPU:0", 3: "/device:GPU:1"}
    for there, named, message in (
        (few, "[2, 7, 9]", "strategy.devices names GPU 7, but there are 6 (counted from 0)"),
        (
            Devices("CPU", ("/device:CPU:0",)),
            "[0, 1]",
            "strategy.devices names CPU 1, but there are 1 (counted from 0)",
        ),
    ):
        with pytest.raises(TrainerError) as raised:
            devices.build_strategy(options("strategy.kind=mirrored", f"strategy.devices={named}"), there)
        assert (raised.value.kind, raised.value.message) == ("device", message)
        assert raised.value.hint == "list fewer devices, or set device.logical_devices"
    asked = options("strategy.kind=mirrored", "strategy.communication=nccl")
    with pytest.raises(TrainerError) as raised:
        devices.build_strategy(asked, Devices("CPU", ("/device:CPU:0",)))
    assert (raised.value.kind, raised.value.message, raised.value.hint) == (
        "strategy", "strategy.communication=nccl needs GPUs", "set it to auto",
    )  # fmt: skip
    assert devices.build_strategy(options(), few) is None
    joined: Any = object()
    several = options("strategy.kind=multi_worker")
    assert devices.build_strategy(several, replace(few, connected=joined)) is joined


# ---- what differs from the options -------------------------------------------------------------

AS_ASKED: Any = {
    "jit_compile": False, "weights_on_cpu": 0, "compute_dtypes": {"float32": 3}, "inject_prefetch": True,
    "memory_growth": True,
}  # fmt: skip
TWO_GPUS = Devices("GPU", ("/device:GPU:0", "/device:GPU:1"), shown=2, seen=2)
ON_CPU = Devices("CPU", ("/device:CPU:0",))


@pytest.mark.parametrize(
    ("settings", "actual", "present", "differing"),
    [
        ((), {}, TWO_GPUS, []),
        (("xla=auto",), {"jit_compile": True}, TWO_GPUS, []),
        (("xla=true",), {}, TWO_GPUS, [("compile.xla", "Keras set jit_compile to False for this model")]),
        (("xla=false",), {"jit_compile": True}, ON_CPU,
         [("compile.xla", "Keras set jit_compile to True for this model")]),
        ((), {"weights_on_cpu": 1}, TWO_GPUS, [("device.visible", "variables of the model are on the CPU")]),
        ((), {"weights_on_cpu": 1}, ON_CPU, []),
        (("precision.policy=mixed_bfloat16",), {}, ON_CPU, [("precision.policy", "no layer computes in bfloat16")]),
        (("precision.policy=mixed_float16",), {"compute_dtypes": {"float16": 1}}, ON_CPU, []),
        (("prefetch=off",), {}, ON_CPU, [("input.prefetch", "TensorFlow may add a prefetch")]),
        (("prefetch=off",), {"inject_prefetch": False}, ON_CPU, []),
        ((), {"memory_growth": None}, TWO_GPUS,
         [("device.memory_growth", "TensorFlow takes all of the GPU's memory at the start")]),
        ((), {"memory_growth": None}, ON_CPU, []),
        (("memory_growth=false",), {"memory_growth": False}, TWO_GPUS, []),
        ((), {}, replace(TWO_GPUS, seen=1),
         [("device.visible", "the driver shows 2 GPU(s), but TensorFlow sees only 1")]),
        ((), {}, replace(TWO_GPUS, seen=1, lost=("GPU 0", "GPU 3")),
         [("device.visible", "the driver has lost GPU 0, GPU 3, and TensorFlow sees 1 GPU(s)")]),
        ((), {}, replace(TWO_GPUS, lost=("GPU 0",)), []),
        ((), {}, replace(ON_CPU, unknown="no NVML"),
         [("device.visible", "TensorFlow sees no GPU and uses the CPU; whether there are GPUs is not known: no NVML")]),
        (("visible=none",), {}, replace(ON_CPU, unknown="no NVML"), []),
    ],
)  # fmt: skip
def test_options_that_are_not_in_effect_are_named(
    settings: tuple[str, ...], actual: Any, present: Devices, differing: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    assert actual_settings.differences(options(*settings), AS_ASKED | actual, present) == differing
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    found = actual_settings.differences(options("tf32=true", *settings), AS_ASKED | actual, present)
    tf32 = [why for key, why in found if key == "precision.tf32"]
    on_gpu = ["NVIDIA_TF32_OVERRIDE=0 turns it off in NVIDIA's libraries"] if present.kind == "GPU" else []
    assert tf32 == on_gpu
    found = actual_settings.differences(options("tf32=false", *settings), AS_ASKED | actual, present)
    assert found == differing


# ---- asking NVML -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("done", "answer"),
    [
        (subprocess.CompletedProcess([], 0, "[[0, 1], [2]]", ""), [frozenset({0, 1}), frozenset({2})]),
        (subprocess.CompletedProcess([], 1, "", "a\n last line \n"), "last line"),
        (subprocess.CompletedProcess([], -9, "no JSON", ""), "return code -9"),
        (subprocess.TimeoutExpired("x", 1), "no answer within 20 s"),
        (FileNotFoundError(2, "No such file or directory"), "cannot be run: No such file or directory"),
    ],
)
def test_a_process_that_gives_no_answer_says_why(done: Any, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(command: list[str], **more: Any) -> Any:
        asked.append((command[1:], more["input"], more["timeout"]))
        if isinstance(done, Exception):
            raise done
        return done

    monkeypatch.setattr(subprocess, "run", run)
    if isinstance(answer, list):
        assert environment.numa_cpus([4, 5]) == answer
        assert asked == [(["-P", "-m", "gputui.engine.job.this_machine", "cpus", "4", "5"], "", 20.0)]
        return
    with pytest.raises(environment.NoAnswer) as raised:
        environment.ask("doctor.no_gpu", "log", given="text")
    assert str(raised.value).endswith(answer)
    assert asked == [(["-P", "-m", "gputui.engine.doctor.no_gpu", "log"], "text", 20.0)]
    assert environment.numa_cpus([4, 5]) == [frozenset(), frozenset()]
    assert environment.memory_free_bytes(3) is None


# ---- CPUs close to the GPUs --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("near", "allowed", "said", "pinned"),
    [
        ([{0, 1}, {0, 1}], {0, 1, 2, 3}, "on CPUs 0-1, the NUMA node of GPU 0, 1", {0, 1}),
        ([{0, 1, 9}], {0, 1, 2, 3, 4}, "only 2 of the 5 usable CPUs are on the NUMA node of GPU 0", None),
        ([{0, 1}, {2, 3}], {0, 1, 2, 3}, "the GPUs that train are on different NUMA nodes", None),
        ([{0, 1}, set()], {0, 1}, "the driver does not report which CPUs are close to the GPUs", None),
        ([], {0, 1}, "the driver does not report which CPUs are close to the GPUs", None),
        ([{7}], {0, 1}, "no usable CPU is on the NUMA node of GPU 0", None),
        ([{0, 1, 2}], {0, 1, 2}, "all usable CPUs are on the NUMA node of GPU 0", None),
    ],
)
def test_the_trainer_runs_on_the_cpus_of_its_gpus_if_they_are_enough(
    near: list[set[int]], allowed: set[int], said: str, pinned: set[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: set[frozenset[int]] = set()
    limits = resource_limits
    monkeypatch.setattr(limits, "numa_nodes", lambda: 2)
    monkeypatch.setattr(limits, "usable_cpus", lambda: len(allowed))
    monkeypatch.setattr(environment, "machine", lambda: BOX)
    monkeypatch.setattr(environment, "numa_cpus", lambda indexes: [frozenset(cpus) for cpus in near])
    monkeypatch.setattr(environment, "training_gpus", lambda *_: [gpu(n) for n in range(len(near))])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed))
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cpus: set_to.add(frozenset(cpus)))
    assert environment.pin_to_numa_node(options()) == said
    assert set_to == ({frozenset(pinned)} if pinned else set())
    assert environment.pin_to_numa_node(options("numa=off")) == "device.numa is off"
    assert environment.pin_to_numa_node(options("visible=none")) == "no GPU trains"
    monkeypatch.setattr(limits, "numa_nodes", lambda: 1)
    assert environment.pin_to_numa_node(options()) == "the machine has one NUMA node"


PAIR = Machine((gpu(0), gpu(1)), "", 1, 1)
NONE = Machine((), "there is no GPU", 1, 1)


def refused(call: Callable[[], object]) -> tuple[str, str, str]:
    with pytest.raises(TrainerError) as raised:
        call()
    return raised.value.kind, raised.value.message, raised.value.hint


# ---- GPUs that should be there -----------------------------------------------------------------


TO_CPU = "set device.visible=none to train on the CPU"
DEEP = f"gputui doctor --deep looks for the reason; {TO_CPU}"
OLD = f"gputui doctor says which chips it supports; {TO_CPU}"
ERROR = Finding("error", "driver", "it is broken", "mend it")


@pytest.mark.parametrize(
    ("visible", "machine", "seen", "usable", "told"),
    [
        ("all", PAIR, 2, [0, 1], None),
        ("all", NONE, 0, [], None),
        ("none", PAIR, 0, [], None),
        ("0,1", PAIR, 2, [0, 1], None),
        ("all", PAIR, 2, [], ("TensorFlow sees 2 GPU(s), but their chips are too old: it has no code for them", OLD)),
        ("all", replace(PAIR, gpus=(gpu(0, compute_capability=(3, 0)),)), 0, [],
         ("the chips of GPU 0 (A GPU) are too old: TensorFlow has no code for them", OLD)),
        ("all", PAIR, 0, [], ("the driver shows 2 GPU(s), but TensorFlow can use none of them", DEEP)),
        ("0,1", PAIR, 1, [0], ("device.visible asks for 2 GPU(s), but TensorFlow can use 1", DEEP)),
        ("all", replace(NONE, missing="no NVML"), 0, [],
         ("this machine has GPUs that the driver does not show (there is no GPU), nor can TensorFlow use any", DEEP)),
        ("all", replace(NONE, fault=ERROR), 0, [],
         ("this machine has GPUs that the driver does not show (there is no GPU), nor can TensorFlow use any", DEEP)),
        ("all", replace(NONE, fault=replace(ERROR, level="warning")), 0, [], None),
        ("all", replace(PAIR, visible_devices="9"), 0, [], ("CUDA shows none of this machine's GPUs", DEEP)),
    ],
)  # fmt: skip
def test_a_training_that_would_leave_its_gpus_out_is_refused(
    visible: str, machine: Machine, seen: int, usable: list[int], told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "capabilities", lambda: [(7, 0)])
    monkeypatch.setattr(devices, "ask", lambda *_, given: None)
    log: Any = SimpleNamespace(text=lambda: "the log")

    def require() -> None:
        devices.require_gpus(options(f"visible={visible}"), machine, seen, usable, log)

    if told is None:
        require()
    else:
        assert refused(require) == ("device", *told)
