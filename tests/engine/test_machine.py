"""Which GPUs a training sees and tells, in CUDA's order; with the stand-in for NVML behind the real `pynvml`."""

from __future__ import annotations

from typing import Any

import pytest
from gputui.engine.diagnosis.gpu_accumulators import Gpus
from gputui.engine.doctor import visible_gpus as doctor_visible
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.job import this_machine
from gputui.engine.job.visible_devices import Device, Shown, visible

from tests.support.fakenvml import FakeNvml

pytest_plugins = ("tests.support.fakenvml.fixture",)

GIB = 1024**3
PROGRAM = """
import json, os
from gputui.engine.job import this_machine
if {chosen!r} is None:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
else:
    os.environ["CUDA_VISIBLE_DEVICES"] = {chosen!r}
print(json.dumps([[gpu.index, gpu.mig, gpu.memory_total_bytes] for gpu in this_machine.visible_gpus()]))
"""


def visible_gpus(nvml: FakeNvml, chosen: str | None, words: str = "gpus=4") -> list[list[Any]]:
    found: list[list[Any]] = nvml.run(PROGRAM.format(chosen=chosen), words)
    return found


VISIBLE: tuple[tuple[str | None, list[int]], ...] = (  # of four GPUs
    (None, [0, 1, 2, 3]),
    ("", []),
    ("-1", []),
    ("NoDevFiles", []),
    ("3", [3]),
    ("3, 1", [3, 1]),
    ("0,-1,1", [0]),
    ("3,-1,1", [3]),
    ("2,7,1", [2]),
    ("0,,1", [0]),
    ("0,0", []),  # twice
    ("GPU-0000-2,GPU-0000-0", [2, 0]),
    ("GPU-0000-2,GPU-0000-2", []),
    ("GPU-0000,1", []),  # of several GPUs
    ("GPU-0000-2,GPU-9", [2]),
    ("GPU-0000-2,1", [2]),  # another kind of name
    ("0,GPU-0000-2", [0]),
)


def test_all_who_read_which_gpus_are_visible_read_the_same(nvml: FakeNvml) -> None:
    """The training's own GPUs, those that the doctor expects, and those that a diagnosis finds idle."""
    program = (
        "import json, os\nfrom gputui.engine.job import this_machine\nfound = []\n"
        f"for value in {[value for value, _ in VISIBLE]!r}:\n"
        "    os.environ.pop('CUDA_VISIBLE_DEVICES', None)\n"
        "    os.environ |= {} if value is None else {'CUDA_VISIBLE_DEVICES': value}\n"
        "    found.append([gpu.index for gpu in this_machine.visible_gpus()])\n"
        "print(json.dumps(found))"
    )
    gpus: list[dict[str, Any]] = [
        {"index": i, "uuid": f"GPU-0000-{i}", "busy": 0.0, "memory_used_bytes": 0, "mig": None} for i in range(4)
    ]
    for (value, indexes), trains in zip(VISIBLE, nvml.run(program, "gpus=4"), strict=True):
        idle = Gpus(value)
        idle.take(0.0, gpus, ())
        expected = doctor_visible.expected(NvmlAnswers(tuple(gpus), 4), value)
        assert (trains, expected, idle.idle()) == (indexes, len(indexes), len(indexes)), value


def test_of_several_gpus_the_one_counts_that_others_fill_most() -> None:
    def used(index: int, *others: float) -> dict[str, object]:
        processes = [{"own": False, "memory_used_bytes": size} for size in others]
        return {
            "index": index,
            "uuid": f"GPU-{index}",
            "processes": [{"own": True, "memory_used_bytes": 9}, *processes],
        }

    gpus = Gpus(None)
    gpus.take(0.0, [used(0), used(1, 3.0, 4.0), used(2, 100.0)], ("GPU-0", "GPU-1"))
    assert [gpus.taken_by_others(name) for name in (None, "GPU-0", "GPU-1")] == [7.0, 0.0, 7.0]


@pytest.mark.parametrize(
    ("processes", "more", "taken"),
    [
        ([], {}, 0.0),
        ([(True, 9)], {}, 0.0),
        ([(False, 3), (True, 9), (False, 4)], {}, 7.0),
        ([(None, 5), (False, 3)], {}, 3.0),  # a container hides whose process it is: perhaps the training's
        ([("no", 5)], {}, 0.0),
        ([(False, None), (False, 3)], {}, 3.0),
        ([(False, 3)], {"mig": [{"uuid": "MIG-0"}]}, 0.0),
    ],
)
def test_memory_of_others_is_that_of_processes_known_to_be_of_others(
    processes: list[tuple[Any, int | None]], more: dict[str, Any], taken: float
) -> None:
    listed = [{"own": own, "memory_used_bytes": size} for own, size in processes]
    gpus = Gpus(None)
    gpus.take(0.0, [{"index": 0, "uuid": "GPU-0", "processes": listed} | more], ("GPU-0",))
    assert gpus.taken_by_others("GPU-0") == taken


def test_one_instance_alone_is_visible_beside_no_whole_gpu() -> None:
    devices = [Device(0, "GPU-a"), Device(1, "GPU-b", ("MIG-b1", "MIG-b2")), Device(2, "GPU-c", ())]
    for value, shown in (
        (None, [Shown(1, 0)]), ("0,1", [Shown(1, 0)]), ("0", [Shown(0)]), ("MIG-b2,MIG-b1", [Shown(1, 1)]),
        ("MIG-b", []), ("MIG-GPU-b/1/0", [Shown(1, 0)]),
        ("MIG-GPU-b/1/0,MIG-GPU-b/2/0", [Shown(1, 0)]), ("MIG-GPU-/1/0", []), ("2", []), ("0,MIG-b1", [Shown(0)]),
    ):  # fmt: skip
        assert visible(value, devices) == shown, value


@pytest.mark.parametrize(
    "chosen", ["MIG-0000-101", "MIG-GPU-0000-1/1/0", "GPU-0000-1", "1"], ids=["uuid", "older", "parent", "index"]
)
def test_an_instance_stands_for_its_gpu_with_its_own_memory(nvml: FakeNvml, chosen: str) -> None:
    assert visible_gpus(nvml, chosen, "gpus=2 mig=2@1") == [[1, True, 20 * GIB]]


def test_a_gpu_in_mig_mode_without_instances_cannot_compute(nvml: FakeNvml) -> None:
    assert visible_gpus(nvml, None, "gpus=2 mig=0@0") == [[1, False, 80 * GIB]]
    assert visible_gpus(nvml, "0", "gpus=2 mig=0@0") == []


@pytest.mark.parametrize(
    ("reading", "free"),
    [
        ({"memory_total_bytes": 80, "memory_used_bytes": 10, "memory_reserved_bytes": 1}, 69),
        ({"memory_total_bytes": 80, "memory_used_bytes": 10}, 70),
        ({"memory_total_bytes": 80, "memory_used_bytes": 80, "memory_reserved_bytes": 1}, 0),
        ({"memory_total_bytes": 80, "memory_used_bytes": None}, None),
        ({"memory_used_bytes": 10}, None),
        ({"missing": "the GPU is lost"}, None),
    ],
)
def test_free_memory_is_that_which_neither_programs_nor_the_driver_have(
    reading: dict[str, Any], free: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"index": 0, "memory_total_bytes": 5, "memory_used_bytes": 0}
    monkeypatch.setattr(this_machine, "_readings", lambda: [other, {"index": 1} | reading])
    assert this_machine.memory_free_bytes(1) == free
    assert this_machine.memory_free_bytes(2) is None, "there is no such GPU"


def test_free_memory_with_the_driver_that_reserves_some(nvml: FakeNvml) -> None:
    program = (
        "import json\nfrom gputui.engine.job import this_machine\nprint(json.dumps(this_machine.memory_free_bytes(0)))"
    )
    assert nvml.run(program, "gpus=1") == 69.5 * GIB
