"""Which GPU a device is, which GPUs are usable, what differs from the options: with stand-ins for driver and GPUs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from gputui.engine.interpreter import installed
from gputui.engine.job.machine_gpus import Gpu, Machine
from gputui.engine.telemetry import resource_limits
from gputui.engine.trainer.common.training_errors import TrainerError
from gputui.engine.trainer.setup import actual_settings, devices, environment, gpu_identity, machine_query
from gputui.engine.trainer.setup.devices import Devices
from gputui.engine.trainer.setup.gpu_identity import Created, LibraryLog, TrainingGpu
from gputui.engine.trainer.setup.xla_cache import XlaCache

from tests.support.training import options

GIB = 1024**3


def gpu(index: int, **more: Any) -> Gpu:
    known = Gpu(index, f"GPU-{index}", "A GPU", (9, 0), 80 * GIB, pci_bus_id=f"00000000:{index + 1:02X}:00.0")
    return replace(known, **more)


BOX = Machine((gpu(0), gpu(1), gpu(2)), "", 1, 1)


class Warnings:
    """Stands for the report of a run."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def warn(self, kind: str, message: str, hint: str = "", option: str = "") -> None:
        self.told.append((kind, message, hint, option))


# ---- identity ----------------------------------------------------------------------------------


@pytest.fixture
def logical(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """TensorFlow has these logical GPUs, and may take so many bytes on each."""

    def has(*limits: int) -> None:
        names = [f"/job:localhost/replica:0/task:0/device:GPU:{number}" for number in range(len(limits))]
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [SimpleNamespace(name=n) for n in names])
        monkeypatch.setattr(gpu_identity, "memory_limits", lambda: dict(zip(names, limits, strict=True)))
        details = {"device_name": "A chip", "compute_capability": (7, 5)}
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["first", "second"])
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda _: details)

    return has


def test_a_gpu_is_the_one_at_the_address_that_tensorflow_logs(logical: Callable[..., None]) -> None:
    """Two logical devices on the second GPU of CUDA, and one on its first."""
    logical(10, 20, 40)
    created = {
        "GPU:0": Created(1, "0000:01:00.0"),
        "GPU:1": Created(1, "0000:01:00.0"),
        "GPU:2": Created(0, "0:03:00.0"),
    }
    found, uncertain = gpu_identity.identify(["/device:GPU:2", "/device:GPU:0", "/device:GPU:1"], BOX, created)
    assert uncertain == ""
    assert found == (
        TrainingGpu("/device:GPU:2", "00000000:03:00.0", "GPU-2", 2, "A GPU", (9, 0), 40, 80 * GIB),
        TrainingGpu("/device:GPU:0", "00000000:01:00.0", "GPU-0", 0, "A GPU", (9, 0), 30, 80 * GIB),
    )
    assert [each.id for each in found] == ["GPU-2", "GPU-0"]
    assert found[0].as_event()["memory_limit_bytes"] == 40


def test_without_nvml_a_gpu_is_known_by_its_address(logical: Callable[..., None]) -> None:
    logical(10)
    nothing = Machine((), "no NVML", 1, 1)
    (found,), uncertain = gpu_identity.identify(["/device:GPU:0"], nothing, {"GPU:0": Created(0, "0000:09:00.0")})
    expected = TrainingGpu("/device:GPU:0", "0000:09:00.0", None, None, "A chip", (7, 5), 10, None)
    assert (found, uncertain, found.id) == (expected, "", "0000:09:00.0")
    assert replace(expected, pci_bus_id=None).id == "/device:GPU:0"


def test_an_instance_of_a_gpu_is_known_as_one(logical: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """By NVML, or by the name that CUDA gives it."""
    logical(10)
    created = {"GPU:0": Created(0, "0000:01:00.0")}
    for machine in (Machine((gpu(0, mig=True),), "", 1, 1), Machine((), "no NVML", 1, 1)):
        named = {"device_name": "NVIDIA A100 MIG 1g.5gb"}
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda _, named=named: named)
        assert gpu_identity.identify(["/device:GPU:0"], machine, created)[0][0].mig
    assert not gpu_identity.identify(["/device:GPU:0"], BOX, created)[0][0].mig


def test_if_tensorflow_logs_nothing_devices_are_counted_as_they_were_configured(
    logical: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first GPU is not opened, and the second one is divided."""
    logical(10, 20)
    box = Machine((gpu(0), gpu(1)), "", 1, 1)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["second"])
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda each: ["part", "part"])
    monkeypatch.setattr(gpu_identity, "driver_pci_bus_id", lambda ordinal: f"0000:0{ordinal + 1}:00.0")
    found, uncertain = gpu_identity.identify(["/device:GPU:0", "/device:GPU:1"], box, {})
    assert [(each.uuid, each.memory_limit_bytes) for each in found] == [("GPU-1", 30)]
    assert uncertain == ""


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
        asked = gpu_identity.driver_pci_bus_id, gpu_identity.driver_memory_total_bytes
        return (*(each(ordinal) for each in asked), gpu_identity.driver_multiprocessors(ordinal))

    there: list[Any] = [Driver()]
    monkeypatch.setattr(gpu_identity, "_driver", lambda: there[0])
    assert facts(0) == ("7:32", 5 * GIB, None)
    assert facts(1) == (None, None, None)
    there[0] = SimpleNamespace(cuDeviceGet=lambda device, ordinal: 0)  # an older one without these functions
    assert facts(0) == (None, None, None)
    there[0] = None
    assert facts(0) == (None, None, None)


def test_an_address_that_nvml_does_not_have_is_uncertain_if_there_are_several_gpus(
    logical: Callable[..., None],
) -> None:
    logical(10)
    elsewhere = {"GPU:0": Created(1, "0000:09:00.0")}
    (found,), uncertain = gpu_identity.identify(["/device:GPU:0"], BOX, elsewhere)
    assert (found.uuid, found.index) == ("GPU-1", 1)
    assert uncertain == (
        "TensorFlow does not report the PCI addresses of its GPUs: assumed to be the first in CUDA's order"
    )
    assert gpu_identity.identify(["/device:GPU:0"], Machine((gpu(0), gpu(1)), "", 1, 1), elsewhere)[1] == uncertain
    (found,), uncertain = gpu_identity.identify(["/device:GPU:0"], Machine((gpu(0),), "", 1, 1), elsewhere)
    assert (found.uuid, found.pci_bus_id, uncertain) == (None, "0000:09:00.0", "")


@pytest.mark.parametrize(
    ("address", "uuid"),
    [("0000:02:00.0", "GPU-1"), ("00000000:02:00.0", "GPU-1"), ("0001:02:00.0", None), ("x", None), (None, None)],
)
def test_addresses_are_compared_as_numbers(address: str | None, uuid: str | None) -> None:
    found = gpu_identity.at_pci_address(address, BOX)
    assert (found.uuid if found else None) == uuid
    upper = Machine((gpu(0, pci_bus_id="00000000:AB:00.0"),), "", 1, 1)
    assert gpu_identity.at_pci_address("0000:ab:00.0", upper) == upper.gpus[0]


def test_the_free_memory_of_a_gpu_is_asked_for_and_of_an_instance_it_is_its_total(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_query, "memory_free_bytes", lambda index: {2: 5 * GIB, 1: None}.get(index))
    monkeypatch.setattr(gpu_identity, "driver_pci_bus_id", lambda ordinal: None)
    monkeypatch.setattr(gpu_identity, "driver_memory_total_bytes", lambda ordinal: 7)
    box = replace(BOX, visible_devices="2,1")
    assert [gpu_identity.memory_free_bytes(ordinal, box) for ordinal in range(3)] == [5 * GIB, 80 * GIB, 7]
    of_instance = replace(box, gpus=(gpu(0), gpu(1), gpu(2, mig=True, memory_total_bytes=3)))
    assert gpu_identity.memory_free_bytes(0, replace(of_instance, visible_devices=None)) == 80 * GIB
    monkeypatch.setattr(gpu_identity, "driver_pci_bus_id", lambda ordinal: "0000:03:00.0")
    assert gpu_identity.memory_free_bytes(0, of_instance) == 3


LOG = (
    "I gpu_device.cc] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 76 MB memory:  -> device: 3, "
    "name: NVIDIA H100, pci bus id: 0000:1a:00.0, compute capability: 9.0\n"
    "I gpu_device.cc] Created device /job:localhost/replica:0/task:0/device:GPU:11 with 76 MB memory:  -> device: 0, "
    "name: NVIDIA H100, pci bus id: 0000:02:00.0, compute capability: 9.0\n"
)


def test_the_log_since_the_beginning_names_the_created_devices(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(2, b"pci bus id of before\n" + LOG.replace("GPU:0", "GPU:5").encode())
    log = LibraryLog()
    assert (log.text(), log.created()) == ("", {})
    os.write(2, LOG.encode())
    assert log.text() == LOG
    assert log.created() == {"GPU:0": Created(3, "0000:1a:00.0"), "GPU:11": Created(0, "0000:02:00.0")}
    capfd.readouterr()


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
    monkeypatch.setattr(gpu_identity, "driver_multiprocessors", lambda place: counts[place])
    monkeypatch.setattr(gpu_identity, "driver_pci_bus_id", lambda ordinal: None)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda chip: {"compute_capability": chip})
    assert devices.usable_gpus(capabilities, Machine((), "", 1, 1)) == usable


def test_multiprocessors_that_the_driver_does_not_tell_are_those_of_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_identity, "driver_multiprocessors", lambda place: None)
    monkeypatch.setattr(gpu_identity, "driver_pci_bus_id", lambda ordinal: None)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda chip: {})
    box = Machine((gpu(0, multiprocessors=7), gpu(1, multiprocessors=80)), "", 1, 1)
    two: Any = ["first", "second"]
    assert devices.usable_gpus(two, box) == [1]


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

AS_ASKED = {
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
    settings: tuple[str, ...], actual: dict[str, Any], present: Devices, differing: list[tuple[str, str]],
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
        assert machine_query.numa_cpus([4, 5]) == answer
        assert asked == [(["-P", "-m", "gputui.engine.job.this_machine", "cpus", "4", "5"], "", 20.0)]
        return
    with pytest.raises(machine_query.NoAnswer) as raised:
        machine_query.ask("doctor.no_gpu", "log", given="text")
    assert str(raised.value).endswith(answer)
    assert asked == [(["-P", "-m", "gputui.engine.doctor.no_gpu", "log"], "text", 20.0)]
    assert machine_query.numa_cpus([4, 5]) == [frozenset(), frozenset()]
    assert machine_query.memory_free_bytes(3) is None


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
    monkeypatch.setattr(machine_query, "read", lambda: BOX)
    monkeypatch.setattr(machine_query, "numa_cpus", lambda indexes: [frozenset(cpus) for cpus in near])
    monkeypatch.setattr(environment, "training_gpus", lambda *_: [gpu(n) for n in range(len(near))])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed))
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cpus: set_to.add(frozenset(cpus)))
    assert environment.pin_to_numa_node(options()) == said
    assert set_to == ({frozenset(pinned)} if pinned else set())
    assert environment.pin_to_numa_node(options("numa=off")) == "device.numa is off"
    assert environment.pin_to_numa_node(options("visible=none")) == "no GPU trains"
    monkeypatch.setattr(limits, "numa_nodes", lambda: 1)
    assert environment.pin_to_numa_node(options()) == "the machine has one NUMA node"


# ---- warnings ----------------------------------------------------------------------------------


def test_overridden_variables_are_warned_of_once_for_an_option_that_has_an_effect() -> None:
    overridden = (
        ("compile.xla", "A does nothing"), ("device.gpu_thread_mode", "B does nothing"), ("compile.xla", "C"),
    )  # fmt: skip
    cache = XlaCache(reason="no room", warns=True)
    prepared = environment.Prepared({"CUDA_LAUNCH_BLOCKING": "1"}, overridden, "", cache)
    report: Any = Warnings()
    prepared.warn(report, "CPU", 1)
    expected = [
        ("environment", "A does nothing; C", "unset the variable, or set compile.xla", "compile.xla"),
        (
            "environment", "compile.xla_cache does nothing here: no room", "set compile.xla_cache=false",
            "compile.xla_cache",
        ),
    ]  # fmt: skip
    assert report.told == expected
    of_gpu: Any = Warnings()
    replace(prepared, cache=XlaCache()).warn(of_gpu, "GPU", 1)
    assert [option for *_, option in of_gpu.told] == ["compile.xla", "device.gpu_thread_mode", "CUDA_LAUNCH_BLOCKING"]


@pytest.mark.parametrize(("asked", "told"), [("jax", "jax"), ("tensorflow", ""), ("", "")])
def test_another_backend_of_keras_is_set_aside_and_warned_of(
    asked: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", asked)
    assert environment.choose_backend() == told
    assert os.environ["KERAS_BACKEND"] == "tensorflow"
    environment.restore_backend(told)
    assert os.environ["KERAS_BACKEND"] == (told or "tensorflow")
    report: Any = Warnings()
    environment.warn_of_backend(told, report)
    message = "KERAS_BACKEND=jax does nothing here: gputui trains with TensorFlow"
    assert report.told == ([("backend", message, "", "KERAS_BACKEND")] if told else [])
