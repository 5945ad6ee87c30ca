"""What `gputui doctor` finds on machines of all kinds and not on a sound one, in golden/answers/doctor.txt."""

from __future__ import annotations

import os
import re
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest
import yaml

from tests.contract.conftest import Golden
from tests.doors.engine import (
    EccErrors,
    ExaminedGpu,
    GpuProcess,
    MigInstance,
    NvmlAnswers,
    chips,
    doctor,
    host_findings,
    installed,
    libraries,
    no_gpu,
    reasons,
    resource_limits,
    tensorflow_check,
)
from tests.doors.tui import tui_cli as cli
from tests.support.checked import install, sites
from tests.support.machines import machine, put

GIB = 1024**3
SOUND = "h100"
H100: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3", "compute_capability": (9, 0), "memory_total_bytes": 80 * GIB, "processes": (),
    "memory_used_bytes": 0, "power_limit_w": 700.0, "power_limit_default_w": 700.0, "persistence": True, "ecc": True,
    "throttle": (), "mig": None, "multiprocessors": 132, "compute_mode": 0,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "h100": {},
    "v100": {"name": "Tesla V100-SXM2-16GB", "compute_capability": (7, 0), "memory_total_bytes": 16 * GIB},
    "p100": {"name": "Tesla P100-PCIE-16GB", "compute_capability": (6, 0), "memory_total_bytes": 16 * GIB},
    "m40": {"name": "Tesla M40", "compute_capability": (5, 2), "memory_total_bytes": 24 * GIB},
    "rtx4090": {"name": "NVIDIA GeForce RTX 4090", "compute_capability": (8, 9), "memory_total_bytes": 24 * GIB},
    "rtx5090": {"name": "NVIDIA GeForce RTX 5090", "compute_capability": (12, 0), "memory_total_bytes": 32 * GIB},
    "laptop": {"name": "NVIDIA GeForce RTX 4060 Laptop GPU", "compute_capability": (8, 9)},
    "t1000": {"name": "NVIDIA T1000", "compute_capability": (7, 5), "memory_total_bytes": 4 * GIB},
    "p400": {"name": "Quadro P400", "compute_capability": (6, 1), "memory_total_bytes": 2 * GIB, "multiprocessors": 2},
    "unknown": {"name": None, "compute_capability": None, "memory_total_bytes": None, "multiprocessors": None},
}  # fmt: skip
KIND = re.compile(r"(?:(\d+) x )?([a-z]\w+) ?(\{(?:[^{}]|\{[^{}]*\})*\})?")
PARTS = {"processes": GpuProcess, "holders": GpuProcess, "mig": MigInstance}
Usage = namedtuple("Usage", "total used free")


def examined(text: str) -> Iterator[ExaminedGpu]:
    """`h100, 2 x v100 {ecc: false}`."""
    numbers = iter(range(100))
    for count, kind, changes in KIND.findall(text) if text != "none" else ():
        given = yaml.safe_load(re.sub(r"([\d.]+)GiB", lambda m: str(int(float(m[1]) * GIB)), changes or "{}"))
        for key, of in PARTS.items():
            if isinstance(given.get(key), list):
                given[key] = tuple(of(**each) for each in given[key])
        for key in ("pcie_lanes", "nvlinks", "compute_capability"):
            given |= {key: tuple(given[key])} if key in given else {}
        given |= {"ecc_errors": EccErrors(*given["ecc_errors"])} if "ecc_errors" in given else {}
        for _ in range(int(count or 1)):
            index = next(numbers)
            address = f"0000:{index + 1:02x}:00.0"
            names = {"index": index, "uuid": f"GPU-{index}", "pci_bus_id": address}
            yield ExaminedGpu(**names | H100 | KINDS[kind] | given)


def seen_by(gpus: tuple[ExaminedGpu, ...], words: dict[str, str]) -> NvmlAnswers:
    driver, _, cuda = words.get("driver", "580.95/13.0").partition("/")
    known: dict[str, Any] = {"driver": driver, "cuda": tuple(map(int, cuda.split("."))) if cuda else None}
    late = float(words["late"]) if "late" in words else None
    if "nvml" in words:
        code = int(words["nvml"])
        known |= {"reason": reasons.text_of(pynvml.NVMLError(code)), "code": code}
    elif late is not None and not gpus:
        known["reason"] = f"the NVIDIA driver has not answered within {late:.0f} s"
    elif not gpus:
        known["reason"] = "the NVIDIA driver sees no GPU"
    return NvmlAnswers(gpus, int(words.get("count", len(gpus))), late_seconds=late, **known)


def on(question: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of the doctor, on the machine of the question: GPUs, and words about all else."""
    text, _, more = question.partition(" | ")
    gpus, flags = tuple(examined(text)), [word for word in more.split() if "=" not in word]
    words = dict(word.split("=", 1) for word in more.split() if "=" in word)
    for name in [name for name in words if name.isupper()]:
        monkeypatch.setenv(name, words[name])
    root = folder / f"root{len(list(folder.iterdir()))}"
    root.mkdir()
    bus = words["bus"].split(",") if words.get("bus") else ["0x2330"] * (0 if "bus" in words else len(gpus))
    machine(root, len(bus), container="container" in flags)
    for number, device in enumerate(bus, 1):
        kind = words.get("iommu", "identity")
        put(root / f"sys/bus/pci/devices/0000:{number:02x}:00.0", {"device": device, "iommu_group/type": kind})
    put(root, dict.fromkeys([f"dev/{name}" for name in words.get("nodes", "").split(",") if name], ""))
    if "wsl" in flags:
        put(root, dict.fromkeys(("dev/dxg", "usr/lib/wsl/lib/libcuda.so.1", "usr/lib/wsl/lib/libnvidia-ml.so.1"), ""))
    monkeypatch.setattr(resource_limits, "ROOT", root)
    install(more, folder / "site", monkeypatch)
    seen, cuda = seen_by(gpus, words), words.get("cuda", "works")
    answer = libraries.CudaAnswer(cuda == "works", "" if cuda == "works" else f"CUDA_ERROR_{cuda}", len(gpus))
    child = SimpleNamespace(end=lambda: None, seconds=17.0, output=lambda _deadline: deep(words.get("deep", "")))
    for module in (doctor, no_gpu):
        monkeypatch.setattr(module, "NvmlQuery", lambda: SimpleNamespace(by=lambda _deadline: seen))
    monkeypatch.setattr(libraries, "started", lambda: child)
    monkeypatch.setattr(libraries, "answer", lambda *_: libraries.CudaAnswer() if cuda == "silent" else answer)
    monkeypatch.setattr(tensorflow_check, "started", lambda _python: child)
    lacks, site = words.get("lacks", "-").split(","), installed.site
    monkeypatch.setattr(libraries, "_is_there", lambda name: name not in lacks)
    monkeypatch.setattr(libraries, "_loader_cache", dict)
    monkeypatch.setattr(installed, "site", lambda path: None if path.endswith(tuple(lacks)) else site(path))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    of_host(words, folder, monkeypatch)
    return ["--deep"] if "deep" in words else []


def of_host(words: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gib = {name: int(float(words.get(name, usual)) * GIB) for name, usual in
           (("memory", 64), ("available", 32), ("shm", 8), ("disk", 100))}  # fmt: skip
    quota = float(words["quota"]) if "quota" in words else None
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(int(words.get("cpus", 8)))))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 8)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * GIB))
    monkeypatch.setattr(resource_limits, "cpus", lambda: quota)
    monkeypatch.setattr(resource_limits, "memory", lambda: resource_limits.Memory(gib["memory"], gib["available"]))
    usage = {True: Usage(gib["shm"], 0, gib["shm"]), False: Usage(gib["disk"], 0, gib["disk"])}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage[str(path) == "/dev/shm"])
    monkeypatch.setattr(host_findings, "python_packages", lambda: ())
    logind = folder / f"logind{len(list(folder.iterdir()))}"
    for number, value in enumerate(words.get("logind", "").split(",")):
        name = f"logind.conf.d/{number}.conf" if number else "logind.conf"
        put(logind, {name: f"[Login]\nKillUserProcesses={value}" if value else "#"})
    monkeypatch.setattr(host_findings, "LOGIND", logind)
    monkeypatch.setattr(host_findings, "LINGER", folder)


def deep(word: str) -> CompletedProcess[str] | None:
    """Of TensorFlow, which sees so many GPUs, cannot be imported, or does not answer; a log may follow the number."""
    sees, _, log = word.partition(":")
    if word == "hangs":
        return None
    if word == "broken":
        return CompletedProcess([], 1, "", "one\n  ImportError: x  \n\n")
    told = f'\n{{"version": "2.21.0", "gpus": {["chip"] * int(sees)}}}'.replace("'", '"')
    return CompletedProcess([], 0, told, log.replace("_", " ").replace("  ", "_"))


def test_what_the_doctor_finds(golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sites(tmp_path / "site")

    def told(question: str) -> list[str]:
        """The exit code with the conclusion, and the findings; `!` marks what a trainer says that sees no GPU."""
        with pytest.MonkeyPatch.context() as patched:
            for name in [name for name in os.environ if name.startswith(("SLURM_", "CUDA_", "NVIDIA_", "XLA_", "TF_"))]:
                patched.delenv(name)
            for name in (*chips._CONFINED, "LD_LIBRARY_PATH", "GPUTUI_PYTHON"):
                patched.delenv(name, raising=False)
            code = cli.run(["doctor", *on(question, tmp_path, patched)])
            reason = f" {no_gpu.reason() or 'none'}"
        lines = capsys.readouterr().out.replace("\n" + 21 * " ", "; ").replace(str(tmp_path), "HERE").splitlines()
        found = [re.sub(" +", " ", line) for line in lines[:-1]]
        by_trainer = [] if reason == " none" or any(line.endswith(reason) for line in found) else [f"!{reason}"]
        return [
            f"[{code}] {lines[-1]}",
            *(f"! {line}" if line.endswith(reason) else line for line in found),
            *by_trainer,
        ]

    sound = {re.sub(r"GPU [\d, -]+", "", line) for line in told(SOUND)[1:]}

    def answer(question: str) -> list[str]:
        conclusion, *found = told(question)
        news = [line for line in found if question == SOUND or re.sub(r"GPU [\d, -]+", "", line) not in sound]
        return [f"{conclusion} {news[0]}"] if len(news) == 1 else [conclusion, *news]

    golden.answers("answers/doctor.txt", answer)
