"""What fits together: chips, drivers, cuDNN and TensorFlow."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import chips, installed, supported_versions
from tests.doors.engine import supported_versions as versions
from tests.engine.test_checks import TEXTS, found_by
from tests.support.checked import BLACKWELL, NONE, ONE, TWO, VOLTA, WITH_DISPLAY


def test_what_the_installed_packages_cannot_do_on_this_machines_chips(
    monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    said = []
    without_cuda, with_cuda = {"is_cuda_build": False}, {"is_cuda_build": True}
    mend, newest = "pip install 'nvidia-cudnn-cu12>=9.3,<9.11'", "pip install 'nvidia-cudnn-cu12>=9.24,<10'"
    for rule, on, settings, build, version, levels, words in (
        ("build", ONE, "epochs=3", without_cuda, None, ["error"], "pip install 'tensorflow[and-cuda]>=2.18,<2.22'"),
        ("build", NONE, "epochs=3", without_cuda, None, [], ""),
        ("build", ONE, "epochs=3", with_cuda, None, [], ""),
        ("build", ONE, "epochs=3", without_cuda | {"is_rocm_build": True}, None, [], ""),
        ("cudnn", VOLTA, "epochs=3", with_cuda, (9, 28), ["error"], f"{mend}; set compile.xla=false"),
        ("cudnn", VOLTA, f"entry={TEXTS}:build", with_cuda, (10, 0), ["warning"], mend),
        ("cudnn", VOLTA, "epochs=3 xla=false", with_cuda, (9, 10), [], ""),
        ("cudnn", WITH_DISPLAY, "strategy.kind=mirrored", with_cuda, (9, 28), [], ""),
        # older than the one that TensorFlow was built with
        ("cudnn", ONE, "model=mlp", with_cuda, (9, 1), ["error"], newest),
        ("cudnn", VOLTA, "epochs=3 xla=false", with_cuda, (9, 1), ["error"], mend),
        # XLA fails at convolutions
        ("cudnn", ONE, "epochs=3", with_cuda, (9, 23), ["warning"], f"{newest}; or set compile.xla=false"),
        ("cudnn", ONE, "xla=true", with_cuda, (9, 5), ["error"], newest),
        ("cudnn", TWO, "strategy.kind=mirrored xla=true", with_cuda, (9, 5), ["error"], newest),
        ("cudnn", ONE, f"entry={TEXTS}:build xla=true", with_cuda, (9, 5), ["warning"], newest),
        ("cudnn", VOLTA, "epochs=3", with_cuda, (9, 10), ["warning"], "set compile.xla=false"),
        ("cudnn", ONE, "xla=true model=mlp", with_cuda, (9, 5), [], ""),
        ("cudnn", TWO, "strategy.kind=mirrored", with_cuda, (9, 5), [], ""),
        ("cudnn", BLACKWELL, "epochs=3", with_cuda | {"cuda_version": "12.5.1"}, (9, 5), [], ""),
        ("cudnn", ONE, "epochs=3", with_cuda, (9, 24), [], ""),
    ):
        monkeypatch.setattr(installed, "build_info", lambda build=build: build)
        monkeypatch.setattr(installed, "cudnn", lambda version=version: installed.Cudnn(version))
        found = found_by(rule, on, settings)
        assert [finding.level for finding in found] == levels, (rule, settings, version)
        said += [f"{settings}, cuDNN {version}: {finding.level}: {finding}" for finding in found]
        assert all(words in finding.remedy for finding in found), found
        assert all("<9.11" not in finding.remedy for finding in found if version == (9, 10)), "it is installed"
    monkeypatch.setattr(installed, "build_info", lambda: without_cuda)
    monkeypatch.setattr(supported_versions, "HAS_CUDA", False)
    (found_on_arm,) = found_by("build", ONE, "epochs=3")
    assert "build TensorFlow 2.18 to 2.21 with CUDA from its source" in found_on_arm.remedy
    assert "pip" not in found_on_arm.remedy
    text = "\n".join([*said, str(found_on_arm)]).replace(sys.executable, "PYTHON")
    assert re.sub(r"(XLA of TensorFlow 2)[.\d]+", r"\1", text) == snapshot


def test_the_memory_limit_that_is_proposed_fits_the_gpu() -> None:
    for on in (VOLTA, TWO, BLACKWELL):
        for parts in (1, 2, 3, 4):
            together = f"memory_growth=off logical_devices={parts} memory_limit_mb="
            (finding, *_) = found_by("memory", on, f"{together}999999")
            most = finding.remedy.removeprefix("give at most ")
            assert found_by("memory", on, together + most) == [], (parts, finding)
            assert found_by("memory", on, f"{together}{int(most) * 5 // 4}"), "it is most of what there is"


# ---- Chips and the kernel's files about them -----------------------------------------------------


FORMATS = ("float32", "float16", "bfloat16", "tf32")
# In TFLOP/s, from the data sheets; a dash in a line is a format that the chip does not compute.
PEAKS = """
NVIDIA H200 NVL                             60    835.5  835.5  417.5
NVIDIA GH200 480GB                          67    989.5  989.5  494.5
NVIDIA H200                                 67    989.5  989.5  494.5
NVIDIA H100 PCIe                            51    756    756    378
NVIDIA H100 80GB HBM3                       67    989.5  989.5  494.5
NVIDIA B200                                 75    2250   2250   1100
NVIDIA GB200                                80    2500   2500   1250
NVIDIA A100-SXM4-80GB                       19.5  312    312    156
NVIDIA A10                                  31.2  125    125    62.5
NVIDIA L4                                   30.3  121    121    60
NVIDIA RTX 6000 Ada Generation              91.1  364.2  364.2  182.1
NVIDIA RTX A6000                            38.7  154.8  154.8  77.4
Tesla V100S-PCIE-32GB                       16.4  130    -      16.4
Tesla V100-SXM2-16GB                        15.7  125    -      15.7
Tesla T4                                    8.1   65     -      8.1
"""


def test_the_peaks_are_those_of_the_data_sheets() -> None:
    for line in PEAKS.strip().splitlines():
        name, *teraflops = line[:43].strip(), *line[43:].split()
        known = [chips.peak_flops(name, number_format) for number_format in FORMATS]
        assert known == [None if each == "-" else pytest.approx(float(each) * 1e12) for each in teraflops], name
    for unknown in ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GRID A100-10C", "NVIDIA GeForce RTX 4090 Laptop GPU", None):
        assert chips.peak_flops(unknown, "float32") is None, unknown


# ---- Which TensorFlow and Keras gputui trains with, and what it says of others, by what pip has li


PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_package_asks_for_the_same_range() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    asked = {match for name in ("cuda", "tensorflow") for line in extras[name]
             for match in re.findall(r"^tensorflow\S*?>=2\.(\d+),<2\.(\d+)", line)}  # fmt: skip
    oldest, newest = versions.OLDEST_TENSORFLOW, versions.NEWEST_TENSORFLOW
    assert asked == {(str(oldest[1]), str(newest[1] + 1))}
