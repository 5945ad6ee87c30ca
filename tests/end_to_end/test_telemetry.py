"""Readings of GPUs and host, with the faults of real machines, through the real pynvml."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import launch, presets
from tests.support.fakenvml import FakeNvml
from tests.support.front_door import happened

READ = """
import json, os, time
from gputui.engine.files.values import plain
from gputui.engine.telemetry.nvml.connection import Nvml
from gputui.engine.telemetry.nvml.reasons import NvmlUnavailable
try:
    nvml = Nvml(pcie=True, own_pid=os.getppid())
except NvmlUnavailable as reason:
    print(json.dumps(str(reason)))
else:
    told = {"identities": [device.identity() for device in nvml.devices]}
    nvml.read()
    time.sleep(0.12)
    told["gpus"] = nvml.read(slow=False)
    nvml.close()
    print(json.dumps(plain(told)))
"""

WATCH = """
import json, time
from pathlib import Path
from gputui.engine.files.values import plain
from gputui.engine.telemetry import sampler
told = []
sampler.FIRST_RETRY_SECONDS, sampler.SLOW_FIGURES_SECONDS = 0.2, 1.1
thread = sampler.GpuReader(lambda event: told.append((time.time(), event)), {interval})
thread.start()
until = time.monotonic() + 60
while time.monotonic() < until:
    gpus = [event.gpus for _, event in told if event.type == "gpu"]
    warned = [event.kind for _, event in told if event.type == "warning"]
    if {enough}:
        break
    time.sleep(0.02)
thread.stop({patience})
print(json.dumps({{
    "alive": thread.is_alive(), "count": len(told),
    "told": [plain(vars(event)) | {{"type": event.type, "t": t}} for t, event in told],
}}))
"""


def readings(nvml: FakeNvml, words: str, *, old: bool = False) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = nvml.run(READ, words, old=old)["gpus"]
    return found


def watched(
    nvml: FakeNvml, words: str, *, enough: str, interval: float = 0.1, patience: float = 60.0
) -> dict[str, Any]:
    """What a reader of the GPUs tells until it is `enough`: an expression of the readings of `gpus` so far, and of the
    kinds of what it has `warned` of.
    """
    program = WATCH.format(enough=enough, interval=interval, patience=patience)
    found: dict[str, Any] = nvml.run(program, words, timeout=120)
    return found


def of_type(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in found["told"] if event["type"] == kind]


def calls(log: Path) -> list[list[str]]:
    """Function, GPU and note of each call."""
    return [[*line.split()[1:], ""][:3] for line in log.read_text().splitlines()]


GIB = 1024**3
MIB = 1024**2


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
    assert (gpu["max_sm_clock_mhz"], gpu["power_limit_default_w"]) == (1980, 700.0)
    assert gpu["energy_j"] > 0
    assert (gpu["slowed_by_power_seconds"], gpu["slowed_by_heat_seconds"]) == (0.0, 0.0)
    assert gpu["throttle"] == ["power cap", "hardware thermal"]
    assert gpu["ecc_errors"] == {"corrected": 4, "uncorrected": 0}
    assert (gpu["sm_active"], gpu["tensor_active"]) == (0.2, 0.5)
    assert gpu["pcie_rx_bytes_per_second"] == 210 * MIB
    assert gpu["nvlink"] == {"links": 18, "rx_bytes_per_second": 600 * MIB, "tx_bytes_per_second": 610 * MIB}
    assert gpu["processes"][0] | {"name": ""} == {
        "pid": os.getpid(), "memory_used_bytes": GIB, "type": "C", "name": "", "own": True, "user": getpass.getuser()
    }  # fmt: skip
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
    (gpu,) = readings(nvml, f"{words} fail=DeviceGetTemperatureV:3")
    for _, key, reason in faults.values():
        assert gpu.get(key) is None, key
        assert gpu["reasons"][key] == reason
    assert gpu["memory_used_bytes"] == 10 * GIB


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
    assert gpu["mig"][0]["memory_total_bytes"] == 20 * GIB


# ---- NVML that cannot be opened ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"), [("init=9", "installed but not loaded"), ("init=18", "of different versions")]
)
def test_why_nvml_cannot_be_opened(nvml: FakeNvml, words: str, says: str) -> None:
    assert says in nvml.run(READ, words)


def test_each_look_for_a_free_gpu_sees_the_processes_of_that_moment(nvml: FakeNvml, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = f"""
import json, os
from pathlib import Path
from gputui.engine.leases.gpu_use import GpuWatch
watch = GpuWatch()
told = [gpu.why_not_free() for gpu in watch.read()]
Path({str(begun)!r}).write_text(f"procs={{os.getpid()}}")
told += [gpu.why_not_free() for gpu in watch.read()]
watch.close()
print(json.dumps(told))
"""
    before, after = nvml.run(program, f"gpus=1 use={tmp_path}/use also={begun}")
    assert (before, after[:8]) == ("", "used by ")


# ---- GPUs that fail while they are read -------------------------------------------------------


@pytest.mark.parametrize(("code", "says"), [(999, "no longer answers (NVML: Unknown Error)")])
def test_a_gpu_that_fails_everything_is_lost_until_it_answers(
    nvml: FakeNvml, tmp_path: Path, code: int, says: str
) -> None:
    fall = tmp_path / "fall"
    program = f"""
import json, time
from pathlib import Path
from gputui.engine.files.values import plain
from gputui.engine.telemetry.nvml import gpu_reader
from gputui.engine.telemetry.nvml.connection import Nvml
gpu_reader.LOOK_AGAIN_SECONDS = 0.05
fall, nvml = Path({str(fall)!r}), Nvml()
told = [nvml.read()]
fall.touch()
told.append(nvml.read(False))
time.sleep(0.1)
told.append(nvml.read())
fall.unlink()
time.sleep(0.06)
told.append(nvml.read(False))
print(json.dumps(plain(told)))
"""
    well, lost, still, back = nvml.run(program, f"gpus=2 procs=1 lost_when={fall}@1 lost_code={code}")
    assert says in lost[1]["missing"]
    assert says in still[1]["missing"]
    assert lost[1]["reasons"] == {"*": "lost"}
    assert lost[1]["lost_since"] == still[1]["lost_since"]
    assert "ecc_errors" not in lost[1]
    for gpu in (*back, *well):
        del gpu["energy_j"]  # grows
    assert back == well
    assert {reading[1]["uuid"] for reading in (well, lost, still, back)} == {"GPU-0000-1"}
    assert lost[0]["busy"] == still[0]["busy"] == 0.37


def test_a_call_that_hangs_is_left_behind(nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    asked = f"Path({str(log)!r}).exists() and 'DeviceGetPowerUsage' in Path({str(log)!r}).read_text()"
    found = watched(nvml, f"hang=DeviceGetPowerUsage@0 log={log}", enough=asked, patience=0.5)
    assert found["alive"]
    assert not any(function == "Shutdown" for function, _, _ in calls(log))


# ---- what the driver counts and reports ----------------------------------------------------------


# In the place of a trainer: it opens a GPU, and is aborted when the driver has reported an error of it.
ABORTED = """
import sys
if sys.orig_argv[-2:-1] == ["gputui.engine.trainer"]:
    import json, os, pathlib, time
    folder = pathlib.Path(sys.orig_argv[-1])
    started = {"t": time.time(), "type": "started", "run": folder.name, "gpus": ["GPU-0000-1"]}
    (folder / "events.jsonl").write_text(json.dumps(started) + "\\n")
    (folder.parent / "faulty").touch()
    told = folder / "telemetry.jsonl"
    until = time.monotonic() + 60
    while time.monotonic() < until and not (told.exists() and told.read_text().count('"gpu"') > 3):
        time.sleep(0.05)
    os.abort()
"""


def test_power_and_heat_are_counted_by_the_driver(nvml: FakeNvml) -> None:
    found = watched(nvml, "gpus=2 power_cap=200@1 slowed=50,20@1 clock=600@1", enough="len(gpus) > 2")
    first, *_, last = of_type(found, "gpu")
    (healthy, slow), (_, then) = last["gpus"], first["gpus"]
    seconds = last["t"] - first["t"]
    assert (slow["power_limit_w"], slow["sm_clock_mhz"], healthy["sm_clock_mhz"]) == (200.0, 600, 1980)
    for key, share in (("slowed_by_power_seconds", 0.5), ("slowed_by_heat_seconds", 0.2), ("energy_j", 200)):
        assert slow[key] - then[key] == pytest.approx(share * seconds, rel=0.3), key
        assert key not in slow.get("reasons", {})


def test_errors_that_the_driver_reports_are_told_once_and_a_box_without_events_lacks_nothing(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    words = f"gpus=3 xid=74@1 recovery=1@1 xid=31@2 log={log}"
    found = watched(nvml, words, enough="'gpu_xid' in warned and len(gpus) > 3")
    (warning,) = [event for event in of_type(found, "warning") if event["kind"] == "gpu_xid"]
    assert "GPU 1 (NVIDIA H100 80GB HBM3): the NVIDIA driver has reported Xid 74, an NVLink" in warning["message"]
    assert warning["hint"] == ("the GPU needs a reset: end its programs, then as root: nvidia-smi --gpu-reset -i 1")
    made = [(function, note) for function, _, note in calls(log)]
    assert [function for function, _ in made].count("EventSetCreate") == 1
    assert made.index(("EventSetFree", "")) < made.index(("Shutdown", ""))
    for fault in ("EventSetCreate:3", "EventSetWait_v2:999", "DeviceRegisterEvents:3"):
        found = watched(nvml, f"gpus=3 xid=74@1 fail={fault}", enough="len(gpus) > 3")
        assert "gpu_xid" not in [event["kind"] for event in of_type(found, "warning")]
        assert [gpu["busy"] for gpu in of_type(found, "gpu")[-1]["gpus"]] == [0.37] * 3


@pytest.mark.usefixtures("nothing_left_running")
def test_a_trainer_that_dies_of_a_page_fault_ends_with_the_error_that_the_driver_has_reported(
    nvml: FakeNvml, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its own GPU: that of another is not its own."""
    (tmp_path / "sitecustomize.py").write_text(ABORTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = f"gpus=2 xid=31@1 xid=94@0 xid_when={home / 'runs' / 'faulty'}"
    for name, value in nvml.environment(words).items():
        monkeypatch.setenv(name, value)
    run, engine = launch.start(presets.resolve("quickstart", ["sample_seconds=0.1"]))
    engine.wait(60)
    assert run.result is not None
    error = run.result["error"]
    assert (error["kind"], run.result["outcome"]) == ("gpu_xid", "crashed"), error
    assert "Xid 31" in error["message"]
    assert "a memory page fault by a program; the trainer ended with signal SIGABRT" in error["message"]
    assert ["Xid 94" in event["message"] for event in happened(run, "warning")] == [True]
