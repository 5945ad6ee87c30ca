"""The answers about this machine as plain values: free memory, the GPUs of a process, and what NVML says of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
from gputui.engine.job import gpu_faults, this_machine
from gputui.engine.job.machine_gpus import Answers, Fault, Gpu, Instance, is_taken
from gputui.engine.telemetry import chips
from gputui.engine.telemetry.nvml.connection import NO_GPU
from gputui.engine.telemetry.nvml.reasons import Code, NvmlUnavailable

GIB = 1024**3


def reading(monkeypatch: pytest.MonkeyPatch, *gpus: dict[str, Any]) -> None:
    monkeypatch.setattr(this_machine, "_readings", lambda processes=False: list(gpus))


@pytest.mark.parametrize(
    ("values", "free"),
    [
        ({"memory_total_bytes": 10, "memory_used_bytes": 3}, 7),
        ({"memory_total_bytes": 10, "memory_used_bytes": 3, "memory_reserved_bytes": 2}, 5),
        ({"memory_total_bytes": 10, "memory_used_bytes": 9, "memory_reserved_bytes": 2}, 0),
        ({"memory_total_bytes": 10}, None), ({"memory_used_bytes": 10}, None),
        ({"memory_total_bytes": None, "memory_used_bytes": None}, None), ({"missing": "lost"}, None),
    ],
)  # fmt: skip
def test_the_free_memory_is_what_nobody_and_not_the_driver_has(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], free: int | None
) -> None:
    other = {"index": 0, "memory_total_bytes": 100, "memory_used_bytes": 1}
    reading(monkeypatch, other, {"index": 1} | values)
    assert [this_machine.memory_free_bytes(index) for index in (0, 1, 2)] == [99, free, None]

    def fails() -> None:
        raise NvmlUnavailable("no driver")

    monkeypatch.setattr(this_machine, "_readings", fails)
    assert this_machine.memory_free_bytes(0) is None


def listed(uuid: str | None, *pids: int, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "processes": [{"pid": pid} for pid in pids], **more}


@pytest.mark.parametrize(
    ("gpus", "used"),
    [
        ([listed("GPU-a", 7, 8), listed("GPU-b", 8)], ["GPU-a"]),
        ([listed("GPU-a", 7), listed("GPU-b", 7), listed(None, 7)], ["GPU-a", "GPU-b"]),
        ([listed("GPU-a", 7, mig=[listed("MIG-a", 8), listed("MIG-b", 7)])], ["MIG-b"]),
        ([listed("GPU-a", 7, mig=[listed("MIG-a"), listed("MIG-b")])], ["MIG-a", "MIG-b"]),
        ([listed("GPU-a", 8, mig=[listed("MIG-a"), listed("MIG-b")])], []),
        ([listed("GPU-a", 7, mig=[])], ["GPU-a"]),
        ([{"uuid": "GPU-a"}, {"uuid": "GPU-b", "processes": None}], []),
    ],
)
def test_a_process_uses_the_gpus_and_instances_that_list_it(
    monkeypatch: pytest.MonkeyPatch, gpus: Sequence[dict[str, Any]], used: list[str]
) -> None:
    reading(monkeypatch, *gpus)
    assert this_machine.gpus_of(7) == frozenset(used)


# ---- what NVML says ------------------------------------------------------------------------------


class Nvml:
    """Stands for NVML with these GPUs."""

    gpus: list[dict[str, Any]] = []
    closed = 0

    def identities(self) -> list[dict[str, Any]]:
        return self.gpus

    def cuda(self) -> tuple[int, int]:
        return 12, 4

    def driver(self) -> str:
        return "550.54"

    def close(self) -> None:
        type(self).closed += 1


PYTHON, MPS = {"pid": 7, "name": "python"}, {"pid": 8, "name": "nvidia-cuda-mps-server"}
WHOLE = {
    "index": 1, "uuid": "GPU-b", "name": "NVIDIA A100", "compute_capability": (8, 0), "memory_total_bytes": 40 * GIB,
    "multiprocessors": 108, "pci_bus_id": "0000:01:00.0", "memory_used_bytes": GIB, "mig": None, "exclusive": True,
    "prohibited": False, "holders": [PYTHON],
}  # fmt: skip


def test_a_gpu_has_all_that_nvml_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Gpu(
        1, "GPU-b", "NVIDIA A100", (8, 0), 40 * GIB, multiprocessors=108, pci_bus_id="0000:01:00.0",
        memory_used_bytes=GIB, holders=("python 7",), sole_holder="python 7",
    )  # fmt: skip
    instance = {"uuid": "MIG-a", "memory_total_bytes": 20 * GIB, "memory_used_bytes": None}
    made = {
        "sole": (WHOLE, whole),
        "shared": (WHOLE | {"exclusive": False}, {"sole_holder": ""}),
        "by MPS": (WHOLE | {"holders": [PYTHON, MPS]},
                   {"holders": ("python 7", "nvidia-cuda-mps-server 8"), "sole_holder": ""}),
        "prohibited": (WHOLE | {"prohibited": True}, {"prohibited": True}),
        "lost": ({"index": 1, "missing": "it is lost", "lost": True},
                 Gpu(1, None, None, None, None, lost="it is lost")),
        "not opened": ({"index": 1, "missing": "no permission", "lost": False}, Gpu(1, None, None, None, None)),
        "MIG": (WHOLE | {"mig": [instance], "holders": []},
                {"mig": True, "instances": (Instance("MIG-a", 20 * GIB),), "holders": (), "sole_holder": ""}),
        "MIG without an instance": (WHOLE | {"mig": []}, {"mig": True}),
    }  # fmt: skip
    Nvml.gpus, Nvml.closed = [identity for identity, _ in made.values()], 0
    monkeypatch.setattr(this_machine, "Nvml", Nvml)
    found = this_machine.answers()
    for name, gpu, (_, expected) in zip(made, found.gpus, made.values(), strict=True):
        assert gpu == (Gpu(**{**vars(whole), **expected}) if isinstance(expected, dict) else expected), name
    assert (found.reason, found.missing, found.cuda, found.driver, found.fault) == ("", "", (12, 4), "550.54", None)
    assert Nvml.closed == 1
    assert Answers.read(json.loads(json.dumps(asdict(found)))) == found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    Nvml.gpus = [{**WHOLE, "index": 0, "uuid": "GPU-a"}, WHOLE]
    assert this_machine.visible_gpus() == (whole,)


def test_without_gpus_the_reason_and_what_is_known_of_them_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault("error", "driver", "x", "y")
    Nvml.gpus = []
    monkeypatch.setattr(this_machine, "Nvml", Nvml)
    monkeypatch.setattr(gpu_faults, "driver_fault", lambda reason, code: fault if code != Code.NO_PERMISSION else None)
    none = this_machine.answers()
    assert none == Answers((), NO_GPU, "", (12, 4), "550.54", fault)
    assert Answers.read(json.loads(json.dumps(asdict(none)))) == none
    for code, has_nodes, missing in (
        (Code.DRIVER_NOT_LOADED, True, ""), (Code.LIB_RM_VERSION_MISMATCH, True, ""),
        (Code.LIBRARY_NOT_FOUND, True, "no"),
        (Code.LIBRARY_NOT_FOUND, False, ""), (Code.NO_PERMISSION, True, "no"), (None, True, "no"), (None, False, ""),
    ):  # fmt: skip

        def fails(code: Code | None = code) -> None:
            raise NvmlUnavailable("no", code)

        monkeypatch.setattr(this_machine, "Nvml", fails)
        monkeypatch.setattr(chips, "has_device_nodes", lambda has_nodes=has_nodes: has_nodes)
        wrong = None if code == Code.NO_PERMISSION else fault
        assert this_machine.answers() == Answers(reason="no", missing=missing, fault=wrong), code


def test_a_driver_that_hangs_is_waited_for_ten_seconds_and_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hangs:
        def __init__(self, _call: object) -> None: ...

        def result(self, seconds: float) -> None:
            assert seconds == 10.0
            raise TimeoutError("no answer within 10 s")

    monkeypatch.setattr(this_machine, "BackgroundCall", Hangs)
    reason = "the NVIDIA driver hangs: no answer within 10 s"
    assert this_machine.answers() == Answers(reason=reason, missing=reason)
    assert (this_machine.gpus_of(1), this_machine.memory_free_bytes(0)) == (frozenset(), None)
    here = this_machine.read()
    assert (here.gpus, here.no_gpu_reason, here.missing) == ((), reason, reason)


@pytest.mark.parametrize(
    ("used", "total", "taken"),
    [
        (GIB, 10 * GIB - 1, True), (GIB, 10 * GIB, False), (GIB - 1, 2 * GIB, False), (5 * GIB, 40 * GIB, True),
        (None, GIB, False), (GIB, None, False), (2 * GIB, 0, False),
    ],
)  # fmt: skip
def test_a_gpu_is_taken_from_a_gibibyte_and_a_tenth_on(used: int | None, total: int | None, taken: bool) -> None:
    assert is_taken(used, total) is taken
    gpu = Gpu(0, "GPU-a", "NVIDIA A100", None, total, memory_used_bytes=used)
    assert gpu.is_taken is taken
    assert not Gpu(0, "GPU-a", None, None, total, mig=True, memory_used_bytes=used).is_taken
    assert [str(gpu), str(Gpu(3, None, None, None, None))] == ["GPU 0 (NVIDIA A100)", "GPU 3"]
