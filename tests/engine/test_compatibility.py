"""What fits together: chips, drivers, cuDNN and TensorFlow."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.doors.engine import chips
from tests.doors.engine import supported_versions as versions

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
