"""What the doctor says of all GPUs of a machine together: whole findings, also of GPUs that differ."""

from __future__ import annotations

from typing import Any

import pytest
from gputui.engine.doctor import Finding, gpu_findings
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.interpreter import installed
from gputui.engine.job import gpu_faults
from gputui.engine.telemetry.nvml.reasons import Reason
from gputui.engine.units import GIB

from tests.support.bare_machine import built as built
from tests.support.bare_machine import tree as tree

A100: dict[str, Any] = {
    "name": "NVIDIA A100", "compute_capability": (8, 0), "memory_used_bytes": 0, "memory_total_bytes": 40 * GIB,
    "power_limit_w": 400.0, "power_default_w": 400.0, "persistence": True, "ecc": True, "throttle": [], "mig": None,
    "compute_mode": 0,
}  # fmt: skip
K40 = {"name": "Tesla K40", "compute_capability": (3, 5), "memory_total_bytes": 12 * GIB}
OF_A100 = "NVIDIA A100, 40.0 GiB, compute capability 8.0: bfloat16, float16 and TF32"
OF_K40 = "Tesla K40, 12.0 GiB, compute capability 3.5: float32 only"
TENSOR_CORES = "precision.policy=mixed_bfloat16 uses its tensor cores"
NO_CODE = "TensorFlow has no code for compute capability 3.5"
EXCLUSIVE = "its compute mode is EXCLUSIVE_PROCESS: only one process can use it"
HELD = [{"name": "python", "pid": 7, "user": "ann"}]
SETTLE = "as root: nvidia-smi -c DEFAULT lets several"


@pytest.fixture(autouse=True)
def packages(built: None, tree: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "cudnn", lambda: None)


def found(*gpus: dict[str, Any], cuda_works: bool | None = None, count: int | None = None) -> list[Finding]:
    """The findings about these GPUs, each of which has what differs from an A100."""
    answers = tuple(A100 | {"index": index} | gpu for index, gpu in enumerate(gpus))
    seen = NvmlAnswers(answers, len(gpus) if count is None else count, driver="580.10", cuda=(13, 0))
    return list(gpu_findings.findings(seen, cuda_works))


def ok(which: str, remedy: str = TENSOR_CORES, what: str = OF_A100) -> Finding:
    return Finding("ok", f"GPU {which}", what, remedy)


def empty(which: str, level: str = "warning") -> Finding:
    return Finding(level, f"GPU {which}", gpu_faults.NO_INSTANCE, gpu_faults.NEW_INSTANCE)


@pytest.mark.parametrize(
    ("count", "apart", "named"),
    [(1, [], "0"), (2, [], "0, 1"), (3, [], "0-2"), (4, [1], "0, 2, 3"), (5, [1], "0, 2, 3, 4"), (8, [], "0-7"),
     (4, [0], "1-3"), (3, [0], "1, 2")],
)  # fmt: skip
def test_gpus_with_the_same_finding_share_a_line(count: int, apart: list[int], named: str) -> None:
    gpus = [{"name": "NVIDIA A30"} if index in apart else {} for index in range(count)]
    assert [finding.about for finding in found(*gpus) if finding.what == OF_A100] == [f"GPU {named}"]


def test_fewer_lanes_of_a_laptop_or_of_all_cards_alike_are_no_fault() -> None:
    half, whole = {"pcie_lanes": (8, 16)}, {"pcie_lanes": (16, 16)}
    laptop = half | {"name": "NVIDIA GeForce RTX 4070 Laptop GPU"}
    for gpus, level in (((half, half), "note"), ((laptop,), "note"), ((half, whole), "warning"), ((half,), "warning")):
        assert [each.level for each in found(*gpus) if "lanes" in each.what] == [level], gpus


def test_a_chip_that_is_too_old_is_no_fault_beside_one_that_can_be_used() -> None:
    beside = Finding("note", "GPU 0", f"{NO_CODE}, and uses only the others")
    alone = Finding("error", "GPU 0", NO_CODE, "use an older TensorFlow; device.visible=none trains on the CPU")
    old = ok("0", "", OF_K40)
    assert found(K40, {}) == [old, beside, ok("1")]
    assert found(K40) == [old, alone]
    assert found(K40, {"mig": []})[:3] == [empty("1"), old, alone], "the other cannot be used"
    restart = "dmesg may show why; leave this GPU out with device.visible until the machine has been restarted"
    lost = Finding("warning", "GPU 1", "is lost", restart)
    assert found(K40, {"missing": "is lost", "why": Reason.LOST}) == [lost, old, alone]


def test_a_gpu_that_a_process_has_alone_is_a_fault_only_if_each_is() -> None:
    mode = {"compute_mode": 3}
    waits = f"wait until it ends, or {SETTLE}"
    assert found(mode) == [ok("0"), Finding("note", "GPU 0", EXCLUSIVE, SETTLE)]
    held = f"{EXCLUSIVE}, and python 7 does now"
    both = found(mode | {"holders": HELD}, mode | {"holders": HELD})
    assert both == [ok("0, 1"), Finding("error", "GPU 0, 1", held, waits)]
    one = found(mode | {"holders": HELD}, mode)
    assert one == [
        ok("0, 1"), Finding("warning", "GPU 0", held, waits), Finding("note", "GPU 1", EXCLUSIVE, SETTLE)
    ]  # fmt: skip
    assert found(mode | {"holders": HELD}, {})[1:] == [Finding("warning", "GPU 0", held, waits)]
    other_is_empty = found(mode | {"holders": HELD}, {"mig": []})
    assert other_is_empty[0] == empty("1")
    assert Finding("error", "GPU 0", held, waits) in other_is_empty, "none is left"
    prohibited = Finding("error", "GPU 0", "its compute mode is PROHIBITED: CUDA cannot use it",
                         "as root: nvidia-smi -c DEFAULT")  # fmt: skip
    assert found({"compute_mode": 2, "holders": HELD}) == [ok("0"), prohibited]


@pytest.mark.parametrize(
    ("gpus", "count", "cuda_works", "level"),
    [
        (({}, {"mig": []}), 2, None, "warning"), (({}, {"mig": []}), 2, True, "warning"),
        (({}, {"mig": []}), 2, False, "error"), (({"mig": []}, {"mig": []}), 2, None, "error"),
        (({"mig": []}, {"mig": []}), 3, None, "warning"),
    ],
)  # fmt: skip
def test_gpus_that_cuda_does_not_show_are_a_fault_if_none_is_left(
    gpus: tuple[dict[str, Any], ...], count: int, cuda_works: bool | None, level: str
) -> None:
    which = ", ".join(str(index) for index, gpu in enumerate(gpus) if "mig" in gpu)
    assert found(*gpus, count=count, cuda_works=cuda_works)[0] == empty(which, level)


def test_a_gpu_that_cannot_be_read_is_told_with_what_to_do() -> None:
    look = "nvidia-smi -i 1 may show why; leave this GPU out with device.visible"
    access = "ls -l /dev/nvidia* shows who has access; leave this GPU out with device.visible"
    for why, remedy in ((None, look), (Reason.NO_PERMISSION, access)):
        assert found({}, {"missing": "no answer", "why": why}) == [
            Finding("warning", "GPU 1", "no answer", remedy), ok("0"),
        ]  # fmt: skip
    assert found({"missing": "no answer"})[0].level == "error"


def test_a_gpu_that_is_much_smaller_than_the_largest_is_left_out() -> None:
    large, small = {"multiprocessors": 108}, {"multiprocessors": 7, "name": "NVIDIA T400", "compute_capability": (7, 5)}
    few = "TensorFlow does not use it if there are larger GPUs: it has 7 multiprocessors, fewer than 8"
    t400 = "NVIDIA T400, 40.0 GiB, compute capability 7.5: float32, and float16 without tensor cores"
    assert found(large, small) == [
        ok("0"), ok("1", "", t400), Finding("note", "GPU 1", few, "to train on it, name it alone in device.visible")
    ]  # fmt: skip
    assert found(small | {"compute_capability": (8, 0)})[0].remedy == TENSOR_CORES, "alone it is used"
    assert found(large, {"multiprocessors": 8}) == [ok("0, 1")]


def test_a_chip_later_than_all_that_tensorflow_knows_is_compiled_for_once() -> None:
    compiles = Finding("note", "GPU 0", "TensorFlow compiles its kernels for this chip at first use, which can take "
                       "minutes", "this happens once: the driver keeps the compiled kernels")  # fmt: skip
    assert compiles in found({"compute_capability": (10, 0)})
    assert compiles not in found({"compute_capability": (9, 0)})
    without_xla = Finding("note", "GPU 0", "it works only without XLA, which crashes: this TensorFlow is built with "
                          "CUDA 12.5", "leave compile.xla at auto or false")  # fmt: skip
    blackwell = found({"compute_capability": (10, 0)})
    assert blackwell[1:] == [compiles, without_xla]
    assert blackwell[0].remedy == TENSOR_CORES, "notes do not keep from training"


@pytest.mark.parametrize(("limit", "is_told"), [(400.0, False), (399.0, False), (398.9, True), (450.0, False)])
def test_a_lowered_power_limit_is_told(limit: float, is_told: bool) -> None:
    told = Finding("warning", "GPU 0", "the power limit is 399 W, its default is 400 W",
                   "nvidia-smi -pl 400 (as root) restores it, where cooling allows")  # fmt: skip
    assert found({"power_limit_w": limit})[1:] == [told] * is_told
    assert found({"power_limit_w": None})[1:] == found({"power_limit_w": 1.0, "power_default_w": None})[1:] == []


def test_settings_instances_and_users_are_told_with_what_to_do() -> None:
    parts = [{"uuid": "MIG-1"}, {"uuid": "MIG-2"}]
    high = "switches it on; on a card with GDDR memory ECC costs bandwidth and some of the memory"
    users = [{"name": name, "pid": pid, "user": "ann"} for pid, name in enumerate(("a", "b", None, "d"), 1)]
    for more, level, what, remedy in (
        ({"persistence": False}, "note", "persistence mode is off",
         "nvidia-smi -pm 1 (as root) makes each start some seconds faster"),
        ({"ecc": False}, "note", "ECC is off: memory errors are not detected",
         "nvidia-smi -e 1 (as root) switches it on"),
        ({"ecc": False, "name": "NVIDIA L4"}, "note", "ECC is off: memory errors are not detected",
         f"nvidia-smi -e 1 (as root) {high}"),
        ({"mig": parts}, "note", "MIG is on, with 2 instance(s); a run uses one of them",
         "choose it by name: device.visible=MIG-1"),
        ({"ecc_errors": {"corrected": 9, "uncorrected": 2}}, "warning", "2 memory error(s) that could not be corrected",
         "reset it (nvidia-smi --gpu-reset); have it looked at if they recur"),
        ({"throttle": ["power cap", "hardware slowdown", "thermal"]}, "warning",
         "slowed down: hardware slowdown, thermal",
         "check its cooling and power supply"),
        ({"memory_used_bytes": GIB}, "note", "1.0 GiB of 40.0 GiB are already in use",
         "nvidia-smi may show by whom (a display takes some, too); device.visible can choose another GPU"),
        ({"memory_used_bytes": 5 * GIB, "processes": users[:1]}, "warning",
         "5.0 GiB of 40.0 GiB are already in use by a 1",
         "end them; device.visible can choose another GPU"),
        ({"memory_used_bytes": 5 * GIB, "processes": users}, "warning",
         "5.0 GiB of 40.0 GiB are already in use by a 1, b 2, process 3 ...",
         "end them; device.visible can choose another GPU"),
        ({"pcie_lanes": (4, 16)}, "warning", "PCIe uses 4 of 16 lanes: copies take 4 times as long",
         "reseat the card, or try another slot"),
    ):  # fmt: skip
        assert found(more)[1:] == [Finding(level, "GPU 0", what, remedy)], more
    for quiet in ({"memory_used_bytes": GIB - 1}, {"memory_used_bytes": 9 * GIB, "shared_with_host": True},
                  {"memory_used_bytes": None}, {"ecc_errors": {"corrected": 3, "uncorrected": 0}}, {"ecc_errors": None},
                  {"throttle": ["power cap"]}, {"pcie_lanes": (16, 16)}, {"nvlinks": (0, 12)}, {"nvlinks": (12, 12)},
                  {"fabric": 3}, {"licensed": True}, {"repair": None, "unrepaired": False}):  # fmt: skip
        assert found(quiet)[1:] == [], quiet
    unknown = found({"compute_capability": None, "name": None, "memory_total_bytes": None})
    assert unknown == [ok("0", "", "unnamed, memory of unknown size")]
    shared = found({"shared_with_host": True})
    assert shared == [ok("0", what=OF_A100.replace("40.0 GiB", "40.0 GiB shared with the host"))]
