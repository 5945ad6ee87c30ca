"""What the doctor finds of a machine."""

from __future__ import annotations

import json
import os
import pwd
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psutil
import pytest

from tests.doors.engine import (
    EccErrors,
    ExaminedGpu,
    Finding,
    GpuProcess,
    Interpreter,
    MigInstance,
    NvmlAnswers,
    environment_variables,
    gpu_findings,
    host_findings,
    installed,
    libraries,
    resource_limits,
    supported_versions,
    tensorflow_check,
)
from tests.support.fakenvml import FakeNvml
from tests.support.machines import built as built
from tests.support.machines import tree as tree


def about(found: Sequence[Finding], what: str) -> list[str]:
    return [finding.level for finding in found if what in finding.what]


JUDGE = """
import json, os, sys, time
from gputui.engine.doctor import gpu_findings
from gputui.engine.doctor.nvml_query import NvmlQuery
told = []
for words, cuda_works in json.loads(sys.argv[1]):
    os.environ["FAKE_NVML"] = words
    seen = NvmlQuery().by(time.monotonic() + 90)
    told.append([[finding.level, finding.what] for finding in gpu_findings.findings(seen, cuda_works)])
print(json.dumps(told))
"""
# The machine, whether CUDA works, level and words of the finding.
DETAILS: tuple[tuple[str, bool | None, str, str], ...] = (
    ("lanes=4/16", True, "warning", "PCIe uses 4 of 16 lanes: copies take 4 times as long"),
    ("compute_mode=2", False, "error", "PROHIBITED"),
    ("compute_mode=3", True, "note", "only one process can use it"),
    ("compute_mode=3 procs=4194304", True, "error", "and process 4194304 does"),
    ("fabric=2", None, "error", "CUDA cannot start: the fabric manager has not set up"),
    ("fabric=1", True, "warning", "there is no NVLink between the GPUs"),
    ("nvlinks=18 nvlinks_down=6 fabric=3", True, "warning", "12 of 18 NVLinks are active"),
    ("nvlinks=12 nvlinks_down=8", True, "note", "4 of 12 NVLinks are active"),
    ("remap=1", True, "warning", "rows of its memory failed and will be replaced at the next reset"),
    ("remap=0,1", True, "warning", "could not be replaced"),
    ("retired=1", True, "warning", "pages of its memory failed and will be replaced at the next reset"),
    ("licensed=0", True, "warning", "no licence"),
    ("ecc=0", True, "note", "ECC is off"),
    ("name=NVIDIA_GeForce_GTX_1660_Ti capability=7.5", True, "ok", "float32, and float16 without tensor cores"),
    ("name=NVIDIA_T1000 capability=7.5", True, "ok", "float32, and float16 without tensor cores"),
)
SOUND = (
    "gpus=1", "nvlinks=18 fabric=3", "nvlinks=12 nvlinks_down=12", "licensed=1", "retired=0", "lanes=16/16",
    "fail=DeviceGetComputeMode:3 fail=DeviceGetNvLinkState:999 nvlinks=4 fail=DeviceGetRemappedRows:13",
)  # fmt: skip


def test_how_a_gpu_is_connected_locked_damaged_and_licensed(nvml: FakeNvml) -> None:
    def judged(cases: list[tuple[str, bool | None]], *, old: bool = False) -> list[list[list[str]]]:
        found: list[list[list[str]]] = nvml.run(JUDGE, "", json.dumps(cases), old=old)
        return found

    quiet = [(f"mem_used=0 {words}", works) for words, works, *_ in DETAILS]
    for (words, _, level, says), told in zip(DETAILS, judged(quiet), strict=True):
        assert [at for at, what in told if says in what] == [level], (words, told)
    sound: list[tuple[str, bool | None]] = [(f"mem_used=0 {words}", True) for words in SOUND]
    sound += [("mem_used=0 fabric=2", False)]  # CUDA's own error tells it
    for (words, _), told in zip(sound, judged(sound), strict=True):
        assert [level for level, _ in told] == ["ok"], (words, told)
    for told in judged([("mem_used=0 gpus=2", True)], old=True):  # a driver without these functions
        assert [level for level, _ in told] == ["ok"], told


def test_missing_libraries_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_is_there", lambda name: "cudnn" not in name and "cublas" not in name)
    missing = libraries.missing()
    with_driver, without = list(libraries.cuda(missing, True)), list(libraries.cuda(missing, False))
    assert about(with_driver, "libcudnn.so.9 are missing") == ["error"]
    assert about(without, "libcudnn.so.9 are missing") == ["note"]
    (found,) = with_driver
    assert found.remedy == "pip install nvidia-cublas-cu12; pip install nvidia-cudnn-cu12"
    (found,) = libraries.cuda({libraries.CUPTI: "nvidia-cuda-cupti-cu12"}, True)
    assert (found.level, "profiles have no GPU" in found.what) == ("warning", True)


def test_no_tensorflow_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "intended", lambda: Interpreter("/other/bin/python", (3, 12, 1), {}, {}, ()))
    found = list(libraries.tensorflow(False))
    assert [finding.level for finding in found] == ["error"]


# ---- Each rule of the doctor about a GPU ---------------------------------------------------------


GIB_RULES = 1024**3
H100_RULES: dict[str, Any] = {
    "index": 0, "name": "NVIDIA H100 80GB HBM3", "compute_capability": (9, 0), "memory_used_bytes": 0,
    "memory_total_bytes": 80 * GIB_RULES, "power_limit_w": 700.0, "power_limit_default_w": 700.0, "persistence": True,
    "ecc": True, "throttle": (), "mig": None, "multiprocessors": 132,
}  # fmt: skip
SOUND_RULES = Finding(
    "ok", "GPU 0", "NVIDIA H100 80GB HBM3, 80.0 GiB, compute capability 9.0: bfloat16, float16 and TF32",
    "precision.policy=mixed_bfloat16 uses its tensor cores",
)  # fmt: skip
USE_OTHER = "; device.visible can choose another GPU"
PYTHON = [GpuProcess(pid, name="python") for pid in (7, 8, 9, 10)]


def found(*gpus: dict[str, Any], cuda_works: bool | None = None) -> list[Finding]:
    numbered = tuple(ExaminedGpu(**(H100_RULES | {"index": index} | changes)) for index, changes in enumerate(gpus))
    return list(gpu_findings.findings(NvmlAnswers(numbered, len(gpus), driver="580.10", cuda=(13, 0)), cuda_works))


@pytest.mark.parametrize(
    ("changes", "level", "what", "remedy"),
    [
        ({"persistence": False}, "note", "persistence mode is off",
         "nvidia-smi -pm 1 (as root) makes each start some seconds faster"),
        ({"power_limit_w": 698.9}, "warning", "the power limit is 699 W, its default is 700 W",
         "nvidia-smi -pl 700 (as root) restores it, where cooling allows"),
        ({"power_limit_w": 699.0}, "", "", ""),
        ({"mig": (MigInstance("MIG-a"), MigInstance("MIG-b"))}, "note",
         "MIG is on, with 2 instance(s); a run uses one of them", "choose it by name: device.visible=MIG-a"),
        ({"ecc_errors": EccErrors(0, 1)}, "warning", "1 memory error(s) that could not be corrected",
         "reset it (nvidia-smi --gpu-reset); have it looked at if they recur"),
        ({"ecc_errors": EccErrors(9, 0)}, "", "", ""),
        ({"throttle": ["idle", "hardware slowdown", "power brake"]}, "warning",
         "slowed down: hardware slowdown, power brake", "check its cooling and power supply"),
        ({"throttle": ["idle", "power cap"]}, "", "", ""), ({"memory_used_bytes": GIB_RULES - 1}, "", "", ""),
        ({"memory_used_bytes": GIB_RULES}, "note", "1.0 GiB of 80.0 GiB are already in use",
         "nvidia-smi may show by whom (a display takes some, too)" + USE_OTHER),
        ({"memory_used_bytes": 8 * GIB_RULES, "processes": [GpuProcess(7, name="Xorg", type="G")]}, "note",
         "8.0 GiB of 80.0 GiB are already in use by Xorg 7", "its display needs them" + USE_OTHER),
        ({"memory_used_bytes": 8 * GIB_RULES, "processes": PYTHON[:3]}, "note",
         "8.0 GiB of 80.0 GiB are already in use by python 7, python 8, python 9", "end them" + USE_OTHER),
        ({"memory_used_bytes": 8 * GIB_RULES + 1, "processes": PYTHON}, "warning",
         "8.0 GiB of 80.0 GiB are already in use by python 7, python 8, python 9 ...", "end them" + USE_OTHER),
    ],
)  # fmt: skip
def test_a_rule_makes_one_finding_from_its_limit_on(
    changes: dict[str, Any], level: str, what: str, remedy: str
) -> None:
    assert found(changes) == [SOUND_RULES, *([Finding(level, "GPU 0", what, remedy)] if level else [])]


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensorflow", "keras", "levels"),
    [
        ("2.17.1", "3.10.0", ["error"]), ("2.18.0", "3.10.0", []), ("2.22.0", "3.16.0", ["warning", "warning"]),
        ("2.18.0", "3.9.9", ["error"]), (None, "4.0", ["warning"]), ("1.15.0", "2.15.0", ["error", "error"]),
    ],
)  # fmt: skip
def test_versions_outside_of_the_range_are_refused_or_warned_of(
    tensorflow: str | None, keras: str | None, levels: list[str]
) -> None:
    remarks = supported_versions.findings(tensorflow, keras, lambda package: f"get {package}")
    assert [remark.level for remark in remarks] == levels
    (old,) = supported_versions.findings("2.17.1", None, lambda package: f"get {package}")
    assert (old.what, old.remedy.partition("[")[0].partition(">")[0]) == (
        "TensorFlow 2.17.1 is too old: gputui trains with TensorFlow 2.18 to 2.21", "get tensorflow"
    )  # fmt: skip
    (new,) = supported_versions.findings(None, "3.16", str)
    assert (new.what, new.remedy) == (
        "Keras 3.16 is newer than gputui has been tested with (3.10 to 3.15)", "it may work; if not, install Keras 3.15"
    )  # fmt: skip


# ---- libraries and TensorFlow itself -------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "level", "what"),
    [
        (None, "warning", "TensorFlow could not be imported within 17 s"),
        ((1, "", "one\n  ImportError: x  \n\n"), "error", "TensorFlow cannot be imported: ImportError: x"),
        ((0, "[1]", "y" * 300), "error", "TensorFlow cannot be imported: " + "y" * 200),
        ((0, '{"version": "2.21.0"}', "z"), "error", "TensorFlow cannot be imported: z"),
    ],
)
def test_a_tensorflow_that_cannot_be_imported_is_told_with_its_last_line(
    output: tuple[int, str, str] | None, level: str, what: str
) -> None:
    made = None if output is None else CompletedProcess([], *output)
    child: Any = type("Child", (), {"seconds": 17.0, "output": lambda *_: made})()
    (finding,) = tensorflow_check.findings(child, NvmlAnswers(), 0.0)
    assert (finding.level, finding.what) == (level, what)


# ---- host and environment ------------------------------------------------------------------------


def host(about: str, gpus: int = 0) -> list[Finding]:
    return [each for each in host_findings.findings(gpus) if each.about == about]


@pytest.mark.parametrize(
    ("usable", "quota", "level", "what"),
    [
        (8, None, "ok", "8 CPUs"), (1, None, "note", "1 CPU of 8"),
        (8, 2.0, "ok", "2 of 8 CPUs (the container's limit)"),
        (8, 1.5, "note", "1.5 of 8 CPUs (the container's limit)"),
    ],
)  # fmt: skip
def test_processors_are_counted_as_this_process_may_use_them(
    monkeypatch: pytest.MonkeyPatch, usable: int, quota: float | None, level: str, what: str
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(usable)))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 8)
    monkeypatch.setattr(resource_limits, "cpus", lambda: quota)
    remedy = "at least two are needed to prepare input while the model trains" if level == "note" else ""
    assert host("CPU") == [Finding(level, "CPU", what, remedy)]


def test_a_logout_that_ends_processes_is_warned_of_unless_the_user_lingers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host_findings, "LOGIND", tmp_path)
    monkeypatch.setattr(host_findings, "LINGER", tmp_path)
    for line, levels in (("#KillUserProcesses=yes", []), ("KillUserProcesses=yes", ["warning"])):
        (tmp_path / "logind.conf").write_text(f"[Login]\n{line}\n")
        assert [finding.level for finding in host("logout")] == levels
    (tmp_path / pwd.getpwuid(os.geteuid()).pw_name).touch()
    assert host("logout") == []


def test_memory_and_room_have_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    total = psutil.virtual_memory().total
    for free, level in ((GIB_RULES, "ok"), (GIB_RULES - 1, "warning")):
        monkeypatch.setattr(resource_limits, "memory", lambda free=free: resource_limits.Memory(total, free))
        ((finding),) = host("memory")
        assert (finding.level, finding.what.endswith("(the container's limit)")) == (level, False)
    monkeypatch.setattr(resource_limits, "memory", lambda: resource_limits.Memory(total - 1, GIB_RULES))
    assert host("memory")[0].what.endswith(" free (the container's limit)")
    usage = namedtuple("usage", "total used free")
    for bytes_, runs, shared in (
        (64 * 1024**2 - 1, "error", "note"), (64 * 1024**2, "warning", "note"), (GIB_RULES - 1, "warning", "note"),
        (GIB_RULES, "warning", "ok"), (5 * GIB_RULES - 1, "warning", "ok"), (5 * GIB_RULES, "ok", "ok"),
    ):  # fmt: skip
        monkeypatch.setattr("shutil.disk_usage", lambda _path, now=bytes_: usage(now, 0, now))
        assert [each.level for name in ("runs", "/dev/shm") for each in host(name)] == [runs, shared], bytes_
        assert host("/dev/shm", 2)[0].level == ("warning" if shared == "note" else "ok")


def test_variables_are_recorded_without_secrets_and_compared_without_places() -> None:
    given = {"TF_X": "a\x07b", "XLA_FLAGS": "x" * 200, "CUDA_CACHE": "x" * 201, "NCCL_IB": "http://me@host/",
             "NVIDIA_TF32_OVERRIDE": "0", "TF_VAR_a": "1", "TF_CLI_b": "1", "CUDA_API_KEY": "1", "NCCL_PASSWORD": "1",
             "XLA_AUTH": "1", "TF_MY_TOKEN": "1", "NVIDIA_CREDENTIALS": "1", "TF_SECRETS": "1",
             "PATH": "1"}  # fmt: skip
    assert environment_variables.recorded(given) == {
        "CUDA_CACHE": "x" * 200 + "...", "NCCL_IB": "http://...@host/", "NVIDIA_TF32_OVERRIDE": "0", "TF_X": "a b",
        "XLA_FLAGS": "x" * 200,
    }  # fmt: skip
    same = {"TF_A": "1", "CUDA_VISIBLE_DEVICES": "0", "CUDA_HOME": "/a", "TF_CONFIG": "a", "NVIDIA_REQUIRE_CUDA": "1"}
    other = {"TF_A": "1", "CUDA_VISIBLE_DEVICES": "1", "CUDA_HOME": "/b", "NCCL_X": "1", "NVIDIA_PRODUCT_NAME": "x"}
    assert environment_variables.differing([same, other]) == ["NCCL_X"]
    assert environment_variables.differing([same, same | {"TF_A": "2"}]) == ["TF_A"]
