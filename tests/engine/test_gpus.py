"""What the driver answers of the GPUs, which of them are chosen, and who uses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.doors.engine import (
    GPM_SHARES,
    NOT_AVAILABLE,
    PCIE,
    QUESTIONS,
    Gpu,
    GpuProcess,
    Gpus,
    MigInstance,
    Reason,
    connection,
    gpm_nvlink,
    machine_gpus,
    queries,
    this_machine,
)
from tests.support.machines import built as built
from tests.support.machines import tree as tree

Patch = Callable[..., None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Patch:
    """answers(PowerUsage=321_000): what nvmlDeviceGetPowerUsage returns; a function is called."""

    def put(**given: Any) -> None:
        for name, answer in given.items():
            call = answer if callable(answer) else lambda *_, answer=answer, **__: answer
            monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", call)

    return put


def asked(key: str, way: int = 0) -> dict[str, Any]:
    question = next(question for question in (*QUESTIONS, PCIE) if key in question.keys)
    return question.ways[way]("gpu")


def test_marks_and_impossible_answers_are_no_figures(answers: Patch) -> None:
    for mark in NOT_AVAILABLE:
        answers(
            UtilizationRates=SimpleNamespace(gpu=mark, memory=mark), PowerUsage=mark, TotalEnergyConsumption=mark,
            CurrentClocksEventReasons=mark, PerformanceState=32,
            ViolationStatus=SimpleNamespace(violationTime=mark),
        )  # fmt: skip
        for key in ("busy", "memory_busy", "power_w", "energy_j", "throttle", "pstate", "slowed_by_power_seconds"):
            assert asked(key)[key] is Reason.UNSUPPORTED, key
    answers(UtilizationRates=SimpleNamespace(gpu=100, memory=0))
    assert asked("busy") == {"busy": 1.0, "memory_busy": 0.0}
    answers(UtilizationRates=SimpleNamespace(gpu=101, memory=7), CurrentClocksEventReasons=0x1, PerformanceState=0)
    assert asked("busy") == {"busy": Reason.ERROR, "memory_busy": 0.07}
    assert asked("throttle") == {"throttle": ()}, "an idle GPU is not slowed down, and nobody has set its clocks"
    assert asked("pstate") == {"pstate": 0}


@pytest.mark.parametrize(
    ("driver", "version"), [("535.43.02", 2), ("535.86.10", 2), ("535.104.05", 3), ("570.86.15", 3)]
)
def test_processes_are_listed_by_a_function_whose_entries_are_read_right(
    driver: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (2, 3):
        listed = [SimpleNamespace(pid=each, usedGpuMemory=1)]
        monkeypatch.setattr(pynvml, f"nvmlDeviceGetComputeRunningProcesses_v{each}", lambda _, listed=listed: listed)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: driver)
    monkeypatch.setattr(queries, "_has_long_entries", queries._has_long_entries.__wrapped__)
    assert [process.pid for process in queries.computing("gpu")] == [version]


# ---- The answers about this machine as plain values ----------------------------------------------


GIB = 1024**3


# ---- what NVML says ------------------------------------------------------------------------------


def test_of_several_gpus_the_one_counts_that_others_fill_most() -> None:
    def used(index: int, *others: int) -> Gpu:
        taken = (GpuProcess(1, own=True, memory_used_bytes=9), *(GpuProcess(2 + each, own=False, memory_used_bytes=each)
                                                                for each in others))  # fmt: skip
        return Gpu(index, f"GPU-{index}", processes=taken)

    gpus = Gpus(None)
    gpus.take(0.0, [used(0), used(1, 3, 4), used(2, 100)], ("GPU-0", "GPU-1"))
    assert [gpus.taken_by_others(name) for name in (None, "GPU-0", "GPU-1")] == [7.0, 0.0, 7.0]
    gpus.take(1.0, [replace(used(1, 3), mig=(MigInstance("MIG-0"),))], ("GPU-1",))
    assert gpus.taken_by_others("GPU-1") == 0.0


def test_instances_of_a_gpu_are_read_in_turn_with_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Gpm:
        def __init__(self, _: Any, instance: int) -> None:
            self.instance = instance

        def read(self) -> dict[str, Any]:
            read.append(self.instance)
            return dict.fromkeys(GPM_SHARES, self.instance / 10) | {"dram_active": Reason.UNSUPPORTED}

        def close(self) -> None: ...

    monkeypatch.setattr(gpm_nvlink, "Gpm", Gpm)
    monkeypatch.setattr(gpm_nvlink, "ask_for_gpm", lambda _: None)
    result = gpm_nvlink.Instances("gpu")
    listed = [MigInstance("b", gpu_instance=2), MigInstance("a", gpu_instance=1)]
    turns = []
    for _ in range(6):
        turns.append(result.turn_of_the_whole)
        notes = result.read(listed)
    assert (turns, read) == ([True, False, False] * 2, [1, 2, 1, 2])
    assert notes == tuple(
        replace(each, sm_active=share, tensor_active=share) for each, share in zip(listed, (0.2, 0.1), strict=True)
    )


class Nvml:
    """Stands for NVML with these GPUs."""

    gpus: list[Gpu] = []
    closed = 0

    @property
    def devices(self) -> list[Any]:
        return [SimpleNamespace(identity=partial(replace, gpu)) for gpu in self.gpus]

    def close(self) -> None:
        type(self).closed += 1


PYTHON = GpuProcess(7, name="python")
WHOLE = Gpu(1, "GPU-b", "NVIDIA A100", (8, 0), 40 * GIB, GIB, processes=(PYTHON,), mig=None, multiprocessors=108,
            pci_bus_id="0000:01:00.0", exclusive=True)  # fmt: skip


def test_a_gpu_comes_to_a_trainer_as_nvml_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, closed = (Gpu(1, missing="it fell off", reasons={"*": reason}) for reason in ("lost", "no_permission"))
    cut = replace(WHOLE, mig=(MigInstance("MIG-a", 20 * GIB, processes=(PYTHON,)),), processes=())
    Nvml.gpus, Nvml.closed = [WHOLE, lost, closed, cut, replace(WHOLE, mig=(), prohibited=True)], 0
    monkeypatch.setattr(this_machine, "Nvml", Nvml)
    monkeypatch.setattr(connection, "of_driver", lambda: ("550.54", (12, 4)))
    found = this_machine.answers()
    assert found == {"gpus": tuple(Nvml.gpus), "cuda": (12, 4), "driver": "550.54"}
    assert Nvml.closed == 1
    assert machine_gpus.answers_from_json(json.loads(json.dumps(found, default=asdict))) == {**found, "fault": None}
    assert (lost.lost, closed.lost) == ("it fell off", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    Nvml.gpus = [replace(WHOLE, index=0, uuid="GPU-a"), WHOLE]
    assert this_machine.read().shown == (WHOLE,)
