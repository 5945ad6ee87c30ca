"""Each rule of the doctor about a GPU: the whole finding, on both sides of its limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from gputui.engine.doctor import gpu_findings
from gputui.engine.doctor.cuda_library import FABRIC, CudaAnswer, CudaQuery, cause_named_in, cause_of, findings
from gputui.engine.doctor.machine_finding import Finding
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.doctor.python_process import Output
from gputui.engine.interpreter import compatibility, installed
from gputui.engine.telemetry import chips, resource_limits
from gputui.engine.telemetry.nvml.reasons import Reason

GIB = 1024**3
H100: dict[str, Any] = {
    "index": 0, "name": "NVIDIA H100 80GB HBM3", "compute_capability": (9, 0), "memory_used_bytes": 0,
    "memory_total_bytes": 80 * GIB, "power_limit_w": 700.0, "power_default_w": 700.0, "persistence": True,
    "ecc": True, "throttle": [], "mig": None, "multiprocessors": 132,
}  # fmt: skip
SOUND = Finding(
    "ok", "GPU 0", "NVIDIA H100 80GB HBM3, 80.0 GiB, compute capability 9.0: bfloat16, float16 and TF32",
    "precision.policy=mixed_bfloat16 uses its tensor cores",
)  # fmt: skip
USE_OTHER = "; device.visible can choose another GPU"
PYTHON = [{"name": "python", "pid": pid} for pid in (7, 8, 9, 10)]
EXCLUSIVE = "its compute mode is EXCLUSIVE_PROCESS: only one process can use it"


def found(*gpus: dict[str, Any], cuda_works: bool | None = None) -> list[Finding]:
    numbered = tuple(H100 | {"index": index} | changes for index, changes in enumerate(gpus))
    return list(gpu_findings.findings(NvmlAnswers(numbered, len(gpus), driver="580.10", cuda=(13, 0)), cuda_works))


@pytest.mark.parametrize(
    ("changes", "level", "what", "remedy"),
    [
        ({"persistence": False}, "note", "persistence mode is off",
         "nvidia-smi -pm 1 (as root) makes each start some seconds faster"),
        ({"persistence": None}, "", "", ""),
        ({"ecc": False}, "note", "ECC is off: memory errors are not detected",
         "nvidia-smi -e 1 (as root) switches it on"),
        ({"ecc": None}, "", "", ""),
        ({"power_limit_w": 698.9}, "warning", "the power limit is 699 W, its default is 700 W",
         "nvidia-smi -pl 700 (as root) restores it, where cooling allows"),
        ({"power_limit_w": 699.0}, "", "", ""),
        ({"power_limit_w": 800.0}, "", "", ""),
        ({"power_limit_w": None}, "", "", ""),
        ({"power_default_w": None}, "", "", ""),
        ({"mig": [{"uuid": "MIG-a"}, {"uuid": "MIG-b"}]}, "note",
         "MIG is on, with 2 instance(s); a run uses one of them", "choose it by name: device.visible=MIG-a"),
        ({"ecc_errors": {"uncorrected": 1}}, "warning", "1 memory error(s) that could not be corrected",
         "reset it (nvidia-smi --gpu-reset); have it looked at if they recur"),
        ({"ecc_errors": {"uncorrected": 0, "corrected": 9}}, "", "", ""),
        ({"throttle": ["idle", "hardware slowdown", "power brake"]}, "warning",
         "slowed down: hardware slowdown, power brake", "check its cooling and power supply"),
        ({"throttle": ["idle", "power cap"]}, "", "", ""),
        ({"memory_used_bytes": GIB - 1}, "", "", ""),
        ({"memory_used_bytes": GIB}, "note", "1.0 GiB of 80.0 GiB are already in use",
         "nvidia-smi may show by whom (a display takes some, too)" + USE_OTHER),
        ({"memory_used_bytes": 8 * GIB, "processes": PYTHON[:3]}, "note",
         "8.0 GiB of 80.0 GiB are already in use by python 7, python 8, python 9", "end them" + USE_OTHER),
        ({"memory_used_bytes": 8 * GIB + 1, "processes": PYTHON}, "warning",
         "8.0 GiB of 80.0 GiB are already in use by python 7, python 8, python 9 ...", "end them" + USE_OTHER),
        ({"compute_mode": pynvml.NVML_COMPUTEMODE_DEFAULT}, "", "", ""),
        ({"compute_mode": pynvml.NVML_COMPUTEMODE_PROHIBITED}, "error",
         "its compute mode is PROHIBITED: CUDA cannot use it", "as root: nvidia-smi -c DEFAULT"),
        ({"compute_mode": pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS}, "note", EXCLUSIVE,
         "as root: nvidia-smi -c DEFAULT lets several"),
        ({"compute_mode": pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, "holders": PYTHON[:1]}, "error",
         f"{EXCLUSIVE}, and python 7 does now", "wait until it ends, or as root: nvidia-smi -c DEFAULT lets several"),
        ({"pcie_lanes": (8, 16)}, "warning", "PCIe uses 8 of 16 lanes: copies take 2 times as long",
         "reseat the card, or try another slot"),
        ({"pcie_lanes": (16, 16)}, "", "", ""),
        ({"pcie_lanes": (0, 16)}, "", "", ""),
        ({"fabric": pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, "nvlinks": (18, 18)}, "", "", ""),
        ({"fabric": pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS}, "error",
         "CUDA cannot start: the fabric manager has not set up the NVLink switches of this board",
         "as root: systemctl start nvidia-fabricmanager; its version must be the driver's, 580.10"),
        ({"nvlinks": (0, 12)}, "", "", ""),
        ({"nvlinks": (4, 12)}, "note", "4 of 12 NVLinks are active",
         "nvidia-smi nvlink --status shows which; cards with fewer bridges have fewer links"),
        ({"nvlinks": (4, 12), "fabric": pynvml.NVML_GPU_FABRIC_STATE_COMPLETED}, "warning",
         "4 of 12 NVLinks are active",
         "nvidia-smi nvlink --status shows which; cards with fewer bridges have fewer links"),
        ({"repair": "rows of its memory"}, "warning",
         "rows of its memory failed and will be replaced at the next reset",
         "reset it when nothing runs on it (as root: nvidia-smi --gpu-reset)"),
        ({"unrepaired": True}, "warning", "a failed row of its memory could not be replaced",
         "replace the GPU; until then leave it out with device.visible"),
        ({"licensed": False}, "warning",
         "this virtual GPU has no licence: the driver slows it down, and later CUDA stops working",
         "systemctl status nvidia-gridd shows why"),
        ({"licensed": None}, "", "", ""),
        ({"licensed": True}, "", "", ""),
    ],
)  # fmt: skip
def test_a_rule_makes_one_finding_from_its_limit_on(
    changes: dict[str, Any], level: str, what: str, remedy: str
) -> None:
    assert found(changes) == [SOUND, *([Finding(level, "GPU 0", what, remedy)] if level else [])]


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        ({"compute_capability": (8, 0)}, "80.0 GiB, compute capability 8.0: bfloat16, float16 and TF32",
         "precision.policy=mixed_bfloat16 uses its tensor cores"),
        ({"compute_capability": (7, 5)}, "80.0 GiB, compute capability 7.5: float16",
         "precision.policy=mixed_float16 uses its tensor cores"),
        ({"compute_capability": (7, 0)}, "80.0 GiB, compute capability 7.0: float16",
         "precision.policy=mixed_float16 uses its tensor cores"),
        ({"compute_capability": (6, 0)},
         "80.0 GiB, compute capability 6.0: float32, and float16 without tensor cores", ""),
        ({"compute_capability": (6, 1)}, "80.0 GiB, compute capability 6.1: float32 only", ""),
        ({"compute_capability": None, "memory_total_bytes": None}, "memory of unknown size", ""),
        ({"shared_with_host": True, "memory_used_bytes": 40 * GIB}, "80.0 GiB shared with the host, "
         "compute capability 9.0: bfloat16, float16 and TF32", "precision.policy=mixed_bfloat16 uses its tensor cores"),
    ],
)  # fmt: skip
def test_a_chip_is_described_with_its_memory_and_its_number_formats(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], what: str, remedy: str
) -> None:
    monkeypatch.setattr(compatibility, "lacks_cudnn", lambda _: False)  # that of another cuDNN
    assert found(changes)[0] == Finding("ok", "GPU 0", f"NVIDIA H100 80GB HBM3, {what}", remedy)


def test_gpus_alike_are_named_together_and_a_row_of_three_by_its_ends() -> None:
    off = [(finding.about, finding.what) for finding in found(*[{"persistence": False}] * 2)]
    assert off[1] == ("GPU 0, 1", "persistence mode is off")
    names = {
        "GPU 0-2": [False] * 3 + [True],
        "GPU 0, 1": [False, False, True],
        "GPU 0, 1, 3": [False, False, True, False],
    }
    for name, persistence in names.items():
        about = [each.about for each in found(*({"persistence": on} for on in persistence)) if "persist" in each.what]
        assert about == [name]


def test_a_gpu_that_is_used_alone_is_an_error_only_if_all_are() -> None:
    alone = {"compute_mode": pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, "holders": PYTHON[:1]}
    both, one = found(alone, alone), found(alone, {})
    assert [(each.level, each.about) for each in both if "EXCLUSIVE" in each.what] == [("error", "GPU 0, 1")]
    assert [(each.level, each.about) for each in one if "EXCLUSIVE" in each.what] == [("warning", "GPU 0")]
    empty = found(alone, {"mig": []})
    assert [each.level for each in empty if "EXCLUSIVE" in each.what] == ["error"], "the other cannot be used"


def test_a_small_gpu_is_left_out_only_next_to_a_larger_one() -> None:
    small = {"multiprocessors": 7, "name": "NVIDIA T400", "compute_capability": (7, 5)}
    left_out = Finding(
        "note", "GPU 0", "TensorFlow does not use it if there are larger GPUs: it has 7 multiprocessors, fewer than 8",
        "to train on it, name it alone in device.visible",
    )  # fmt: skip
    first, second, *others = found(small, {})
    assert (first.what, first.remedy) == (
        "NVIDIA T400, 80.0 GiB, compute capability 7.5: float32, and float16 without tensor cores", ""
    )  # fmt: skip
    assert (second, others[0].about) == (left_out, "GPU 1")
    assert [each.level for each in found(small)] == ["ok"], "there is no larger one"
    assert [each.level for each in found(small | {"multiprocessors": 8}, {})] == ["ok", "ok"]
    named = found(small | {"multiprocessors": 1, "compute_capability": (9, 0)}, {})
    assert (named[0].remedy, "1 multiprocessor, fewer" in named[1].what) == ("", True)


def test_a_gpu_that_cannot_be_used_is_an_error_if_no_other_is_left_or_cuda_fails() -> None:
    lost = {"missing": "it has fallen off the bus", "why": Reason.LOST}
    denied = {"missing": "access is denied", "why": Reason.NO_PERMISSION}
    other = {"missing": "an error", "why": Reason.ERROR}
    remedies = {
        "it has fallen off the bus": "dmesg may show why; leave this GPU out with device.visible until the machine has "
        "been restarted",
        "access is denied": "ls -l /dev/nvidia* shows who has access; leave this GPU out with device.visible",
        "an error": "nvidia-smi -i 2 may show why; leave this GPU out with device.visible",
    }
    assert found(lost, denied, other, {})[:3] == [
        Finding("warning", f"GPU {index}", what, remedy) for index, (what, remedy) in enumerate(remedies.items())
    ]
    assert [each.level for each in found(lost, denied, other)] == ["error"] * 3
    assert found(lost, {}, cuda_works=False)[0].level == "error"
    assert found(lost, {}, cuda_works=True)[0].level == "warning"
    assert [(each.level, each.about) for each in found({"mig": []}, {"mig": []})][:1] == [("error", "GPU 0, 1")]
    partly = NvmlAnswers((H100 | lost,), 2)
    assert [each.level for each in gpu_findings.hidden(partly)] == ["warning"], "of the second nothing is known"


def test_a_chip_that_is_too_old_or_too_new_for_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"compute_capability": (5, 0), "name": "NVIDIA GTX 960"}
    assert compatibility.too_old((5, 0))
    what = "TensorFlow has no code for compute capability 5.0"
    assert Finding("note", "GPU 0", f"{what}, and uses only the others") in found(old, {})
    assert found(old)[1] == Finding(
        "error", "GPU 0", what, "use an older TensorFlow; device.visible=none trains on the CPU"
    )
    monkeypatch.setattr(installed, "newest_target", lambda: (9, 0))
    compiles = Finding(
        "note", "GPU 0", "TensorFlow compiles its kernels for this chip at first use, which can take minutes",
        "this happens once: the driver keeps the compiled kernels",
    )  # fmt: skip
    assert compiles in found({"compute_capability": (10, 0)})
    assert found({"compute_capability": (9, 5)})[1:] == []


@pytest.mark.parametrize(
    ("error", "visible", "before", "what", "remedy"),
    [
        ("CUDA_ERROR_NO_DEVICE", None, "", "CUDA does not start (CUDA_ERROR_NO_DEVICE): CUDA sees no device",
         "check the driver with nvidia-smi and ls -l /dev/nvidia*"),
        ("CUDA_ERROR_NO_DEVICE", "7", "", "CUDA sees no device with CUDA_VISIBLE_DEVICES=7", "correct it or unset it"),
        ("CUDA_ERROR_NO_DEVICE", "", "", "", ""),
        ("CUDA_ERROR_NO_DEVICE", None, "error", "", ""),
        ("CUDA_ERROR_NO_DEVICE", None, "warning", "CUDA does not start (CUDA_ERROR_NO_DEVICE): CUDA sees no device",
         "check the driver with nvidia-smi and ls -l /dev/nvidia*"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", None, "error", "", ""),
        ("CUDA_ERROR_STUB_LIBRARY", "", "error", "CUDA does not start (CUDA_ERROR_STUB_LIBRARY): the stub of the CUDA "
         "toolkit is found before the driver's own libcuda.so.1",
         "remove its folder (.../lib64/stubs) from LD_LIBRARY_PATH"),
        ("999", None, "", "CUDA does not start (999): the driver gives no reason",
         "check the driver with nvidia-smi and ls -l /dev/nvidia*"),
        ("999", None, "error", "", ""),
        ("CUDA_ERROR_UNKNOWN", None, "error", "", ""),
        ("CUDA_ERROR_OPERATING_SYSTEM", None, "error", "", ""),
        ("CUDA_ERROR_OPERATING_SYSTEM", None, "", "CUDA does not start (CUDA_ERROR_OPERATING_SYSTEM): the operating "
         "system refuses access to the GPUs", "check the driver with nvidia-smi and ls -l /dev/nvidia*"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", None, "error", "CUDA does not start (CUDA_ERROR_SYSTEM_NOT_READY): the fabric "
         "manager has not set up the NVLink switches of this board", "as root: systemctl start nvidia-fabricmanager; "
         "its version must be the driver's, 580.10"),
        ("", None, "", "", ""),
    ],
)  # fmt: skip
def test_an_error_of_cuda_is_told_unless_it_is_meant_or_explained(
    monkeypatch: pytest.MonkeyPatch, error: str, visible: str | None, before: str, what: str, remedy: str
) -> None:
    monkeypatch.setattr(chips, "confined", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    known = [Finding(before, "GPU", "something else")] if before else []
    made = list(findings(CudaAnswer(True, error), "580.10", known))
    assert made == ([Finding("error", "CUDA", what, remedy)] if what else [])


def test_an_iommu_finding_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    place = tmp_path / "sys/bus/pci/devices/0000:02:00.0/iommu_group"
    place.mkdir(parents=True)
    (place / "type").write_text("DMA\n")
    gpus = tuple(H100 | {"index": index, "compute_mode": 0} for index in range(2))
    bus = ["0000:01:00.0", "0000:02:00.0"]
    assert list(gpu_findings.iommu_findings(NvmlAnswers(gpus, 2), bus)) == [
        Finding(
            "warning", "GPU",
            "the IOMMU translates the GPUs' addresses: copies between them without NVLink can be slow, wrong, or hang",
            "boot with iommu=pt, or set NCCL_P2P_DISABLE=1 (slower, but safe)",
        )
    ]  # fmt: skip
    unasked = tuple(gpu | {"nvlinks": (12, 12)} for gpu in gpus[:1]) + gpus[1:]
    assert len(list(gpu_findings.iommu_findings(NvmlAnswers(unasked, 2), bus))) == 1, "only one of them is linked"
    parted = (gpus[0], gpus[1] | {"mig": []})
    assert list(gpu_findings.iommu_findings(NvmlAnswers(parted, 2), bus)) == []
    unknown = (gpus[0], {key: value for key, value in gpus[1].items() if key != "compute_mode"})
    assert list(gpu_findings.iommu_findings(NvmlAnswers(unknown, 2), bus)) == [], "the details were not asked"


@pytest.mark.parametrize(
    ("text", "answer", "works"),
    [
        (None, CudaAnswer(), None), ("", CudaAnswer(), None), ("[null, 0]", CudaAnswer(), None),
        ("7", CudaAnswer(), None), ("[0, 2]", CudaAnswer(True, "", 2), True),
        ('["CUDA_ERROR_UNKNOWN", 0]', CudaAnswer(True, "CUDA_ERROR_UNKNOWN"), False),
        ("[999, 0]", CudaAnswer(True, "999"), False),
    ],
)  # fmt: skip
def test_what_the_library_has_answered_is_read(
    monkeypatch: pytest.MonkeyPatch, text: str | None, answer: CudaAnswer, works: bool | None
) -> None:
    output = None if text is None else Output(0, text, "")
    child = SimpleNamespace(output=lambda _deadline: output, end=lambda: None)
    monkeypatch.setattr("gputui.engine.doctor.cuda_library.Child", lambda *_: child)
    given = CudaQuery().by(0.0)
    assert (given, given.works) == (answer, works)


def test_a_cause_is_known_by_the_name_of_its_error_and_one_by_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chips, "lacks_unified_memory", lambda: True)
    for confined, remedy in ((False, "as root: modprobe nvidia_uvm; nvidia-modprobe -u -c=0"),
                             (True, "start the container with --gpus all, which adds the node")):  # fmt: skip
        monkeypatch.setattr(chips, "confined", lambda confined=confined: confined)
        cause = cause_named_in("failed: CUDA_ERROR_MADE_UP, then CUDA_ERROR_UNKNOWN")
        assert cause is not None
        assert (cause.what, cause.remedy) == ("the driver's node /dev/nvidia-uvm is missing", remedy)
    assert cause_named_in("system not yet initialized") is cause_named_in("CUDA_ERROR_SYSTEM_NOT_READY") is FABRIC
    assert (cause_named_in("CUDA_ERROR_MADE_UP"), cause_named_in("nothing")) == (None, None)
    fabric = cause_of("CUDA_ERROR_SYSTEM_NOT_READY", "")
    assert fabric.remedy.endswith("its version must be the driver's, of an unknown version")
    assert cause_of("CUDA_ERROR_NO_DEVICE", "").remedy.endswith("/dev/nvidia*; start a container with --gpus all")
