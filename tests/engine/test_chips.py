"""Chips and the kernel's files about them: peaks, number formats, and which GPUs a machine or a container has."""

from __future__ import annotations

from pathlib import Path

import pytest
from gputui.engine.telemetry import chips, resource_limits

from tests.support.machines import put

FORMATS = ("float32", "float16", "bfloat16", "tf32")
# In TFLOP/s, from the data sheets; a dash in a line is a format that the chip does not compute.
PEAKS = """
NVIDIA H200 NVL                             60    835.5  835.5  417.5
NVIDIA GH200 480GB                          67    989.5  989.5  494.5
NVIDIA H200                                 67    989.5  989.5  494.5
NVIDIA H100 PCIe                            51    756    756    378
NVIDIA H100 NVL                             60    835.5  835.5  417.5
NVIDIA H100 80GB HBM3                       67    989.5  989.5  494.5
NVIDIA H20                                  44    148    148    74
NVIDIA B200                                 75    2250   2250   1100
NVIDIA GB200                                80    2500   2500   1250
NVIDIA B300 SXM6 AC                         75    2250   2250   1125
NVIDIA GB300                                80    2500   2500   1250
NVIDIA A100-SXM4-80GB                       19.5  312    312    156
NVIDIA A30                                  10.3  165    165    82
NVIDIA A40                                  37.4  149.7  149.7  74.8
NVIDIA A10                                  31.2  125    125    62.5
NVIDIA L40S                                 91.6  362    362    183
NVIDIA L40                                  90.5  181    181    90.5
NVIDIA L4                                   30.3  121    121    60
NVIDIA A10G                                 31.5  70     70     35
NVIDIA RTX 6000 Ada Generation              91.1  364.2  364.2  182.1
NVIDIA RTX A6000                            38.7  154.8  154.8  77.4
NVIDIA RTX A5000                            27.8  111.1  111.1  55.6
NVIDIA RTX A4000                            19.2  76.7   76.7   38.3
NVIDIA RTX PRO 6000 Blackwell Workstation   126   503.8  503.8  251.9
NVIDIA A800-SXM4-80GB                       19.5  312    312    156
Tesla V100S-PCIE-32GB                       16.4  130    -      16.4
Tesla V100-PCIE-16GB                        14    112    -      14
Tesla V100-SXM2-16GB                        15.7  125    -      15.7
Tesla T4                                    8.1   65     -      8.1
"""
# float32 of GeForce cards; their tensor cores do twice that in 16 bits and as much in TF32.
GEFORCE = {
    "RTX 5090": 104.8, "RTX 5080": 56.3, "RTX 5070 Ti": 43.9, "RTX 5070": 30.9, "RTX 5060 Ti": 23.7, "RTX 5060": 19.2,
    "RTX 4090": 82.6, "RTX 4080 SUPER": 52.2, "RTX 4080": 48.7, "RTX 4070 Ti SUPER": 44.1, "RTX 4070 Ti": 40.1,
    "RTX 4070 SUPER": 35.5, "RTX 4070": 29.1, "RTX 4060 Ti": 22.1, "RTX 4060": 15.1, "RTX 3090 Ti": 40.0,
    "RTX 3090": 35.6, "RTX 3080 Ti": 34.1, "RTX 3080": 29.8, "RTX 3070 Ti": 21.7, "RTX 3070": 20.3,
    "RTX 3060 Ti": 16.2, "RTX 3060": 12.7,
}  # fmt: skip
NO_CHIPS = (
    None, "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 2080 Ti", "A model",
    "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "GRID A100-10C", "NVIDIA A40-48Q", "NVIDIA A100-1-5CME", "NVIDIA A10-24A",
)  # fmt: skip


def test_a_geforce_card_has_the_peaks_that_follow_from_its_float32() -> None:
    for card, rate in GEFORCE.items():
        known = [chips.peak_flops(f"NVIDIA GeForce {card}", number_format) for number_format in FORMATS]
        assert known == pytest.approx([1e12 * rate, 2e12 * rate, 2e12 * rate, 1e12 * rate]), card


def test_a_part_of_a_chip_and_a_chip_that_is_not_known_have_no_peak() -> None:
    for name in NO_CHIPS:
        assert [chips.peak_flops(name, number_format) for number_format in FORMATS] == [None] * 4, name


def test_the_peaks_are_those_of_the_data_sheets() -> None:
    for line in PEAKS.strip().splitlines():
        name, *teraflops = line[:43].strip(), *line[43:].split()
        known = [chips.peak_flops(name, number_format) for number_format in FORMATS]
        assert known == [None if each == "-" else pytest.approx(float(each) * 1e12) for each in teraflops], name


def test_the_number_format_is_that_of_the_precision_policy() -> None:
    assert [chips.number_format(policy, tf32) for policy in ("float32", "mixed_float16", "mixed_bfloat16")
            for tf32 in (True, False)] == ["tf32", "float32", "float16", "float16", "bfloat16", "bfloat16"]  # fmt: skip


@pytest.mark.parametrize(
    ("capability", "cpu", "policies"),
    [
        ((6, 1), True, []),
        ((7, 0), True, ["mixed_float16"]),
        ((7, 5), True, ["mixed_float16"]),
        ((8, 0), False, ["mixed_float16", "mixed_bfloat16"]),
        (None, True, ["mixed_bfloat16"]),
        (None, False, []),
    ],
)
def test_the_mixed_precisions_of_a_chip(capability: tuple[int, int] | None, cpu: bool, policies: list[str]) -> None:
    assert chips.fast_policies(capability, cpu) == policies


@pytest.mark.parametrize(
    ("cores", "capability", "number"),
    [
        (16896, (9, 0), 132), (10752, (8, 6), 84), (6912, (8, 0), 108), (5120, (7, 0), 80), (2560, (7, 5), 40),
        (3584, (6, 1), 28), (3584, (6, 0), 56), (1024, (5, 2), 8), (1024, (3, 5), None), (None, (8, 0), None),
        (6912, None, None),
    ],
)  # fmt: skip
def test_multiprocessors_are_counted_by_their_cores(
    cores: int | None, capability: tuple[int, int] | None, number: int | None
) -> None:
    assert chips.multiprocessors(cores, capability) == number


@pytest.mark.parametrize(
    ("given", "of_all", "least"),
    [
        (None, [84, None, 6], 8), (None, [8], 8), (None, [6, 4, None], 6), (None, [None], 0), (None, [], 0),
        ("3", [84], 3), ("0", [84], 0), ("many", [84], 8), ("", [84], 8),
    ],
)  # fmt: skip
def test_tensorflow_uses_gpus_from_so_many_multiprocessors_on(
    monkeypatch: pytest.MonkeyPatch, given: str | None, of_all: list[int | None], least: int
) -> None:
    monkeypatch.delenv("TF_MIN_GPU_MULTIPROCESSOR_COUNT", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_MIN_GPU_MULTIPROCESSOR_COUNT", given)
    assert chips.least_multiprocessors(of_all) == least


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(resource_limits, "ROOT", tmp_path)
    for name in ("container", "NVIDIA_VISIBLE_DEVICES", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER",
                 "SLURM_JOB_ID"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_gpus_are_found_on_the_bus_by_maker_and_class_except_those_that_are_lent(tree: Path) -> None:
    assert chips.gpus_on_bus() is None, "the bus cannot be seen"
    bus = "sys/bus/pci/devices"
    for number, (vendor, kind) in enumerate(
        [("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x1002", "0x030000"), ("0x10de", "0x030000")]
    ):
        put(
            tree, {f"{bus}/0000:0{4 - number}:00.0/vendor": f"{vendor}\n", f"{bus}/0000:0{4 - number}:00.0/class": kind}
        )
    assert chips.gpus_on_bus() == ["0000:01:00.0", "0000:04:00.0"]
    (tree / "vfio-pci").mkdir()
    (tree / bus / "0000:01:00.0/driver").symlink_to(tree / "vfio-pci")
    assert chips.gpus_on_bus() == ["0000:04:00.0"]
    (tree / bus / "0000:04:00.0/vendor").unlink()
    assert chips.gpus_on_bus() == []
    put(tree, {"dev/nvidia0": ""})
    assert chips.gpus_on_bus() is None, "there are GPUs that the bus does not show"


@pytest.mark.parametrize(
    ("files", "has_nodes", "lacks"),
    [
        ((), False, False),
        (("dev/nvidiactl",), True, True),
        (("dev/nvidia0",), True, False),
        (("dev/nvidiactl", "dev/nvidia-uvm"), True, False),
        (("dev/nvhost-gpu",), True, False),
        (("dev/nvidia-uvm",), False, False),
        (("dev/dxg",), False, False),
        (("dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"), True, False),
        (("usr/lib/wsl/lib/libcuda.so.1",), False, False),
    ],
)
def test_the_drivers_nodes_are_known(tree: Path, files: tuple[str, ...], has_nodes: bool, lacks: bool) -> None:
    put(tree, dict.fromkeys(files, ""))
    assert (chips.has_device_nodes(), chips.lacks_unified_memory()) == (has_nodes, lacks)


def test_a_container_or_a_job_is_known_by_its_files_or_its_variables(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not chips.confined()
    for name in (".dockerenv", "run/.containerenv"):
        put(tree, {name: ""})
        assert chips.confined(), name
        (tree / name).unlink()
    for name in ("container", "NVIDIA_VISIBLE_DEVICES", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER",
                 "SLURM_JOB_ID"):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setenv(name, "")
            assert not chips.confined()
            patched.setenv(name, "1")
            assert chips.confined(), name
