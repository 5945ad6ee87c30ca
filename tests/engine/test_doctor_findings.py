"""The doctor's single findings, where a machine that has them cannot be had."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import py_compile
import sys
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import doctor
from gputui.engine.doctor import (
    Finding,
    driver,
    gpu_findings,
    host_findings,
    libraries,
    python_packages,
    tensorflow_check,
)
from gputui.engine.doctor.nvml_query import NvmlAnswers
from gputui.engine.interpreter import installed
from gputui.engine.interpreter.interpreter import Interpreter
from gputui.engine.telemetry import resource_limits
from gputui.engine.units import GIB
from gputui.tui.wording import doctor as doctor_text
from gputui.tui.wording.doctor import conclusion

from tests.support.fakenvml import FakeNvml

pytest_plugins = ("tests.support.fakenvml.fixture",)

H100 = {
    "index": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "compute_capability": (9, 0),
    "memory_used_bytes": 0,
    "memory_total_bytes": 80 * 1024**3,
    "power_limit_w": 700.0,
    "power_default_w": 700.0,
    "persistence": True,
    "ecc": True,
    "throttle": [],
    "mig": None,
}


def about(found: Sequence[Finding], what: str) -> list[str]:
    return [finding.level for finding in found if what in finding.what]


def seen(**changes: Any) -> NvmlAnswers:
    return NvmlAnswers((H100 | changes,), 1, driver="580.10", cuda=(13, 0))


def test_settings_of_an_administrator() -> None:
    found = list(gpu_findings.findings(seen(power_limit_w=400.0, persistence=False, ecc=False)))
    assert about(found, "the power limit is 400 W, its default is 700 W") == ["warning"]
    assert about(found, "persistence mode is off") == ["note"]
    assert about(found, "ECC is off") == ["note"]
    assert not about(list(gpu_findings.findings(seen())), "ECC")


def test_a_gpu_in_bad_health() -> None:
    found = list(gpu_findings.findings(seen(throttle=["power cap", "hardware thermal"], ecc_errors={"uncorrected": 3})))
    assert about(found, "3 memory error(s) that could not be corrected") == ["warning"]
    assert about(found, "slowed down: hardware thermal") == ["warning"]


@pytest.mark.parametrize(
    ("capability", "good_for"), [((8, 6), "bfloat16, float16 and TF32"), ((7, 5), "float16"), ((6, 1), "float32 only")]
)
def test_what_a_chip_is_good_for(capability: tuple[int, int], good_for: str) -> None:
    found = list(gpu_findings.findings(seen(compute_capability=capability)))
    assert any(finding.what.endswith(f": {good_for}") for finding in found)
    assert not about(found, "compiles its kernels")


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
    "gpus=1",
    "nvlinks=18 fabric=3",
    "nvlinks=12 nvlinks_down=12",
    "licensed=1",
    "retired=0",
    "lanes=16/16",
    "fail=DeviceGetComputeMode:3 fail=DeviceGetNvLinkState:999 nvlinks=4 fail=DeviceGetRemappedRows:13",
)


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


def test_ecc_costs_bandwidth_where_memory_is_gddr() -> None:
    gddr = ("NVIDIA GeForce RTX 4090", "NVIDIA L40S", "NVIDIA RTX A6000", "NVIDIA A10G", "Tesla T4")
    for name in (*gddr, "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB", "NVIDIA B200", "NVIDIA A100-SXM4-80GB"):
        (found,) = [one for one in gpu_findings.findings(seen(ecc=False, name=name)) if "ECC" in one.what]
        assert ("costs bandwidth" in found.remedy) is (name in gddr), name


def test_an_iommu_that_translates_is_reported_where_gpus_copy_over_pcie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = ["0000:01:00.0", "0000:02:00.0"]
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    for kind, links, gpu_count, expected in (
        ("DMA-FQ", None, 2, ["warning"]), ("DMA", (0, 12), 2, ["warning"]), ("identity", None, 2, []),
        ("DMA-FQ", (12, 12), 2, []), ("DMA-FQ", None, 1, []),
    ):  # fmt: skip
        for address in bus:
            place = tmp_path / "sys/bus/pci/devices" / address / "iommu_group"
            place.mkdir(parents=True, exist_ok=True)
            (place / "type").write_text(f"{kind}\n")
        asked = tuple(H100 | {"index": index, "compute_mode": 0, "nvlinks": links} for index in range(gpu_count))
        found = list(gpu_findings.iommu_findings(NvmlAnswers(asked, gpu_count), bus))
        assert [finding.level for finding in found] == expected, (kind, links, gpu_count)


def test_xla_looks_for_its_tools_where_its_flags_say_and_not_in_cuda_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking() -> bool:
        (found,) = libraries.xla_tools({}, True)
        return "libdevice.10.bc" in found.what and found.level == "warning"

    monkeypatch.setattr(libraries, "_wheel", lambda relative: False)
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path / "nothing")
    (tmp_path / "nvvm/libdevice").mkdir(parents=True)
    (tmp_path / "nvvm/libdevice/libdevice.10.bc").touch()
    monkeypatch.setenv("CUDA_DIR", str(tmp_path))
    assert lacking()
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_cuda_data_dir={tmp_path}")
    assert not lacking()


def laid_out(site: Path, distribution: str, version: str, *files: str) -> None:
    """Lay a package into a folder as pip does, with its list of files."""
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    lines = []
    for name in files:
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(f"# of {distribution}\n")
        checksum = base64.urlsafe_b64encode(hashlib.sha256((site / name).read_bytes()).digest()).decode()
        lines.append(f"{name},sha256={checksum.removesuffix('=')},20\n")
    (info / "RECORD").write_text("".join(lines))


@pytest.mark.parametrize(
    ("old", "name", "level", "says"),
    [
        ("pynvml", "pynvml/__init__.py", "warning", "comes from pynvml 11.5.3, not from nvidia-ml-py"),
        ("nvidia-ml-py3", "pynvml.py", "warning", "comes from nvidia-ml-py3 11.5.3, not from nvidia-ml-py"),
        ("pynvml", "pynvml_utils/__init__.py", "note", "the deprecated package pynvml 11.5.3"),
        ("nothing-of-nvidia", "other.py", "ok", "nvidia-ml-py 13.0"),
    ],
)
def test_which_package_the_module_pynvml_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, name: str, level: str, says: str
) -> None:
    laid_out(tmp_path, "nvidia-ml-py", "13.0", "pynvml.py")
    laid_out(tmp_path, old, "11.5.3", name)  # the later one overwrites
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pynvml")
    (found,) = python_packages.nvml_module_findings()
    assert (found.level, says in found.what) == (level, True), found
    assert f"pip uninstall {old}" in found.remedy or level == "ok"


def test_no_package_of_the_module_pynvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pynvml")
    assert [finding.level for finding in python_packages.nvml_module_findings()] == ["error"]
    laid_out(tmp_path, "nvidia-ml-py", "13.0", "somewhere_else.py")
    (tmp_path / "pynvml.py").write_text("# of nobody")
    assert [finding.level for finding in python_packages.nvml_module_findings()] == ["warning"]


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


@pytest.mark.parametrize(
    ("told", "bus", "there"),
    [
        (NvmlAnswers(count=8, driver="580"), ["0000:01:00.0"], True),
        (NvmlAnswers(reason="it has not answered", late_seconds=2.0), ["0000:01:00.0"], True),
        (NvmlAnswers(reason="it has not answered", late_seconds=2.0), None, True),
        (NvmlAnswers(reason="not loaded", code=9), [], False),
        (NvmlAnswers(reason="no library", code=12), ["0000:01:00.0"], False),
        (NvmlAnswers(reason="no library", code=12), None, False),
    ],
)
def test_a_driver_that_is_there_needs_its_libraries(told: NvmlAnswers, bus: list[str] | None, there: bool) -> None:
    assert driver.present(told, bus) is there


def test_gpus_that_the_driver_hides_are_named_only_if_it_gives_the_addresses_of_all_others() -> None:
    bus = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    for first, named in (("00000000:01:00.0", " (0000:03:00.0)"), (None, "")):
        shown = tuple(H100 | {"pci_bus_id": address} for address in (first, "00000000:02:00.0"))
        found = list(driver.findings(NvmlAnswers(shown, 2, driver="580.10", cuda=(13, 0)), bus, False))
        assert [finding.what for finding in found if finding.level == "warning"] == [
            f"the driver shows 2 of the 3 GPUs in this machine{named}"
        ]


def test_the_drivers_library_for_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_loader_cache", frozenset)
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    (found,) = libraries.libcuda("580.10", False)
    assert (found.level, "libcuda.so.1 is missing" in found.what) == ("error", True)
    assert "libnvidia-compute-580" in found.remedy
    (found,) = libraries.libcuda("580.10", True)
    assert "--gpus all" in found.remedy
    assert "compute,utility" in found.remedy
    folder = tmp_path / "usr/lib/wsl/lib"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").touch()
    assert list(libraries.libcuda("580.10", False)) == []


def test_libraries_are_found_where_tensorflow_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "site", lambda relative: None)
    assert not libraries._is_there("libcudnn_made_up.so.9")
    (tmp_path / "libcudnn_made_up.so.9").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    assert libraries._is_there("libcudnn_made_up.so.9")


def test_how_tensorflow_was_built_is_read_without_importing_it() -> None:
    assert installed.build_info()["is_cuda_build"] is True
    assert installed.cuda_version() == (12, 5)
    assert (8, 0) in installed.capabilities()
    assert (installed.cudnn_version() or ())[:1] == (9,)


@pytest.mark.parametrize(
    ("change", "stale"), [("none", False), ("source", True), ("python", True), ("gone", True), ("hashed", False)]
)
def test_bytecode_that_python_would_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, stale: bool
) -> None:
    source = tmp_path / "keras.py"
    source.write_text("x = 1\n")
    by_hash = py_compile.PycInvalidationMode.CHECKED_HASH if change == "hashed" else None
    compiled = Path(str(py_compile.compile(str(source), invalidation_mode=by_hash)))
    if change in ("source", "hashed"):
        os.utime(source, (1, 1))
    elif change == "python":
        compiled.write_bytes(b"\0\0\0\0" + compiled.read_bytes()[4:])
    elif change == "gone":
        compiled.unlink()
    monkeypatch.setattr(installed, "site", lambda name: source if name.startswith("keras/") else None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert bool(list(python_packages.bytecode_findings())) is stale


def test_bytecode_in_a_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ops.py").touch()
    monkeypatch.setattr(installed, "site", lambda name: tmp_path / "ops.py" if name.endswith("ops.py") else None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert list(python_packages.bytecode_findings()) == []
    monkeypatch.setattr(os, "access", lambda path, how: False)
    (found,) = python_packages.bytecode_findings()
    assert f"{tmp_path} cannot be written to" in found.what
    assert found.remedy.startswith("ask the owner of the folder to run: ")


def test_no_tensorflow_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "intended", lambda: Interpreter("/other/bin/python", (3, 12, 1), {}, {}, ()))
    found = list(libraries.tensorflow(False))
    assert [finding.level for finding in found] == ["error"]
    assert doctor.blocks(found)


def test_a_small_or_full_host(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(64 * 1024**2, 60 * 1024**2, 4 * 1024**2))
    found = list(host_findings.findings())
    assert about(found, "64.0 MiB") == ["note"]
    assert about(list(host_findings.findings(gpus=1)), "64.0 MiB") == ["note"], "one GPU exchanges nothing"
    assert about(list(host_findings.findings(gpus=2)), "64.0 MiB") == ["warning"]
    assert [finding.level for finding in found if finding.about == "runs"] == ["error"]


@pytest.mark.parametrize(("free", "level"), [(16 * GIB, "ok"), (GIB // 2, "warning")])
def test_memory_that_other_programs_have_taken_is_told_on_a_large_machine(
    monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    monkeypatch.setattr(resource_limits, "memory", lambda: resource_limits.Memory(64 * GIB, free))
    assert [finding.level for finding in host_findings.findings() if finding.about == "memory"] == [level]


@pytest.mark.parametrize(("free", "level"), [(6 * GIB, "ok"), (2 * GIB, "warning"), (GIB // 32, "error")])
def test_little_room_for_checkpoints_is_a_warning_and_hardly_any_an_error(
    monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(100 * GIB, 100 * GIB - free, free))
    assert [finding.level for finding in host_findings.findings() if finding.about == "runs"] == [level]


def test_a_folder_for_runs_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPUTUI_HOME", str(tmp_path / "file" / "below"))
    assert about(list(host_findings.findings()), "cannot write to") == ["error"]


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("Cannot dlopen some GPU libraries. Please", "CUDA libraries are missing"),
        ("failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)", "libcuda.so.1"),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "CUDA sees no device"),
        ("failed call to cuInit: INTERNAL: CUDA_ERROR_COMPAT_NOT_SUPPORTED", "CUDA_ERROR_COMPAT_NOT_SUPPORTED"),
        ("nothing to see", ""),
    ],
)
def test_the_likely_reason_for_missing_gpus(log: str, reason: str) -> None:
    found = tensorflow_check._compared(seen(), [], log)
    assert (found.level, reason in found.what) == ("error", True)


@pytest.mark.parametrize(
    ("environment", "size", "levels"),
    [
        ({"TERM": "xterm-256color", "LANG": "C.UTF-8"}, (160, 50), ["ok"]),
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, (160, 50), ["note", "ok"]),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, (60, 20), ["note", "note", "warning"]),
        ({"TERM": "xterm-256color", "LANG": "de_DE.ISO-8859-1", "COLORTERM": "truecolor"}, (99, 30), ["note", "ok"]),
    ],
)
def test_terminals(
    environment: dict[str, str], size: tuple[int, int], levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    found = doctor_text.terminal(environment, os.terminal_size(size))
    assert [finding.level for finding in found] == levels


def test_the_conclusion_names_the_cpu_where_only_the_gpus_lack_something() -> None:
    no_cuda, no_disk = Finding("error", "CUDA", "libcuda.so.1 is missing"), Finding("error", "runs", "the disk is full")
    without = Finding("error", "TensorFlow", "TensorFlow 2.21, built without CUDA: it cannot use a GPU")
    missing = Finding("error", "TensorFlow", "TensorFlow is not installed")
    on_the_cpu = "Not ready to train: see the lines marked error; device.visible=none trains on the CPU."
    assert conclusion([no_cuda, without]) == on_the_cpu
    for more in (no_disk, missing):
        assert conclusion([no_cuda, more]) == "Not ready to train: see the lines marked error."


@pytest.mark.parametrize(("quota", "level"), [(None, "ok"), (4.0, "ok"), (1.0, "note"), (0.5, "note")])
def test_a_container_limited_to_less_than_two_cpus_is_noted_on_a_large_machine(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, level: str
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.setattr(resource_limits, "cpus", lambda: quota)
    assert [finding.level for finding in host_findings.findings() if finding.about == "CPU"] == [level]
