"""Readings of GPUs and host, with the faults of real machines, through the real `pynvml`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest
from gputui.engine import events
from gputui.engine.runs import request_stop
from gputui.engine.telemetry import chips, reader
from gputui.engine.telemetry.host import Host
from gputui.engine.telemetry.nvml import Nvml, NvmlUnavailable

from .fakenvml import FakeNvml
from .front_door import LONG, detached, ended, happened, step, until

pytest_plugins = ("tests.fakenvml.fixture",)

GIB = 1024**3
MIB = 1024**2

READ = """
import json, os, time
from gputui.engine.telemetry.nvml import Nvml, NvmlUnavailable
try:
    nvml = Nvml(pcie=True, own_pid=os.getppid())
except NvmlUnavailable as reason:
    print(json.dumps(str(reason)))
else:
    told = {"identities": nvml.identities()}
    nvml.read()
    time.sleep(0.12)
    told["gpus"] = nvml.read(slow=False)
    nvml.close()
    print(json.dumps(told))
"""

WATCH = """
import json, time
from dataclasses import asdict
from gputui.engine.telemetry import reader
told = []
reader.FIRST_RETRY_SECONDS, reader.SLOW_FIGURES_SECONDS = 0.2, 1.1
thread = reader.GpuReader(lambda event: told.append((time.time(), event)), {interval})
began = time.monotonic()
thread.start()
started = time.monotonic() - began
time.sleep({seconds})
began = time.monotonic()
thread.stop(1.0)
print(json.dumps({{
    "started": started, "stopped": time.monotonic() - began, "alive": thread.is_alive(), "count": len(told),
    "told": [asdict(event) | {{"type": event.type, "t": t}} for t, event in told],
}}))
"""


def readings(nvml: FakeNvml, words: str, *, old: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = nvml.run(READ, words, old=old)["gpus"]
    return found


def watched(nvml: FakeNvml, words: str, *, seconds: float, interval: float = 0.1) -> dict[str, Any]:
    found: dict[str, Any] = nvml.run(WATCH.format(seconds=seconds, interval=interval), words)
    return found


def of_type(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in found["told"] if event["type"] == kind]


def calls(log: Path) -> list[list[str]]:
    """Function, GPU and note of each call."""
    return [[*line.split()[1:], ""][:3] for line in log.read_text().splitlines()]


# ---- figures ----------------------------------------------------------------------------------


def test_all_figures_of_a_healthy_gpu(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, f"gpm=1 nvlinks=18 throttle=68 procs={os.getpid()}")
    assert gpu["uuid"] == "GPU-0000-0"
    assert gpu["pci_bus_id"] == "00000000:01:00.0"
    assert gpu["busy"] == 0.37
    assert (gpu["memory_used_bytes"], gpu["memory_total_bytes"]) == (10 * GIB, 80 * GIB)
    assert gpu["memory_reserved_bytes"] == GIB / 2
    assert (gpu["power_w"], gpu["power_limit_w"], gpu["temperature_c"]) == (321.0, 700.0, 55)
    assert (gpu["sm_clock_mhz"], gpu["memory_clock_mhz"], gpu["pstate"]) == (1980, 2619, 0)
    assert gpu["throttle"] == ["power cap", "hardware thermal"]
    assert gpu["ecc_errors"] == {"corrected": 4, "uncorrected": 0}
    assert (gpu["sm_active"], gpu["tensor_active"]) == (0.2, 0.5)
    assert gpu["pcie_rx_bytes_per_second"] == 210 * MIB
    assert gpu["nvlink"] == {"links": 18, "rx_bytes_per_second": 600 * MIB, "tx_bytes_per_second": 610 * MIB}
    assert gpu["processes"][0] | {"name": ""} == {
        "pid": os.getpid(), "memory_used_bytes": GIB, "name": "", "own": True
    }
    assert "dram_active" not in gpu  # the stand-in has no such metric
    assert gpu["reasons"] == {"dram_active": "unsupported"}


def test_what_a_call_cannot_tell_is_none_with_the_reason(nvml: FakeNvml) -> None:
    faults = {
        "DeviceGetTemperature": (3, "temperature_c", "unsupported"),
        "DeviceGetPowerUsage": (4, "power_w", "no_permission"),
        "DeviceGetUtilizationRates": (999, "busy", "error"),
        "DeviceGetComputeRunningProcesses_v3": (4, "processes", "no_permission"),
        "DeviceGetPerformanceState": (25, "pstate", "unsupported"),
    }
    words = " ".join(f"fail={function}:{code}" for function, (code, _, _) in faults.items())
    (gpu,) = readings(nvml, words)
    for _, key, reason in faults.values():
        assert gpu.get(key) is None, key
        assert gpu["reasons"][key] == reason
    assert gpu["memory_used_bytes"] == 10 * GIB


def test_figures_marked_as_not_available_are_not_numbers(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "na=1 procs=1")
    assert gpu["memory_used_bytes"] is None
    assert gpu["power_w"] is None
    assert gpu["processes"][0]["memory_used_bytes"] is None
    assert gpu["memory_total_bytes"] == 80 * GIB
    assert "shared_with_host" not in gpu


@pytest.mark.parametrize("how", ["1", "zero"])
def test_memory_shared_with_the_host(nvml: FakeNvml, how: str) -> None:
    found = nvml.run(READ, f"unified={how}")
    gpu = found["gpus"][0]
    assert gpu["shared_with_host"] is True
    assert gpu["memory_total_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < gpu["memory_used_bytes"] < gpu["memory_total_bytes"]
    assert gpu["reasons"]["memory_reserved_bytes"] == "unsupported"
    assert found["identities"][0]["memory_total_bytes"] is None


def test_older_drivers_answer_older_questions(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "procs=1 throttle=4", old=True)
    assert gpu["memory_used_bytes"] == 10 * GIB
    assert gpu["memory_used_counts_reserved"] is True
    assert gpu["reasons"]["memory_reserved_bytes"] == "unsupported"
    assert gpu["throttle"] == ["power cap"]
    assert [process["pid"] for process in gpu["processes"]] == [1]
    assert gpu["pcie_rx_bytes_per_second"] == 2000 * 1024


def test_a_partitioned_gpu_lists_its_instances(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "mig=2")
    assert gpu["busy"] is None
    assert gpu["reasons"]["busy"] == "unsupported"
    assert [instance["uuid"] for instance in gpu["mig"]] == ["MIG-0000-100", "MIG-0000-101"]
    assert gpu["mig"][0]["memory_total_bytes"] == 80 * GIB


def test_a_name_that_is_no_utf8(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "name=bad")
    assert gpu["name"].startswith("Chip ")


def test_processes_of_another_namespace_belong_to_nobody_here(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "procs=4194304")
    assert gpu["processes"] == [{"pid": 4194304, "memory_used_bytes": GIB, "name": None, "own": None}]


# ---- NVML that cannot be opened ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [("init=9", "installed but not loaded"), ("init=18", "of different versions"), ("init=999", "NVML: ")],
)
def test_why_nvml_cannot_be_opened(nvml: FakeNvml, words: str, says: str) -> None:
    assert says in nvml.run(READ, words)


def test_no_library_and_one_that_is_none(nvml: FakeNvml, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert "no NVIDIA driver" in FakeNvml(tmp_path, tmp_path).run(READ)


def test_library_mismatch_is_no_nvml_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def mismatch() -> None:
        raise pynvml.NVMLLibraryMismatchError("Unversioned function called")

    assert not issubclass(pynvml.NVMLLibraryMismatchError, pynvml.NVMLError)
    monkeypatch.setattr(pynvml, "nvmlInit", mismatch)
    with pytest.raises(NvmlUnavailable, match="too old for the installed nvidia-ml-py"):
        Nvml()


def test_an_init_that_fails_and_later_works(nvml: FakeNvml) -> None:
    gpu = of_type(watched(nvml, "init=9x1", seconds=1.0), "gpu")
    assert gpu[0]["gpus"] == []
    assert "not loaded" in gpu[0]["missing"]
    assert gpu[1]["gpus"][0]["busy"] == 0.37
    assert sum(1 for event in gpu if event["missing"]) == 1


def test_an_init_that_takes_seconds_delays_nobody(nvml: FakeNvml) -> None:
    found = watched(nvml, "init_ms=1500", seconds=0.2)
    assert found["started"] < 0.5
    assert found["told"] == []


def test_a_driver_that_hangs_at_init_hangs_nobody_else(nvml: FakeNvml) -> None:
    program = """
import json
from gputui.engine import machine
machine.PATIENCE_SECONDS = 0.3
found = machine.read()
print(json.dumps([len(found.gpus), found.no_gpu_reason]))
"""
    assert nvml.run(program, "init_ms=600000") == [0, "the NVIDIA driver hangs: no answer within 0.3 s"]
    assert nvml.run(program, "gpus=3") == [3, ""]


# ---- GPUs that fail while they are read -------------------------------------------------------


def test_a_lost_gpu_is_said_and_the_others_go_on(nvml: FakeNvml) -> None:
    found = watched(nvml, "gpus=2 lost=1+60", seconds=1.5)
    gpu = of_type(found, "gpu")
    first, last = gpu[0]["gpus"], gpu[-1]["gpus"]
    assert first[1]["busy"] == 0.37
    assert "lost" in last[1]["missing"]
    assert last[1]["reasons"] == {"*": "lost"}
    assert first[1]["uuid"] == last[1]["uuid"]
    assert gpu[0]["t"] - 1 < last[1]["lost_since"] < gpu[-1]["t"]
    assert "busy" not in last[1]
    assert last[0]["busy"] == 0.37
    assert [event["kind"] for event in of_type(found, "warning")] == ["gpu_lost"]


def test_slow_calls_lower_the_rate_and_say_so(nvml: FakeNvml) -> None:
    found = watched(nvml, "gpus=3 slow_ms=15", seconds=4.0)
    gpu = of_type(found, "gpu")
    assert gpu[-1]["interval_seconds"] > 0.5
    assert len(gpu) < 10
    warning = of_type(found, "warning")
    assert [event["kind"] for event in warning] == ["telemetry_slow"]
    assert "instead of 0.1 s" in warning[0]["message"]


def test_a_call_that_hangs_is_left_behind(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    found = watched(nvml, f"hang=DeviceGetPowerUsage@0 log={log}", seconds=0.3)
    assert found["stopped"] < 1.5
    assert found["alive"]
    assert not any(function == "Shutdown" for function, _, _ in calls(log))


def test_nothing_is_asked_after_the_end_and_nothing_ends_while_asked(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    program = """
import threading, time
from gputui.engine.telemetry.reader import GpuReader
for pause in range(12):
    thread = GpuReader(lambda event: None, 0.01)
    thread.start()
    time.sleep(pause / 100)
    thread.stop()
    assert not thread.is_alive()
print("true")
"""
    assert nvml.run(program, f"gpus=2 slow_ms=1 gpm=1 log={log}") is True
    made = calls(log)
    assert sum(function == "Shutdown" for function, _, _ in made) >= 10
    assert {note for _, _, note in made} == {""}


def test_an_open_nvml_is_of_no_use_in_a_forked_child(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    program = """
import os
from gputui.engine.telemetry.nvml import Nvml, NvmlUnavailable
nvml = Nvml()
child = os.fork()
if child == 0:
    try:
        nvml.read()
    except NvmlUnavailable:
        nvml.close()
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
nvml.close()
"""
    assert nvml.run(program, f"log={log}") == 7
    assert sum(function == "Shutdown" for function, _, _ in calls(log)) == 1


def test_calls_stay_within_the_budget(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    program = """
import json, sys, time
from gputui.engine.telemetry.nvml import Nvml
nvml, counts = Nvml(pcie=True), []
for slow in (True, True, False):
    before = len(open(sys.argv[1]).readlines())
    nvml.read(slow)
    counts.append(len(open(sys.argv[1]).readlines()) - before)
    time.sleep(0.11)
print(json.dumps(counts))
""".replace("sys.argv[1]", repr(str(log)))
    for more in ("gpm=1", "gpm=0"):
        _, slow, fast = nvml.run(program, f"nvlinks=4 procs=1 {more} log={log}")
        assert fast + (slow - fast) / reader.SLOW_FIGURES_SECONDS <= 12


def test_performance_metrics_are_not_asked_too_soon(nvml: FakeNvml) -> None:
    program = """
import json, time
from gputui.engine.telemetry.nvml import Nvml
nvml = Nvml()
nvml.read()
time.sleep(0.11)
print(json.dumps([nvml.read(False)[0].get("sm_active") for _ in range(3)]))
nvml.close()
"""
    assert nvml.run(program, "gpm=1") == [0.2, 0.2, 0.2]


# ---- the host, and the chips ------------------------------------------------------------------


def test_the_host_is_read_and_what_is_unknown_is_none() -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    mine, nobody = Host(os.getpid(), network=True), Host(int(gone.stdout))
    mine.read()
    reading = mine.read()
    assert reading.cpu is not None
    assert 0 <= reading.cpu <= 1
    assert reading.io_wait is None or 0 <= reading.io_wait <= 1
    assert reading.trainer_bytes == pytest.approx(reading.engine_bytes, rel=0.1)
    assert reading.network_rx_bytes_per_second is not None
    assert reading.trainer_read_bytes_per_second is not None
    dead = nobody.read()
    assert (dead.trainer_bytes, dead.trainer_cpu, dead.trainer_read_bytes_per_second) == (None, None, None)
    assert dead.network_rx_bytes_per_second is None


@pytest.mark.parametrize(
    ("name", "number_format", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.5),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("Tesla V100-SXM2-16GB", "float16", 125),
        ("Tesla V100-SXM2-16GB", "bfloat16", None),
        ("Tesla T4", "tf32", 8.1),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "float16", None),
        ("NVIDIA A10G", "float16", None),
        ("Something Else", "float32", None),
        (None, "float32", None),
    ],
)
def test_peaks_are_dense_and_unknown_chips_have_none(name: str | None, number_format: str, tera: float | None) -> None:
    assert chips.peak_flops(name, number_format) == (None if tera is None else tera * 1e12)


# ---- a whole run ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_training_survives_a_lost_gpu_and_a_slow_driver(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fall = tmp_path / "fall"
    for name, value in nvml.environment(f"gpus=2 slow_ms=8 lost_when={fall}@1").items():
        monkeypatch.setenv(name, value)
    run = detached(*LONG, "--set", "sample_seconds=0.1", "--set", "device.visible=none")
    until(lambda: step(run) > 0)
    before = happened(run, "gpu")[-1]
    fall.touch()
    until(lambda: "gpu_lost" in {event["kind"] for event in happened(run, "warning")})
    reached = step(run)
    until(lambda: step(run) > reached)
    after = until(lambda: happened(run, "gpu")[-1] if happened(run, "gpu")[-1]["gpus"][1].get("lost_since") else None)
    request_stop(run)
    assert ended(run)["outcome"] == "stopped"
    assert [gpu["busy"] for gpu in before["gpus"]] == [0.37, 0.37]
    assert after["gpus"][0]["busy"] == 0.37
    assert after["gpus"][1]["lost_since"] > before["t"]
    assert before["interval_seconds"] > 0.2
    assert "telemetry_slow" in {event["kind"] for event in happened(run, "warning")}
    assert "Traceback" not in run.file("engine.log").read_text()


def test_a_reading_fits_on_a_short_line(nvml: FakeNvml) -> None:
    (gpu,) = readings(nvml, "gpm=1 nvlinks=18 procs=1")
    assert len(json.dumps(events.plain(gpu), separators=(",", ":"))) < 800
