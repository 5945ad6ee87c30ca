"""The rules about versions, libraries, host and environment variables: whole texts on both sides of their limits."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import psutil
import pytest
from gputui.engine.doctor import host_findings, libraries, tensorflow_check
from gputui.engine.doctor.machine_finding import Finding
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.doctor.python_process import Output
from gputui.engine.interpreter import compatibility, installed, supported_versions
from gputui.engine.job import environment_variables
from gputui.engine.telemetry import resource_limits

from tests.support.bare_machine import built as built
from tests.support.bare_machine import tree as tree

GIB = 1024**3


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "cuda", "lacks"),
    [((9, 0), (12, 4), True), ((9, 0), (12, 5), False), ((8, 9), (12, 4), False), ((8, 6), (12, 4), False),
     ((7, 5), (12, 4), False), (None, (12, 4), False), ((9, 0), None, False)],
)  # fmt: skip
def test_a_driver_must_know_the_ptx_of_chips_without_machine_code(
    built: None, capability: tuple[int, int] | None, cuda: tuple[int, int] | None, lacks: bool
) -> None:
    told = compatibility.driver_lacks(capability, cuda)
    assert told == (
        "TensorFlow's element-wise kernels exist for this chip (compute capability 9.0) only as PTX 8.5, which this "
        "driver, for CUDA 12.4, cannot compile" if lacks else ""
    )  # fmt: skip
    assert compatibility.newer_driver() == "install driver 555 or newer, or the cuda-compat package"


def test_an_unknown_cuda_is_named_as_it_is(built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "cuda_version", lambda: (13, 1))
    assert "only as PTX of CUDA 13.1, which this driver, for CUDA 13.0," in compatibility.driver_lacks((9, 0), (13, 0))
    assert compatibility.newer_driver() == "install a driver for CUDA 13.1, or the cuda-compat package"


@pytest.mark.parametrize(
    ("version", "old", "xla"),
    [
        ((9, 2), "TensorFlow loads cuDNN 9.2, and was built with 9.3: it cannot use a GPU",
         "XLA of TensorFlow 2.21 fails at convolutions with cuDNN 9.2; it needs 9.24"),
        ((9, 3), "", "XLA of TensorFlow 2.21 fails at convolutions with cuDNN 9.3; it needs 9.24"),
        ((9, 23), "", "XLA of TensorFlow 2.21 fails at convolutions with cuDNN 9.23; it needs 9.24"),
        ((9, 24), "", ""),
    ],
)  # fmt: skip
def test_a_cudnn_fits_tensorflow_from_its_own_and_xla_from_another_version_on(
    built: None, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], old: str, xla: str
) -> None:
    monkeypatch.setattr(installed, "cudnn", lambda: None)
    assert (compatibility.old_cudnn(version), compatibility.xla_fails(version)) == (old, xla)
    monkeypatch.setattr(installed, "tensorflow_version", lambda: "2.20.0")
    assert compatibility.xla_fails(version) == "", "nothing is known of it"
    for loaded, lacks in (((9, 10), False), ((9, 11), True), (None, False)):
        monkeypatch.setattr(installed, "cudnn_version", lambda loaded=loaded: loaded)
        assert [compatibility.lacks_cudnn(chip) for chip in ((7, 0), (7, 5), None)] == [lacks, False, False]


def test_a_chip_has_code_if_its_generation_has_and_is_too_old_before_the_first(built: None) -> None:
    chips = ((5, 2), (6, 0), (6, 1), (7, 0), (7, 5), (8, 9), (9, 0))
    assert [compatibility.has_code(chip) for chip in chips] == [False, True, True, True, True, True, False]
    assert [compatibility.too_old(chip) for chip in chips] == [True] + [False] * 6
    assert (installed.newest_target(), compatibility.too_old(None)) == ((9, 0), False)


@pytest.mark.parametrize(
    ("tensorflow", "keras", "levels"),
    [
        ("2.17.1", "3.10.0", ["error"]), ("2.18.0", "3.10.0", []), ("2.21.5", "3.15.1", []),
        ("2.22.0", "3.16.0", ["warning", "warning"]), ("2.18.0", "3.9.9", ["error"]), ("3.0.0", None, ["warning"]),
        (None, "4.0", ["warning"]), ("nightly", None, []), ("1.15.0", "2.15.0", ["error", "error"]),
    ],
)  # fmt: skip
def test_versions_outside_of_the_range_are_refused_or_warned_of(
    tensorflow: str | None, keras: str | None, levels: list[str]
) -> None:
    remarks = supported_versions.remarks(tensorflow, keras, lambda package: f"get {package}")
    assert [remark.level for remark in remarks] == levels
    (old,) = supported_versions.remarks("2.17.1", None, lambda package: f"get {package}")
    assert (old.what, old.remedy.partition("[")[0].partition(">")[0]) == (
        "TensorFlow 2.17.1 is too old: gputui trains with TensorFlow 2.18 to 2.21", "get tensorflow"
    )  # fmt: skip
    (new,) = supported_versions.remarks(None, "3.16", str)
    assert (new.what, new.remedy) == (
        "Keras 3.16 is newer than gputui has been tested with (3.10 to 3.15)", "it may work; if not, install Keras 3.15"
    )  # fmt: skip


# ---- libraries and TensorFlow itself -------------------------------------------------------------


def test_missing_libraries_are_named_up_to_two_packages(built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "with_cuda", lambda: "get all")
    monkeypatch.setattr(installed, "install", lambda package: f"get {package}")
    names = dict(list(libraries.LIBRARIES.items())[:4])
    assert list(libraries.cuda(names, True)) == [
        Finding("error", "CUDA", "CUDA's libraries are missing (libcudart.so.12, libcublas.so.12, libcublasLt.so.12 "
                "...): TensorFlow cannot use a GPU", "get all")
    ]  # fmt: skip
    one = {"libcudart.so.12": "nvidia-cuda-runtime-cu12"}
    assert list(libraries.cuda(one, False)) == [
        Finding(
            "note", "CUDA", "libcudart.so.12 is missing: TensorFlow cannot use a GPU", "get nvidia-cuda-runtime-cu12"
        )
    ]
    cupti = {"libcupti.so.12": "nvidia-cuda-cupti-cu12"}
    assert list(libraries.cuda(cupti, True)) == [
        Finding("warning", "CUDA", "libcupti.so.12 is missing: profiles have no GPU; all else works",
                "get nvidia-cuda-cupti-cu12")
    ]  # fmt: skip
    assert [each.what for each in libraries.cuda({**one, **cupti}, True)] == [
        "libcudart.so.12 is missing: TensorFlow cannot use a GPU"
    ]
    assert list(libraries.cuda({}, True)) == [
        Finding("ok", "CUDA", "all 10 libraries that TensorFlow loads are installed")
    ]


def test_the_tools_of_xla_are_named_if_they_are_missing(
    tree: Path, built: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "site", lambda _relative: None)
    monkeypatch.setattr(installed, "install", lambda package: f"get {package}")
    monkeypatch.setenv("PATH", str(tree))
    monkeypatch.delenv("XLA_FLAGS", raising=False)

    def found(has_driver: bool = True, missing: int = 0) -> list[Finding]:
        return list(libraries.xla_tools({str(number): str(number) for number in range(missing)}, has_driver))

    get = "get nvidia-cuda-nvcc-cu12"
    both = "ptxas and libdevice.10.bc missing: compile.xla=true fails on a GPU"
    assert found() == [Finding("warning", "XLA", both, get)]
    assert found(has_driver=False) == [Finding("note", "XLA", both, get)]
    assert (len(found(missing=2)), found(missing=3)) == (1, [])
    (tree / "ptxas").touch(0o755)
    assert [each.what for each in found()] == ["libdevice.10.bc missing: compile.xla=true fails on a GPU"]
    data = tree / "usr/local/cuda/nvvm/libdevice"
    data.mkdir(parents=True)
    (data / "libdevice.10.bc").touch()
    assert found() == [Finding("ok", "XLA", "ptxas and libdevice are installed")]
    (tree / "ptxas").unlink()
    assert [each.what for each in found()] == ["ptxas missing: compile.xla=true fails on a GPU"]


@pytest.mark.parametrize(
    ("count", "names", "visible", "finding"),
    [
        (0, [], None, Finding("ok", "TensorFlow", "TensorFlow trains on the CPU")),
        (0, ["A100"], None, Finding("warning", "TensorFlow", "TensorFlow sees 1 GPU(s), but the driver gives no "
         "readings", "training works, but without GPU readings: no library")),
        (2, ["A100"] * 2, None, Finding("ok", "TensorFlow", "TensorFlow sees the same 2 GPU(s) as the driver")),
        (2, ["A100"], None, Finding("warning", "TensorFlow", "the driver shows 2 GPU(s), but TensorFlow sees 1: CUDA "
         "libraries are missing", "get all")),
        (2, [], None, Finding("error", "TensorFlow", "the driver shows 2 GPU(s), but TensorFlow sees 0: CUDA libraries "
         "are missing", "get all")),
        (2, ["A100"], "1", Finding("note", "TensorFlow", "TensorFlow sees 1 of the driver's 2 GPU(s): "
         "CUDA_VISIBLE_DEVICES is '1'", "unset it to use all of them")),
        (2, [], "", Finding("note", "TensorFlow", "TensorFlow sees 0 of the driver's 2 GPU(s): "
         "CUDA_VISIBLE_DEVICES is ''", "unset it to use all of them")),
        (2, [], "1", Finding("error", "TensorFlow", "the driver shows 2 GPU(s), of which TensorFlow should see 1, but "
         "it sees 0: CUDA libraries are missing", "get all")),
    ],
)  # fmt: skip
def test_the_gpus_of_tensorflow_are_compared_with_those_of_the_driver(
    tree: Path, monkeypatch: pytest.MonkeyPatch, count: int, names: list[str], visible: str | None, finding: Finding
) -> None:
    monkeypatch.setattr(installed, "with_cuda", lambda: "get all")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    log = "Cannot dlopen some GPU libraries."
    answer = json.dumps({"version": "2.21.0", "gpus": names})
    child: Any = type("Child", (), {"seconds": 3.25, "output": lambda *_: Output(0, f"x\n{answer}", log)})()
    gpus = tuple({"index": index, "name": "A100"} for index in range(count))
    seen = NvmlAnswers(gpus, count, "" if count else "no library", driver="580.10")
    first, second = tensorflow_check.findings(child, seen, 0.0)
    assert (first.level, first.what) == ("ok", "TensorFlow 2.21.0 can be imported (3.2 s)")
    assert second == finding


@pytest.mark.parametrize(
    ("output", "level", "what"),
    [
        (None, "warning", "TensorFlow could not be imported within 17 s"),
        ((1, "", "one\n  ImportError: x  \n\n"), "error", "TensorFlow cannot be imported: ImportError: x"),
        ((-11, "", ""), "error", "TensorFlow cannot be imported: return code -11"),
        ((0, "[1]", "y" * 300), "error", "TensorFlow cannot be imported: " + "y" * 200),
        ((0, '{"version": "2.21.0"}', "z"), "error", "TensorFlow cannot be imported: z"),
    ],
)
def test_a_tensorflow_that_cannot_be_imported_is_told_with_its_last_line(
    output: tuple[int, str, str] | None, level: str, what: str
) -> None:
    made = None if output is None else Output(*output)
    child: Any = type("Child", (), {"seconds": 17.0, "output": lambda *_: made})()
    (finding,) = tensorflow_check.findings(child, NvmlAnswers(), 0.0)
    assert (finding.level, finding.what) == (level, what)


# ---- host and environment ------------------------------------------------------------------------


def host(about: str, gpus: int = 0) -> list[Finding]:
    return [each for each in host_findings.findings(gpus) if each.about == about]


@pytest.mark.parametrize(
    ("usable", "quota", "level", "what"),
    [
        (8, None, "ok", "8 CPUs"), (2, None, "ok", "2 CPUs of 8"), (1, None, "note", "1 CPU of 8"),
        (8, 2.0, "ok", "2 of 8 CPUs (the container's limit)"),
        (8, 1.5, "note", "1.5 of 8 CPUs (the container's limit)"),
        (4, 4.0, "ok", "4 CPUs of 8"), (4, 3.5, "ok", "3.5 of 4 CPUs (the container's limit)"),
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


def test_memory_and_room_have_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    total = psutil.virtual_memory().total
    for free, level in ((GIB, "ok"), (GIB - 1, "warning")):
        monkeypatch.setattr(resource_limits, "memory", lambda free=free: resource_limits.Memory(total, free))
        ((finding),) = host("memory")
        assert (finding.level, finding.what.endswith("(the container's limit)")) == (level, False)
    monkeypatch.setattr(resource_limits, "memory", lambda: resource_limits.Memory(total - 1, GIB))
    assert host("memory")[0].what.endswith(" free (the container's limit)")
    usage = namedtuple("usage", "total used free")
    for bytes_, runs, shared in (
        (64 * 1024**2 - 1, "error", "note"), (64 * 1024**2, "warning", "note"), (GIB - 1, "warning", "note"),
        (GIB, "warning", "ok"), (5 * GIB - 1, "warning", "ok"), (5 * GIB, "ok", "ok"),
    ):  # fmt: skip
        monkeypatch.setattr("shutil.disk_usage", lambda _path, now=bytes_: usage(now, 0, now))
        assert [each.level for name in ("runs", "/dev/shm") for each in host(name)] == [runs, shared], bytes_
        assert host("/dev/shm", 2)[0].level == ("warning" if shared == "note" else "ok")


def test_variables_that_slow_a_training_are_told_with_what_they_do() -> None:
    slow = {"CUDA_LAUNCH_BLOCKING": " True ", "TF_CUDNN_USE_AUTOTUNE": "0", "CUDA_MODULE_LOADING": "eager",
            "TF_FORCE_UNIFIED_MEMORY": "1", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
            "TF_ENABLE_ONEDNN_OPTS": "false", "TF_CPP_MAX_VLOG_LEVEL": "1"}  # fmt: skip
    of_gpu, of_gpus, of_cpu = list(slow)[:4], list(slow)[4:6], list(slow)[6]
    for kind, devices, names in (("GPU", 1, of_gpu), ("GPU", 2, [*of_gpu, *of_gpus]), ("CPU", 2, [of_cpu])):
        told = environment_variables.harmful(slow, kind, devices)
        assert [name for name, _, _ in told] == [*names, "TF_CPP_MAX_VLOG_LEVEL"]
    assert environment_variables.harmful({"NCCL_SHM_DISABLE": "1"}, "GPU", 2) == [
        ("NCCL_SHM_DISABLE",
         "NCCL_SHM_DISABLE=1 is set: GPUs without a direct link exchange gradients over the network",
         "unset NCCL_SHM_DISABLE")
    ]  # fmt: skip
    fine = {"CUDA_LAUNCH_BLOCKING": "0", "TF_CUDNN_USE_AUTOTUNE": "1", "CUDA_MODULE_LOADING": "LAZY",
            "TF_CPP_MAX_VLOG_LEVEL": " 0 ", "NCCL_P2P_DISABLE": "2", "TF_ENABLE_ONEDNN_OPTS": "1"}  # fmt: skip
    assert [environment_variables.harmful(fine, kind, 2) for kind in ("GPU", "CPU")] == [[], []]


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
