"""What the doctor says of the libraries and tools of CUDA that TensorFlow needs: one finding for each state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from gputui.engine.doctor import Finding, libraries
from gputui.engine.interpreter import installed

from tests.support.bare_machine import built as built
from tests.support.bare_machine import tree as tree
from tests.support.machines import put

CUFFT, NCCL, CUPTI = "libcufft.so.11", "libnccl.so.2", "libcupti.so.12"
BLAS = ("libcublas.so.12", "libcublasLt.so.12")
NO_GPU = "missing: TensorFlow cannot use a GPU"


@pytest.fixture(autouse=True)
def machine(built: None, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorFlow with CUDA on a machine that has none of NVIDIA's files."""
    monkeypatch.setattr(installed, "with_cuda", lambda: "get all")
    monkeypatch.setattr(installed, "site", lambda relative: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setattr(libraries, "_loader_cache", dict)


@pytest.mark.parametrize(
    ("names", "what", "remedy"),
    [
        ((CUFFT,), f"{CUFFT} is {NO_GPU}", "pip install nvidia-cufft-cu12"),
        (BLAS, f"{', '.join(BLAS)} are {NO_GPU}", "pip install nvidia-cublas-cu12"),
        ((NCCL, CUFFT), f"{NCCL}, {CUFFT} are {NO_GPU}", "pip install nvidia-cufft-cu12; pip install nvidia-nccl-cu12"),
        ((*BLAS, CUFFT), f"{', '.join(BLAS)}, {CUFFT} are {NO_GPU}",
         "pip install nvidia-cublas-cu12; pip install nvidia-cufft-cu12"),
        ((CUFFT, CUPTI), f"{CUFFT} is {NO_GPU}", "pip install nvidia-cufft-cu12"),
        ((CUPTI, CUFFT, NCCL), f"{CUFFT}, {NCCL} are {NO_GPU}",
         "pip install nvidia-cufft-cu12; pip install nvidia-nccl-cu12"),
        ((BLAS[0], CUFFT, NCCL),
         f"CUDA's libraries are missing ({BLAS[0]}, {CUFFT}, {NCCL} ...): TensorFlow cannot use a GPU", "get all"),
        ((CUPTI,), f"{CUPTI} is missing: profiles have no GPU; all else works", "pip install nvidia-cuda-cupti-cu12"),
    ],
)  # fmt: skip
def test_libraries_that_are_missing_are_told_with_their_packages(
    names: tuple[str, ...], what: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {name: libraries.LIBRARIES[name] for name in names}
    level = "warning" if names == (CUPTI,) else "error"
    assert list(libraries.cuda(missing, True)) == [Finding(level, "CUDA", what, remedy)]
    assert list(libraries.cuda(missing, False)) == [Finding("note", "CUDA", what, remedy)]
    monkeypatch.setattr(installed, "build_info", lambda: {"is_cuda_build": False})
    assert list(libraries.cuda(missing, True)) == []


def test_libraries_are_searched_in_packages_and_in_the_loaders_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert libraries.missing() == libraries.LIBRARIES
    monkeypatch.setattr(libraries, "_loader_cache", lambda: {CUFFT: "/usr/lib/libcufft.so.11"})
    put(tmp_path, {f"b/{NCCL}": "", f"nvidia/cupti/lib/{CUPTI}": "", f"nvidia/other/{BLAS[0]}": ""})
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/a::{tmp_path}/b")
    monkeypatch.setattr(installed, "site", lambda relative: tmp_path / relative)
    assert set(libraries.LIBRARIES) - set(libraries.missing()) == {CUFFT, NCCL, CUPTI}
    all_there = f"all {len(libraries.LIBRARIES)} libraries that TensorFlow loads are installed"
    assert list(libraries.cuda({}, True)) == [Finding("ok", "CUDA", all_there)]


def test_the_tools_of_xla_are_searched_where_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(has_driver: bool = True, *missing: str) -> list[tuple[str, str, str]]:
        given = {name: libraries.LIBRARIES[name] for name in missing}
        return [(each.level, each.what, each.remedy) for each in libraries.xla_tools(given, has_driver)]

    both = "ptxas and libdevice.10.bc missing: compile.xla=true fails on a GPU"
    remedy = "pip install nvidia-cuda-nvcc-cu12"
    assert found() == [("warning", both, remedy)]
    assert found(False) == [("note", both, remedy)]
    assert found(True, CUFFT, *BLAS) == [("warning", both, remedy)]
    assert found(True, CUFFT, NCCL, *BLAS) == [], "all packages bring these files, too"
    put(tmp_path, {"usr/local/cuda/nvvm/libdevice/libdevice.10.bc": "", "own/nvvm/libdevice/libdevice.10.bc": ""})
    no_ptxas = ("warning", both.replace("ptxas and libdevice.10.bc", "ptxas"), remedy)
    no_device = ("warning", both.replace("ptxas and ", ""), remedy)
    assert found() == [no_ptxas]
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/ptxas" if name == "ptxas" else None)
    sound = [("ok", "ptxas and libdevice are installed", "")]
    assert found() == sound
    to = "--xla_gpu_cuda_data_dir="
    for flags, expected in ((f"{to}/nowhere", [no_device]), (f"{to}/nowhere --xla_a {to}{tmp_path}/own", sound),
                            (f"{to}{tmp_path}/own {to}/nowhere", [no_device])):  # fmt: skip
        monkeypatch.setenv("XLA_FLAGS", flags)
        assert found() == expected, flags
    monkeypatch.setattr(installed, "site", lambda relative: tmp_path if "libdevice" in relative else None)
    assert found() == sound


def test_the_drivers_own_library_may_be_in_several_folders(tmp_path: Path) -> None:
    missing = "libcuda.so.1 is missing: TensorFlow cannot use a GPU"
    package = "install the compute part of the driver 555.42 (Ubuntu: libnvidia-compute-555)"
    in_container = "start the container with --gpus all (NVIDIA_DRIVER_CAPABILITIES must contain compute,utility)"
    for driver, confined, remedy in (
        ("555.42", False, package), ("", False, "install the compute part of the driver"),
        ("555.42", True, in_container),
    ):  # fmt: skip
        assert list(libraries.libcuda(driver, confined)) == [Finding("error", "CUDA", missing, remedy)]
    for folder in ("usr/lib", "usr/lib64", "usr/lib/wsl/lib", "run/opengl-driver/lib", "usr/lib/aarch64-linux-gnu"):
        put(tmp_path, {f"{folder}/libcuda.so.1": ""})
        assert list(libraries.libcuda("555.42", False)) == [], folder
        (tmp_path / folder / "libcuda.so.1").unlink()
