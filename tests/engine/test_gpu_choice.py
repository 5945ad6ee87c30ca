"""The doctor's rules about the driver, and which GPUs CUDA shows: whole findings on both sides of their limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gputui.engine.doctor import driver
from gputui.engine.doctor.cuda_library import CudaAnswer
from gputui.engine.doctor.machine_finding import Finding
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.job import allocation, gpu_faults, visible_devices
from gputui.engine.job.machine_gpus import Fault, Gpu, Instance, is_taken, shown_of
from gputui.engine.job.visible_devices import Device, Shown
from gputui.engine.telemetry.nvml.connection import NO_GPU
from gputui.engine.telemetry.nvml.reasons import Code

from tests.support.bare_machine import built as built
from tests.support.bare_machine import tree as tree

GIB = 1024**3
BUS = ("0000:01:00.0", "0000:02:00.0")
FASTER = "nvidia-smi -pm 1 (as root) keeps the driver loaded, so that it answers faster"


# ---- the driver ----------------------------------------------------------------------------------


def gpus(count: int, **changes: Any) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"index": index, "name": "A100", "pci_bus_id": f"0000{BUS[index]}"} | changes for index in range(count)
    )


@pytest.mark.parametrize(
    ("seen", "bus", "confined", "findings"),
    [
        (NvmlAnswers(gpus(2), 2, driver="580.10", cuda=(13, 0)), BUS, False,
         [("ok", "driver", "NVIDIA driver 580.10, CUDA 13.0: TensorFlow's own CUDA 12.5 works with it", "")]),
        (NvmlAnswers(gpus(2), 2, driver="555.42", cuda=(12, 5)), BUS, False,
         [("ok", "driver", "NVIDIA driver 555.42, CUDA 12.5", "")]),
        (NvmlAnswers(gpus(2), 2, driver="550.10", cuda=(12, 4)), BUS, False,
         [("note", "driver", "NVIDIA driver 550.10, CUDA 12.4: TensorFlow was built for CUDA 12.5; chips for which it "
           "has machine code also work with this driver", "")]),
        (NvmlAnswers(gpus(2), 2, driver="470.10", cuda=(11, 4)), BUS, False,
         [("error", "driver", "NVIDIA driver 470.10, CUDA 11.4: TensorFlow was built for CUDA 12.5",
           "update the driver; TensorFlow cannot use the GPUs with this one")]),
        (NvmlAnswers(gpus(1), 2, driver="580.10", late_seconds=2.0), BUS, False,
         [("ok", "driver", "NVIDIA driver 580.10", ""),
          ("warning", "driver", "the driver is slow: 1 of 2 GPU(s) answered within 2 s",
           f"gputui doctor --deep waits longer; {FASTER}")]),
        (NvmlAnswers(gpus(1), 1, driver="580.10"), BUS, False,
         [("ok", "driver", "NVIDIA driver 580.10", ""),
          ("warning", "driver", "the driver shows 1 of the 2 GPUs in this machine (0000:02:00.0)",
           "dmesg | grep -i nvrm shows why; a loose power cable is one possible cause")]),
        (NvmlAnswers(gpus(1), 1, driver="580.10"), BUS, True, [("ok", "driver", "NVIDIA driver 580.10", "")]),
        (NvmlAnswers(reason="it has not answered", late_seconds=2.0), BUS, False,
         [("warning", "driver", "it has not answered", f"gputui doctor --deep waits longer; {FASTER}")]),
        (NvmlAnswers(reason="it has not answered", late_seconds=10.0), BUS, False,
         [("warning", "driver", "it has not answered", FASTER)]),
        (NvmlAnswers(reason="not loaded", code=9), (), False,
         [("note", "GPU", "no NVIDIA GPU in this machine; not loaded",
           "training runs on the CPU; gputui works, but GPU options have no effect")]),
        (NvmlAnswers(reason="no library", code=12), (), False,
         [("note", "GPU", "no library", "training runs on the CPU; gputui works, but GPU options have no effect")]),
        (NvmlAnswers(reason="no library", code=12), BUS, False,
         [("warning", "GPU", "2 NVIDIA GPU(s) in this machine, but no library",
           "install NVIDIA's driver for this system; nvidia-smi then lists the GPUs")]),
    ],
)  # fmt: skip
def test_the_driver_is_described_or_the_reason_why_there_is_none(
    tree: Path, built: None, seen: NvmlAnswers, bus: Any, confined: bool, findings: list[tuple[str, ...]]
) -> None:
    assert list(driver.findings(seen, bus, confined)) == [Finding(*words) for words in findings]


def test_a_driver_whose_library_alone_is_missing_is_told_with_where_it_is(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "dev").mkdir()
    (tree / "dev/nvidiactl").touch()
    seen = NvmlAnswers(reason="no library", code=12)

    def remedies(confined: bool, cuda: CudaAnswer = CudaAnswer()) -> list[str]:  # noqa: B008 - it is frozen
        first, *others = driver.findings(seen, None, confined, cuda)
        assert (first.level, first.about) == ("warning", "driver")
        return [first.remedy, *(f"{each.level} {each.what}" for each in others)]

    monkeypatch.delenv("NVIDIA_DRIVER_CAPABILITIES", raising=False)
    assert remedies(False) == ["install the driver's library, which comes with nvidia-smi"]
    given = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    assert remedies(True) == [given]
    monkeypatch.setenv("NVIDIA_DRIVER_CAPABILITIES", "compute")
    assert remedies(True, CudaAnswer(True, "", 2)) == [
        f"{given} (it is 'compute' now)", "ok CUDA shows 2 GPU(s): training works, without readings of them"
    ]  # fmt: skip
    assert len(remedies(True, CudaAnswer(True, "", 0))) == len(remedies(True, CudaAnswer(True, "X", 2))) == 1
    (tree / "usr/lib/wsl/lib").mkdir(parents=True)
    (tree / "usr/lib/wsl/lib/libnvidia-ml.so.1").touch()
    assert remedies(True) == ["export LD_LIBRARY_PATH=/usr/lib/wsl/lib, where WSL has it"]


@pytest.mark.parametrize(
    ("reason", "code", "confined", "fault"),
    [
        ("broken", 999, False, Fault("error", "driver", "broken", "check whether nvidia-smi works")),
        ("broken", 999, True, Fault("error", "driver", "broken: the container has lost its GPUs", "restart the "
         "container; systemctl daemon-reload on the host takes the GPUs away from running containers")),
        ("other", 18, True, Fault("error", "driver", "other", "restart the container, so that it gets the driver's new "
         "libraries; or the machine")),
        ("other", 18, False, Fault("error", "driver", "other", "restart it, or load the driver again (as root: rmmod "
         "nvidia_drm nvidia_modeset nvidia_uvm nvidia; modprobe nvidia)")),
        ("none", 9, False, Fault("error", "driver", "none", "modprobe nvidia (as root) loads it; after a new kernel it "
         "may have to be installed again")),
        ("denied", 4, False, Fault("error", "driver", "denied", "ls -l /dev/nvidia* shows who has access: ask the "
         "administrator for it")),
        ("none", 9, True, Fault("warning", "GPU", "2 NVIDIA GPU(s) in this machine, but none", "start the container "
         "with --gpus all, or ask for GPUs in the job")),
        (NO_GPU, None, False, Fault("error", "GPU", f"2 NVIDIA GPU(s) in this machine, but {NO_GPU}",
         "dmesg | grep -i nvrm shows why")),
        (NO_GPU, None, True, Fault("warning", "GPU", f"2 NVIDIA GPU(s) in this machine, but {NO_GPU}", "start the "
         "container with --gpus all, or ask for GPUs in the job")),
    ],
)  # fmt: skip
def test_a_fault_of_the_driver_has_its_remedy(
    tree: Path, reason: str, code: int | None, confined: bool, fault: Fault
) -> None:
    assert gpu_faults.of_driver(reason, code, BUS, confined) == fault


def test_a_driver_is_withheld_from_a_container_to_which_nobody_has_given_a_gpu(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variables, withheld in (
        ({}, True), ({"CUDA_VISIBLE_DEVICES": ""}, True), ({"CUDA_VISIBLE_DEVICES": "0"}, False),
        ({"GPU_DEVICE_ORDINAL": "1"}, False),
    ):  # fmt: skip
        for name in ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert gpu_faults.driver_withheld(Code.DRIVER_NOT_LOADED, True) is withheld, variables
        assert not gpu_faults.driver_withheld(Code.DRIVER_NOT_LOADED, False)
        assert not gpu_faults.driver_withheld(Code.NO_PERMISSION, True)
        assert not gpu_faults.driver_withheld(None, True)


@pytest.mark.parametrize(
    ("reason", "code", "bus", "expected"),
    [
        ("x", 9, None, True), ("x", 12, None, False), (NO_GPU, None, None, False), ("x", 12, BUS, True),
        ("x", 9, (), False),
    ],
)  # fmt: skip
def test_a_machine_should_have_a_gpu_if_the_bus_or_the_library_says_so(
    reason: str, code: int | None, bus: Any, expected: bool
) -> None:
    assert gpu_faults.gpu_expected(reason, code, bus) is expected


# ---- the choice of GPUs --------------------------------------------------------------------------


def gpu(index: int, name: str = "A100", **more: Any) -> Gpu:
    return Gpu(index, f"GPU-{'abcdef'[index]}", name, (8, 0), 40 * GIB, multiprocessors=108, **more)


CUT = gpu(1, mig=True, instances=(Instance("MIG-x", 5 * GIB, 1), Instance("MIG-y", 10 * GIB)))


@pytest.mark.parametrize(
    ("value", "gpus", "level", "what", "remedy"),
    [
        ("0,7", (gpu(0), gpu(1)), "warning",
         "CUDA_VISIBLE_DEVICES=0,7 shows GPU 0 (A100) alone: 7 fits no single GPU, and CUDA stops there",
         "this machine has 0 (A100), 1 (A100)"),
        ("7", (gpu(0),), "error", "CUDA_VISIBLE_DEVICES=7 shows no GPU: 7 fits no single GPU",
         "this machine has 0 (A100); CUDA_VISIBLE_DEVICES='' or device.visible=none trains on the CPU"),
        ("GPU-x", tuple(gpu(index) for index in range(5)), "error",
         "CUDA_VISIBLE_DEVICES=GPU-x shows no GPU: GPU-x fits no single GPU",
         "this machine has GPU-a (A100), GPU-b (A100), GPU-c (A100), GPU-d (A100) and 1 more; CUDA_VISIBLE_DEVICES='' "
         "or device.visible=none trains on the CPU"),
        ("MIG-z", (gpu(0),), "error", "CUDA_VISIBLE_DEVICES=MIG-z shows no GPU: MIG-z fits no single GPU",
         "this machine has no MIG instance; CUDA_VISIBLE_DEVICES='' or device.visible=none trains on the CPU"),
        ("MIG-z", (CUT,), "error", "CUDA_VISIBLE_DEVICES=MIG-z shows no GPU: MIG-z fits no single GPU",
         "this machine has MIG-x, MIG-y; CUDA_VISIBLE_DEVICES='' or device.visible=none trains on the CPU"),
        ("0,GPU-b", (gpu(0), gpu(1)), "warning", "CUDA_VISIBLE_DEVICES=0,GPU-b shows GPU 0 (A100) alone: GPU-b is of "
         "another kind, or names a GPU twice, and CUDA stops there", "this machine has GPU-a (A100), GPU-b (A100)"),
        ("1", (gpu(0), gpu(1, mig=True)), "error", "GPU 1: MIG is on without an instance: TensorFlow cannot use it",
         "as root: nvidia-smi mig -cgi 0 -C creates one of the whole GPU, nvidia-smi -mig 0 switches MIG off"),
        ("0,1", (gpu(0), gpu(1, mig=True)), "warning", "GPU 1: MIG is on without an instance: TensorFlow cannot use it",
         "as root: nvidia-smi mig -cgi 0 -C creates one of the whole GPU, nvidia-smi -mig 0 switches MIG off"),
        ("0,1", (gpu(0), gpu(1, "T4")), "warning", "CUDA_VISIBLE_DEVICES=0,1 means GPU 0 (A100), GPU 1 (T4), in the "
         "order of the PCI bus; by CUDA's own order, the fastest first, numbers may mean others",
         "set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that all programs count alike, or name GPUs by UUID"),
        (None, (gpu(0), gpu(1, "T4")), "warning", "GPUs of different models: GPU 0 (A100), GPU 1 (T4), in the order of "
         "the PCI bus; by CUDA's own order, the fastest first, numbers may mean others",
         "set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that all programs count alike, or name GPUs by UUID"),
        ("GPU-a,GPU-b", (gpu(0), gpu(1, "T4")), "", "", ""),
        ("0,1", (gpu(0), gpu(1)), "", "", ""),
        ("-1", (gpu(0),), "", "", ""),
        ("7", (), "", "", ""),
    ],
)  # fmt: skip
def test_a_value_that_shows_other_gpus_than_it_seems_is_told(
    tree: Path, built: None, value: str | None, gpus: tuple[Gpu, ...], level: str, what: str, remedy: str
) -> None:
    faults = list(gpu_faults.of_visible_devices(value, gpus))
    assert [(each.level, each.what, each.remedy) for each in faults] == ([(level, what, remedy)] if level else [])


WHOLE, PARTED, EMPTY = Device(0, "GPU-a1"), Device(1, "GPU-b2", ("MIG-x", "MIG-y")), Device(2, "GPU-b3", ())
MACHINE = (WHOLE, PARTED, EMPTY)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("0", Shown(0)), ("+0", Shown(0)), ("1", Shown(1, 0)), ("2", None), ("3", None), ("-0", None),
        ("GPU-a", Shown(0)), ("GPU-b", None), ("GPU-b2", Shown(1, 0)), ("GPU-b3", None), ("a1", None),
        ("MIG-y", Shown(1, 1)), ("MIG-", None), ("MIG-GPU-b2/1/0", Shown(1, 0)), ("MIG-GPU-a1/1/0", None),
        ("MIG-GPU-b3/1/0", None), ("MIG-GPU-b/1/0", None),
    ],
)  # fmt: skip
def test_a_name_means_one_gpu_or_instance_or_none(name: str, shown: Shown | None) -> None:
    assert visible_devices.find(name, MACHINE) == shown


@pytest.mark.parametrize(
    ("value", "shown", "named", "stops"),
    [
        (None, [Shown(1, 0)], [Shown(0), Shown(1, 0), Shown(1, 1)], None),
        ("0", [Shown(0)], [Shown(0)], ""),
        ("0,1", [Shown(1, 0)], [Shown(0), Shown(1, 0), Shown(1, 1)], ""),
        ("0,-1,1", [Shown(0)], [Shown(0)], ""),
        ("0,0", [], [], "0"),
        ("0,9,1", [Shown(0)], [Shown(0)], "9"),
        ("GPU-a1,1", [Shown(0)], [Shown(0)], "1"),
        ("MIG-y,MIG-x", [Shown(1, 1)], [Shown(1, 1), Shown(1, 0)], ""),
        ("MIG-GPU-b2/1/0,MIG-GPU-b2/2/0", [Shown(1, 0)], [Shown(1, 0), Shown(1, 0)], ""),
        ("", [], [], ""),
        ("NoDevFiles", [], [], ""),
    ],
)  # fmt: skip
def test_cuda_shows_what_the_value_names_up_to_the_first_that_it_refuses(
    value: str | None, shown: list[Shown], named: list[Shown], stops: str | None
) -> None:
    assert visible_devices.visible(value, MACHINE) == shown
    assert visible_devices.named(value, MACHINE) == named
    assert stops is None or visible_devices.stops_at(value or "", MACHINE) == stops
    assert visible_devices.hides_all(value) is (value in ("", "NoDevFiles"))


def test_an_instance_stands_for_its_gpu_with_its_own_memory() -> None:
    (part,) = shown_of((gpu(0), CUT), "MIG-x")
    assert (part.index, part.instance, part.memory_total_bytes, part.memory_used_bytes) == (1, "MIG-x", 5 * GIB, 1)
    for used, total, taken in (
        (GIB, 9 * GIB, True), (GIB - 1, 2 * GIB, False), (GIB, 10 * GIB, False), (GIB + 1, 10 * GIB, True),
        (None, GIB, False), (GIB, None, False), (GIB, 0, False),
    ):  # fmt: skip
        assert is_taken(used, total) is taken, (used, total)
    busy = gpu(0, memory_used_bytes=30 * GIB)
    assert (busy.is_taken, gpu(0, memory_used_bytes=30 * GIB, mig=True).is_taken) == (True, False)
    assert (str(busy), str(Gpu(3, None, None, None, None))) == ("GPU 0 (A100)", "GPU 3")


def test_gpus_of_a_job_are_compared_by_names_of_one_kind() -> None:
    devices = [Device(0, "GPU-a"), Device(1, "GPU-b")]
    given = allocation.Allocation("SLURM_JOB_GPUS", ("GPU-a",))
    assert [given.allows(name, devices) for name in (0, 1, "GPU-a", "GPU-b")] == [True, False, True, False]
    mixed = allocation.Allocation("CUDA_VISIBLE_DEVICES", ("0", "GPU-b"))
    assert [mixed.allows(name, devices) for name in (0, 1)] == [True, True]
